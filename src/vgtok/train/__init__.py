"""Train detectors: recipes, the training loop on accelerate, checkpoints, and the model of a finished run."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.train.loop import Trainer, train
    from vgtok.train.model import initial_model
    from vgtok.train.recipe import RECIPES, Recipe, branch_recipe, read_recipe, recipe_named
    from vgtok.train.run_folder import Checkpoint, latest_checkpoint, load_checkpoint, read_metrics, save_checkpoint
    from vgtok.train.run_to_model import detector_from_run
    from vgtok.train.samples import TrainingSample, TrainingSamples

__all__ = [
    "RECIPES",
    "Checkpoint",
    "Recipe",
    "Trainer",
    "TrainingSample",
    "TrainingSamples",
    "branch_recipe",
    "detector_from_run",
    "initial_model",
    "latest_checkpoint",
    "load_checkpoint",
    "read_metrics",
    "read_recipe",
    "recipe_named",
    "save_checkpoint",
    "train",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "loop": ["Trainer", "train"],
        "model": ["initial_model"],
        "recipe": ["RECIPES", "Recipe", "branch_recipe", "read_recipe", "recipe_named"],
        "run_folder": ["Checkpoint", "latest_checkpoint", "load_checkpoint", "read_metrics", "save_checkpoint"],
        "run_to_model": ["detector_from_run"],
        "samples": ["TrainingSample", "TrainingSamples"],
    },
)
