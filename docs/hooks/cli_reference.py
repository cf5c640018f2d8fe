"""The page of every verb and option, from the command line's own parser: it cannot say what the parser does not."""

from collections.abc import Iterator
from html import escape
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from vgtok.cli.main import app

PAGE = "reference/command-line.md"

_HEAD = """# Command line

Every verb takes `--help`, and most take `--json` for machines. What goes wrong with an input is one line on standard
error and exit code 1.

"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, PAGE, content=command_line()))
    return files


def command_line() -> str:
    """A section per verb: what it does, how it is called, its arguments and options."""
    return _HEAD + "\n".join(_section(name, command) for name, command in _verbs("vgtok", typer.main.get_command(app)))


def _verbs(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words it is called by."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, inner in command.commands.items():
        yield from _verbs(f"{name} {word}", inner)


def _section(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f"## {name}", "", command.help or "", "", "```console", f"$ {usage}", "```", ""]
    rows = [_row(parameter, context) for parameter in command.params]
    return "\n".join([*lines, "| Option | | Default |", "|---|---|---|", *rows, ""])


def _row(parameter: Any, context: typer.Context) -> str:
    called, text = parameter.get_help_record(context)
    # What stands in brackets after the sentence has a column of its own.
    text, _, default = text.removesuffix("]").partition("[") if text.endswith("]") else (text, "", "")
    cells = (escape(called), escape(text.strip()), escape(default.removeprefix("default: ")))
    # As an entity, a bar does not end the cell of a table.
    called, text, default = (cell.replace("|", "&#124;") for cell in cells)
    return f"| <code>{called}</code> | {text} | {default} |"
