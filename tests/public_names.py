"""The public surface as plain text: every name of `vgtok` and of its packages, with signatures.

Run `python -m tests.public_names` after a deliberate change; it rewrites public_names.txt.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path

import vgtok

FILE = Path(__file__).with_name("public_names.txt")

FACADES = (
    "vgtok",
    *(
        f"vgtok.{path.parent.name}"
        for path in sorted(Path(vgtok.__file__).parent.glob("*/__init__.py"))
        if "__all__" in path.read_text(encoding="utf-8")
    ),
)
"""`vgtok` and each package that offers names of its own."""


def public_names() -> str:
    """Return one line per public name, method and property, facade by facade."""
    return "".join(f"{line}\n" for facade in FACADES for line in _facade_lines(facade))


def _facade_lines(facade: str) -> Iterator[str]:
    module = import_module(facade)
    for name in sorted(module.__all__):
        value = getattr(module, name)
        path = f"{facade}.{name}"
        if not inspect.isclass(value):
            yield f"{path}{_signature(value)}" if inspect.isroutine(value) else path
            continue
        yield f"{path}{_signature(value)}"
        # Members are listed once, under the package that defines the class.
        if facade != "vgtok":
            yield from _member_lines(path, value)


def _member_lines(path: str, kind: type) -> Iterator[str]:
    for name, member in sorted(vars(kind).items()):
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") and name != "__call__":
            continue
        if inspect.isfunction(function):
            yield f"  {path}.{name}{_signature(function)}"
        elif isinstance(member, property) or hasattr(member, "attrname"):
            yield f"  {path}.{name}"


def _signature(value: Callable[..., object]) -> str:
    """Return names, kinds and defaults of the parameters; annotations print differently in every Python."""
    if inspect.isclass(value) and (issubclass(value, Enum) or not {"__init__", "__new__"} & vars(value).keys()):
        return ""
    signature = inspect.signature(value)
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_ordered(parameter.default))
        for parameter in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    # Functions and objects among the defaults print the address they live at.
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _ordered(default: object) -> object:
    """Return a set as a sorted list: the order of its elements differs from process to process."""
    return sorted(default) if isinstance(default, frozenset) else default


if __name__ == "__main__":
    FILE.write_text(public_names(), encoding="utf-8")
