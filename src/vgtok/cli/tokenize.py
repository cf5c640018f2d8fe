"""`vgtok tokenize`: files, folders and globs to overlays, npz and JSON; one bad file never stops the rest."""

import io
import json
from enum import StrEnum
from glob import glob, has_magic
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok.cli import options
from vgtok.data.dataset import images_in
from vgtok.errors import InputError, VGTokError
from vgtok.files import write_bytes, write_text
from vgtok.parallel import progress_bar
from vgtok.tokenize.images import read_image
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens


class Output(StrEnum):
    """What is written per image."""

    overlay = "overlay"
    npz = "npz"
    json = "json"


def tokenize(
    images: Annotated[list[str], typer.Argument(help="Image files, folders or globs.")],
    budget: options.Budget = None,
    percentile: options.Percentile = None,
    table: options.Table = None,
    rank: options.Rank = SHIPPED_RANK,
    scorer: options.ScorerName = "tophat",
    gate: options.GateName = "lambda_min",
    splitter: options.Splitter = "quadtree",
    canvas: options.CanvasOption = options.DEFAULT_CANVAS,
    write: Annotated[list[Output] | None, typer.Option(help="What to write per image; repeatable. [overlay]")] = None,
    out: options.Out = Path("vgtok-out"),
    json_: options.Json = False,
) -> None:
    """Partition images into 16, 32 and 64 px tokens at a budget (40% unless told otherwise)."""
    tokenizer = options.tokenizer_from(budget, percentile, table, rank, scorer, gate, splitter, canvas)
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    errors = Console(stderr=True, soft_wrap=True)

    def fail(image: str, error: VGTokError) -> None:
        failed.append({"image": image, "error": str(error)})
        errors.print(f"[bold red]error:[/] {escape(str(error))}")

    paths: list[Path] = []
    for argument in images:
        try:
            paths.extend(path for path in _expanded(argument) if path not in paths)
        except VGTokError as error:
            fail(argument, error)
    names = _output_names(paths)
    with progress_bar() as progress:
        for path in progress.track(paths, description="tokenizing"):
            try:
                done.append(_one(path, names[path], tokenizer, set(write or [Output.overlay]), out))
            except VGTokError as error:
                fail(str(path), error)
    if json_:
        print(json.dumps({"images": done, "failed": failed}))
    elif done:
        _print_summary(done, out)
    if failed:
        errors.print(f"{len(done)} images tokenized, {len(failed)} inputs could not be")
        raise typer.Exit(1)


def _expanded(argument: str) -> list[Path]:
    """The image files an argument stands for: itself, a folder's images, or what a glob matches."""
    path = Path(argument)
    if path.is_dir():
        return list(images_in(path))
    if has_magic(argument) and not path.exists():
        matches = sorted(glob(argument, recursive=True))
        if not matches:
            raise InputError(f"{argument}: matches no file")
        return [Path(match) for match in matches]
    return [path]


def _output_names(paths: list[Path]) -> dict[Path, str]:
    """A name per image for its results: its stem, with a number where two images share one."""
    taken: set[str] = set()
    names = {}
    for path in paths:
        name, number = path.stem, 2
        while name in taken:
            name, number = f"{path.stem}-{number}", number + 1
        taken.add(name)
        names[path] = name
    return names


def _one(path: Path, name: str, tokenizer: Tokenizer, outputs: set[Output], out: Path) -> dict[str, Any]:
    image = read_image(path)
    tokens = tokenizer(image)
    written = []
    for output in sorted(outputs):
        target = out / (f"{name}.tokens.png" if output == Output.overlay else f"{name}.tokens.{output}")
        if output == Output.json:
            write_text(target, tokens.to_json())
        else:
            write_bytes(target, _png(tokens, image) if output == Output.overlay else _npz(tokens))
        written.append(str(target))
    return {
        "image": str(path),
        "tokens": len(tokens),
        "dense": tokens.dense,
        "retained": tokens.retained,
        "counts": {str(size): count for size, count in tokens.counts().items()},
        "written": written,
    }


def _png(tokens: Tokens, image: Any) -> bytes:
    buffer = io.BytesIO()
    tokens.overlay(image).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def _npz(tokens: Tokens) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **tokens.to_arrays())  # type: ignore[arg-type]
    return buffer.getvalue()


def _print_summary(done: list[dict[str, Any]], out: Path) -> None:
    table = Table(title=f"tokens written to {out}", title_justify="left")
    for heading in ("image", "tokens", "of dense", "retained", "16 px", "32 px", "64 px"):
        table.add_column(heading, justify="left" if heading == "image" else "right")
    for row in done[:20]:
        counts = row["counts"]
        cells = (str(row["tokens"]), str(row["dense"]), f"{row['retained']:.2%}", *(str(counts[s]) for s in counts))
        table.add_row(escape(Path(row["image"]).name), *cells)
    console = Console()
    console.print(table)
    if len(done) > 20:
        console.print(f"... and {len(done) - 20} more")
