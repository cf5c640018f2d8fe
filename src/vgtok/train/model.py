"""The model a run starts from."""

import os
from pathlib import Path

from vgtok.detect.hub import load
from vgtok.detect.model import CoDetr
from vgtok.detect.registry import detector_configuration
from vgtok.encode.loading import load_weights
from vgtok.errors import InputError
from vgtok.train.recipe import Recipe


def initial_model(recipe: Recipe, names: tuple[str, ...]) -> CoDetr:
    """A saved model, or a new one whose encoder may start from a checkpoint."""
    if recipe.start:
        model = load(recipe.start).model
        if model.config.names != names:
            raise InputError(
                f"start: {recipe.start} knows other classes than the data; convert it with re-initialised classes"
            )
        return model
    model = CoDetr(detector_configuration(recipe.detector, names=names, auxiliary=recipe.auxiliary))
    if recipe.encoder_weights:
        load_weights(model.encoder, _weights(recipe.encoder_weights), recipe.encoder_source)
    return model


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
