"""Give a detector other classes: those it knows keep their weights, new ones are initialized."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from vgtok.detect.config import DetectorConfig
from vgtok.detect.model import CoDetr
from vgtok.detect.saving import model_from_state
from vgtok.errors import InputError


def match_classes(
    names: tuple[str, ...], known: tuple[str, ...], mapping: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return, for each of `names` that a model of the classes `known` can start from, the class it starts from.

    `mapping` sends a name to a known class, as in {"minibus": "van"}; other names match regardless of case.
    """
    mapping = mapping or {}
    if unknown := [name for name in mapping if name not in names]:
        raise InputError(f"map: {', '.join(unknown)} is not a class of the data; there are {', '.join(names)}")
    if unknown := [old for old in mapping.values() if old not in known]:
        raise InputError(f"map: {', '.join(unknown)} is not a class of the model; there are {', '.join(known)}")
    by_plain_name = {name.casefold(): name for name in known}
    found = {name: mapping.get(name) or by_plain_name.get(name.casefold()) for name in names}
    return {name: old for name, old in found.items() if old is not None}


def with_classes(model: CoDetr, names: tuple[str, ...], matched: Mapping[str, str]) -> CoDetr:
    """Return the model with the classes `names`; each of `matched` takes over the weights of a class of the model.

    All other weights are the same tensors.
    """
    config = replace(model.config, names=names)
    state = dict(model.state_dict())
    places = {name: place for place, name in enumerate(model.config.names)}
    rows = [places[matched[name]] if name in matched else None for name in names]
    fresh = _head_state(config)
    for name, axis in _class_axes(config).items():
        state[name] = _moved(state[name], fresh[name], axis, rows, model.config.classes)
    return model_from_state(config, state, "classes")


def _moved(old: Tensor, fresh: Tensor, axis: int, rows: list[int | None], classes: int) -> Tensor:
    """Return `fresh` with the rows of known classes from `old`; rows after the classes, background, move too."""
    new = fresh.clone()
    for place, row in enumerate(rows):
        if row is not None:
            new.select(axis, place).copy_(old.select(axis, row))
    for extra in range(old.shape[axis] - classes):
        new.select(axis, len(rows) + extra).copy_(old.select(axis, classes + extra))
    return new


def _class_axes(config: DetectorConfig) -> dict[str, int]:
    """Return the tensors of a detector that have a row for each class, with the axis of the rows."""
    shapes = []
    for names in (config.names, (*config.names, "one more")):
        with torch.device("meta"):
            shapes.append({name: t.shape for name, t in CoDetr(replace(config, names=names)).state_dict().items()})
    return {
        name: next(axis for axis, (one, two) in enumerate(zip(shape, shapes[1][name], strict=True)) if one != two)
        for name, shape in shapes[0].items()
        if shape != shapes[1][name]
    }


def _head_state(config: DetectorConfig) -> dict[str, Tensor]:
    """Return newly initialized heads; they do not depend on the encoder, so the smallest one is built with them."""
    return CoDetr(replace(config, encoder="vit-tiny", encoder_overrides={"depth": 1})).state_dict()
