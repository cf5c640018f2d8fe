"""Groups of commands whose help shows a type beside options that take a value, and none beside flags."""

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Verb(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, --help among them."""
        return _without_type_of_flags(super().get_params(ctx))


class VerbGroup(TyperGroup):
    """A command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, --help among them."""
        return _without_type_of_flags(super().get_params(ctx))


class Verbs(typer.Typer):
    """What commands are registered with."""

    def __init__(self, *, cls: type[TyperGroup] = VerbGroup, **settings: Any) -> None:
        super().__init__(cls=cls, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Function], _Function]:
        """Register a function as a command."""
        return super().command(name, cls=Verb, **settings)


def _without_type_of_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        # An empty name of the value: the framework would otherwise print <bool>.
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
