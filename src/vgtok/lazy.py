"""Import the public names of a package on first use, so that importing the package itself is fast."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from sys import modules


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package; `homes` lists the public names of each of its modules."""
    home_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        try:
            value = getattr(import_module(home_of[name]), name)
        except ModuleNotFoundError as error:
            from vgtok.errors import missing_package

            raise missing_package(error) from None
        setattr(modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(modules[package]), *home_of})
