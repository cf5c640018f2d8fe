"""The initial model of a run: a saved model, extended for the tokens of the recipe, or a new one."""

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
    """Return a saved model, or a new one whose encoder may be loaded from a checkpoint."""
    if recipe.init_from:
        # Load to the CPU: on a GPU every process would take the first one.
        model = find_detector(_initial_weights(recipe, names)).model
        if model.config.names != names:
            raise InputError(
                f"init_from: {recipe.init_from} knows other classes than the data; convert it with --names"
            )
        return prepare_model(model, recipe)
    model = CoDetr(detector_configuration(recipe.detector, names=names, auxiliary=recipe.auxiliary))
    if recipe.encoder_weights:
        load_weights(model.encoder, _weights(recipe.encoder_weights), recipe.encoder_source)
    return model


def prepare_model(model: CoDetr, recipe: Recipe) -> CoDetr:
    """Return the model with every part the recipe trains; budgets below 1 add the fusion of coarse tokens.

    The fusion is initialized to zero, so predictions do not change. Training samples have no padded cells, so the
    trained model runs without them too.
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
    return model_from_state(config, state, recipe.init_from)


def _initial_weights(recipe: Recipe, names: tuple[str, ...]) -> str:
    """Return the model to start from: as named, or of that name in the folder VGTOK_WEIGHTS."""
    folder = os.environ.get("VGTOK_WEIGHTS")
    if Path(recipe.init_from).exists():
        return recipe.init_from
    if folder is not None and (Path(folder) / recipe.init_from).exists():
        return str(Path(folder) / recipe.init_from)
    if recipe.init_from == CONVERTED:
        raise InputError(
            f"init_from: {recipe.name} starts from a released Co-DETR ViT-L checkpoint, which is not part of "
            "this package; convert one with "
            f"\"vgtok convert co-detr released.pth {CONVERTED} --names '{','.join(names)}'\", "
            "or name another model with --set init_from=MODEL"
        )
    if recipe.init_from == DENSE:
        raise InputError(
            f"init_from: {recipe.name} starts from the dense model; train it with 'vgtok train {DENSE} --out RUN' and "
            f"save it with 'vgtok convert run RUN {DENSE}', or name another model with --set init_from=MODEL"
        )
    return recipe.init_from


def _weights(name: str) -> Path:
    """Return a weights file: as named, or of that name in the folder VGTOK_WEIGHTS."""
    path = Path(name)
    folder = os.environ.get("VGTOK_WEIGHTS")
    if not path.is_file() and not path.is_absolute() and folder is not None:
        path = Path(folder) / name
    if not path.is_file():
        raise InputError(
            f"encoder_weights: '{name}' is neither a file nor one in the folder VGTOK_WEIGHTS; "
            "--set encoder_weights= starts from random weights"
        )
    return path
