"""The errors a caller can be expected to handle, and the check of configurations that raises them.

Every message names the input, what is wrong with it and what to do.
"""

from collections.abc import Sequence
from dataclasses import fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class VGTokError(Exception):
    """Base class of all errors of this library."""


class InputError(VGTokError, ValueError):
    """An argument, file or array cannot be used as given."""


class BudgetError(InputError):
    """A token budget lies outside what the chosen tokenizer can reach."""


class RunInterruptedError(VGTokError):
    """A run was interrupted and has saved its state."""


_EXTRAS = {
    "torch": "detect",
    "scipy": "detect",
    "safetensors": "detect",
    "transformers": "hosts",
    "ray": "scale",
    "pyarrow": "scale",
    "fsspec": "scale",
}
"""The extra that installs each package `pip install vgtok` leaves out."""


def missing_package(error: ModuleNotFoundError) -> Exception:
    """Return the error to raise for a package that is not installed, naming the extra that installs it."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return error
    return VGTokError(f"{package} is not installed; pip install 'vgtok[{_EXTRAS[package]}]'")


# Fields of a configuration against the types they declare: JSON files and command lines hold anything.

_LARGEST = 2**31
_EXPECTED = {int: "a whole number, 0 or more", float: "a finite number", str: "text", bool: "true or false"}


def check_fields(config: "DataclassInstance", *, positive: Sequence[str] = ()) -> None:
    """Raise InputError for the first field of a dataclass that is not of its type or, if in `positive`, not above 0."""
    kinds = get_type_hints(type(config))
    for name in (item.name for item in fields(config)):
        value = getattr(config, name)
        if not _fits(value, kinds[name]):
            raise InputError(f"{name}: {_shown(value)} is not {_expected(kinds[name])}")
        if name in positive and value <= 0:
            raise InputError(f"{name}: {_shown(value)} is not above 0")


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _EXPECTED.get(kind, "of the kind it must be")


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return isinstance(value, str | int) and value in inner
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        expected = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return len(value) == len(expected) and all(map(_fits, value, expected))
    if origin is dict:
        return isinstance(value, dict) and all(isinstance(key, str) for key in value)
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < _LARGEST
    if kind is float:
        # An integer may be too large for a float.
        if isinstance(value, Integral) and abs(int(value)) > _LARGEST:
            return False
        return isinstance(value, Real) and not isinstance(value, bool) and abs(float(value)) < 1e300
    return isinstance(value, NoneType if kind is None else kind)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
