"""Train detectors: recipes, the loop on accelerate, checkpoints, and the model a run leaves."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.train.loop import Trainer, train
    from vgtok.train.model import initial_model
    from vgtok.train.outcome import detector_of
    from vgtok.train.recipe import RECIPES, Recipe, branched, read_recipe, recipe_named
    from vgtok.train.run_folder import State, load_state, newest, read_metrics, save_state
    from vgtok.train.samples import Lesson, Lessons

__all__ = [
    "RECIPES",
    "Lesson",
    "Lessons",
    "Recipe",
    "State",
    "Trainer",
    "branched",
    "detector_of",
    "initial_model",
    "load_state",
    "newest",
    "read_metrics",
    "read_recipe",
    "recipe_named",
    "save_state",
    "train",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "loop": ["Trainer", "train"],
        "model": ["initial_model"],
        "outcome": ["detector_of"],
        "recipe": ["RECIPES", "Recipe", "branched", "read_recipe", "recipe_named"],
        "run_folder": ["State", "load_state", "newest", "read_metrics", "save_state"],
        "samples": ["Lesson", "Lessons"],
    },
)
