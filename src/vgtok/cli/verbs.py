"""Groups of commands whose help is narrow: no type beside flags, and a flag and its opposite in one column."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Verb(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options, --help among them."""
        return _without_type_of_flags(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        with _opposites_in_one_column(self.params):
            super().format_help(ctx, formatter)


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


@contextmanager
def _opposites_in_one_column(parameters: list[Any]) -> Iterator[None]:
    """Show --yes and --no as --yes / --no: a column of the table for the few that have an opposite is too wide."""
    pairs = [(parameter, parameter.opts, parameter.secondary_opts) for parameter in parameters]
    for parameter, names, opposites in pairs:
        if opposites:
            parameter.opts, parameter.secondary_opts = [" / ".join((*names, *opposites))], []
    try:
        yield
    finally:
        for parameter, names, opposites in pairs:
            parameter.opts, parameter.secondary_opts = names, opposites
