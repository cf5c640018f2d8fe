"""The `vgtok` command: all subcommands, with expected errors printed as one line and exit code 1."""

import io
import sys
import warnings
from typing import TextIO

import typer
from rich.console import Console
from rich.markup import escape

from vgtok import __version__
from vgtok.cli import bench, convert, detect, evaluate, hosts, models, serve, slice, study, tokenize, train
from vgtok.cli.verbs import Verbs
from vgtok.errors import RunInterruptedError, VGTokError, missing_package

app = Verbs(pretty_exceptions_enable=False, rich_markup_mode="rich")
app.command("tokenize")(tokenize.tokenize)
app.command("calibrate")(tokenize.calibrate)
app.command("detect")(detect.detect)
app.command("slice")(slice.slice_)
app.command("evaluate")(evaluate.evaluate)
app.command("train")(train.train)
app.command("finetune")(train.finetune)
app.command("models")(models.models)
app.command("hosts")(hosts.hosts)
app.add_typer(convert.app, name="convert")
app.add_typer(convert.export_app, name="export")
app.add_typer(bench.app, name="bench")
app.command("study")(study.study)
app.command("sample")(models.sample)
app.command("serve")(serve.serve)


@app.callback(invoke_without_command=True)
def _version(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    """Tokenize, detect, train and evaluate on large images at a token budget."""
    if version:
        print(__version__)
        raise typer.Exit


def run() -> None:
    """Run the command line; an expected error is one line on standard error."""
    # File names may not be valid text; escape what cannot be printed.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                # Also for `python -m vgtok`: completion is installed for the command.
                app(prog_name="vgtok")
        except ModuleNotFoundError as error:
            raise missing_package(error) from None
    except RunInterruptedError as error:
        Console(stderr=True, soft_wrap=True).print(escape(str(error)), highlight=False)
        sys.exit(130)
    except VGTokError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, as errors are: its place in the code says nothing to users."""
    Console(stderr=True, soft_wrap=True).print(f"[yellow]warning:[/] {escape(str(message))}", highlight=False)
