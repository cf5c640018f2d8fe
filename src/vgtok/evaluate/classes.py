"""Which class of a model stands for which class of the data: by name, or as the user says."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError

ClassMap = Mapping[str, Sequence[str]]
"""Classes of a model by the class of the data they stand for."""


def parse_class_map(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parse texts like 'vehicle=car+van': a class of the data and the classes of the model that stand for it."""
    parsed: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, listed = (part.strip() for part in text.partition("="))
        members = tuple(part.strip() for part in listed.split("+"))
        if not (name and equals and all(members)):
            raise InputError(f"--map: '{text}' is not DATA=MODEL or DATA=MODEL+MODEL, e.g. vehicle=car+van")
        parsed[name] = (*parsed.get(name, ()), *members)
    return parsed


def label_map(
    model_names: Sequence[str], data_names: Sequence[str], class_map: ClassMap | None = None
) -> NDArray[np.int64]:
    """Return (K,), for each class of a model, the label of the data's class it stands for, or -1.

    Classes that `class_map` does not mention stand for the class of their own name.
    """
    known, members = _numbered(data_names), _numbered(model_names)
    labels = np.array([known.get(_plain(name), -1) for name in model_names], dtype=np.int64)
    mapped: dict[int, str] = {}
    for name, listed in (class_map or {}).items():
        if _plain(name) not in known:
            raise InputError(f"--map: '{name}' is not a class of the data, which has {_shown(data_names)}")
        for member in listed:
            if _plain(member) not in members:
                raise InputError(f"--map: '{member}' is not a class of the model, which has {_shown(model_names)}")
            place = members[_plain(member)]
            if mapped.setdefault(place, name) != name:
                raise InputError(f"--map: '{member}' stands for both '{mapped[place]}' and '{name}'; leave one out")
            labels[place] = known[_plain(name)]
    return labels


def named_map(
    labels: NDArray[np.int64], model_names: Sequence[str], data_names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the classes of the model behind each class of the data that has any, from (K,) labels."""
    members = {
        name: tuple(model_names[place] for place in np.flatnonzero(labels == label).tolist())
        for label, name in enumerate(data_names)
    }
    return {name: listed for name, listed in members.items() if listed}


def map_text(class_map: ClassMap) -> str:
    """Return a mapping in one line; a class that stands for its own name is listed by it."""
    parts = (
        name if [_plain(member) for member in members] == [_plain(name)] else f"{name} = {' + '.join(members)}"
        for name, members in class_map.items()
    )
    return ", ".join(parts)


def _numbered(names: Sequence[str]) -> dict[str, int]:
    return {_plain(name): number for number, name in enumerate(names)}


def _plain(name: str) -> str:
    """Return a class name without case, hyphens and underscores, in which spellings differ."""
    return name.lower().replace("-", " ").replace("_", " ").strip()


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "")
