"""The model a run starts from: a saved one, made ready for the tokens of the recipe, or a new one."""

import os
from dataclasses import replace
from pathlib import Path

from vgtok.detect.config import detector_configuration
from vgtok.detect.loading import find_detector
from vgtok.detect.model import CoDetr
from vgtok.detect.saving import model_from_state
from vgtok.encode.embed import Fusion
from vgtok.encode.loading import load_weights
from vgtok.errors import InputError
from vgtok.tokenize.geometry import NODE, ROOT
from vgtok.train.recipe import CONVERTED, DENSE, Recipe


def initial_model(recipe: Recipe, names: tuple[str, ...]) -> CoDetr:
    """A saved model, or a new one whose encoder may start from a checkpoint."""
    if recipe.start:
        # Not on a GPU yet: every process would take the first one.
        model = find_detector(_start(recipe, names)).model
        if model.config.names != names:
            raise InputError(
                f"start: {recipe.start} knows other classes than the data; convert it with re-initialised classes"
            )
        return prepared(model, recipe)
    model = CoDetr(detector_configuration(recipe.detector, names=names, auxiliary=recipe.auxiliary))
    if recipe.encoder_weights:
        load_weights(model.encoder, _weights(recipe.encoder_weights), recipe.encoder_source)
    return model


def prepared(model: CoDetr, recipe: Recipe) -> CoDetr:
    """The model with all the recipe trains: a converted release gains the fusion of coarse tokens where it meets some.

    The fusion adds nothing until it is trained, so predictions do not change. Lessons hold no padded cells, so a model
    that was trained here is run without them.
    """
    config = model.config
    changes: dict[str, object] = {"grid_multiple": 1}
    state = model.state_dict()
    if min(recipe.budgets) < 1 and model.encoder.embedding.fusion is None:
        changes["fusion"] = (NODE,) if recipe.splitter == "single_pass" else (NODE, ROOT)
    config = replace(config, encoder_overrides={**config.encoder_overrides, **changes})
    if config.encoder_config() == model.encoder.config:
        return model
    if "fusion" in changes:
        fusion = Fusion(config.encoder_config()).state_dict()
        state |= {f"encoder.embedding.fusion.{name}": tensor for name, tensor in fusion.items()}
    return model_from_state(config, state, recipe.start)


def _start(recipe: Recipe, names: tuple[str, ...]) -> str:
    """A model as named, or of that name in the folder VGTOK_WEIGHTS names."""
    folder = os.environ.get("VGTOK_WEIGHTS")
    if Path(recipe.start).exists():
        return recipe.start
    if folder is not None and (Path(folder) / recipe.start).exists():
        return str(Path(folder) / recipe.start)
    if recipe.start == CONVERTED:
        raise InputError(
            f"start: {recipe.name} starts from a released Co-DETR ViT-L checkpoint, which is not part of this package; "
            f"convert one with \"vgtok convert co-detr released.pth {CONVERTED} --names '{','.join(names)}'\", or name "
            "another model with --set start=MODEL"
        )
    if recipe.start == DENSE:
        raise InputError(
            f"start: {recipe.name} starts from the dense model; train it with 'vgtok train {DENSE} --out RUN' and save "
            f"it with 'vgtok convert run RUN {DENSE}', or name another model with --set start=MODEL"
        )
    return recipe.start


def _weights(name: str) -> Path:
    """A file as named, or of that name in the folder VGTOK_WEIGHTS names."""
    path = Path(name)
    folder = os.environ.get("VGTOK_WEIGHTS")
    if not path.is_file() and not path.is_absolute() and folder is not None:
        path = Path(folder) / name
    if not path.is_file():
        raise InputError(
            f"encoder_weights: '{name}' is neither a file nor one in the folder VGTOK_WEIGHTS names; "
            "--set encoder_weights= starts from random weights"
        )
    return path
