"""`--engine ray`: the options that choose a cluster, the frames that arguments stand for, and the progress of a run."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vgtok.cli.inputs import Found, find_inputs
from vgtok.errors import InputError, VGTokError

if TYPE_CHECKING:
    from vgtok.scale.cluster import Engine, Worker
    from vgtok.scale.frames import Frame, Piece
    from vgtok.scale.shards import Receipt, ShardRun

_LINE_EVERY = 30.0
"""Seconds between two lines of progress where standard error is a file."""

_RECENT = 60.0
"""Seconds for which a worker counts as at work after its last shard."""


class EngineName(StrEnum):
    """Where a command runs: in this process, or on workers of Ray, here or on a cluster."""

    local = "local"
    ray = "ray"


EngineOption = Annotated[EngineName, typer.Option("--engine", help="local, or ray: workers here or on a cluster.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help="With ray: local (default), auto, HOST:PORT or ray://HOST:PORT."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="With ray: number of workers (default: all that fit).")]
WorkerSize = Annotated[
    str | None,
    typer.Option("--worker", metavar="SIZE", help="With ray: size of one worker, as cpus=1,memory=4GB; also gpus=0.5."),
]
Shards = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help="With ray: folder or address of the parquet files (default: OUT/shards)."),
]
ShardFrames = Annotated[
    int | None, typer.Option(min=1, help="With ray: frames per parquet file (default: by their number, up to 512).")
]


def engine_from(
    engine: EngineName,
    default: Callable[[], "Worker"],
    *,
    address: str | None,
    worker: str | None,
    workers: int | None = None,
    **others: object,
) -> "Engine | None":
    """Return the engine of the options, None for the local one; `others` go with ray too."""
    if engine is EngineName.local:
        given = {"address": address, "workers": workers, "worker": worker, **others}
        named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
        if named:
            raise InputError(f"{named[0]}: goes with --engine ray")
        return None
    from vgtok.scale.cluster import LOCAL, Engine, Worker, imported_ray

    # Before anything is read: it says what to install.
    imported_ray()
    return Engine(address or LOCAL, workers, Worker.parse(worker or "", default()))


def check_plain_reading(settings: Mapping[str, Any], *others: str) -> None:
    """Refuse what only the local engine does: other ways to read frames, budgets over a stream, geo files."""
    for name in (*settings, *others):
        raise InputError(f"--engine ray: does not take '{name.replace('_', '-')}'; run it with --engine local")


def plain_worker() -> "Worker":
    """Return the size of a worker that runs no model."""
    from vgtok.scale.cluster import Worker

    return Worker()


def model_worker() -> "Worker":
    """Return the size of a worker that runs a model."""
    from vgtok.scale.tasks import DETECT_WORKER

    return DETECT_WORKER


def find_pieces(
    arguments: Sequence[str],
    suffixes: Iterable[str],
    fail: Callable[[str, str], None],
    names: Callable[[Sequence[Path]], Mapping[Path, str]],
    *,
    recursive: bool,
) -> tuple[list["Piece"], Found]:
    """Return the frames of arguments that may also be addresses, lists and parquet files.

    `names` gives the files of this machine their names in results. Report an argument that stands for nothing to
    `fail`, with the reason.
    """
    from vgtok.scale.places import PARQUET, is_address, listed, mark
    from vgtok.scale.sources import LIST, frames_in

    found = Found()
    places: list[tuple[str, str]] = []
    for argument in arguments:
        if is_address(argument):
            try:
                places.extend(listed(argument, recursive=recursive))
            except VGTokError as error:
                fail(argument, str(error))
            continue
        one = find_inputs([argument], {*suffixes, PARQUET}, fail, recursive=recursive)
        fresh = [path for path in one.files if path not in set(found.files)]
        found.files.extend(fresh)
        found.passed_over.update(one.passed_over)
        places.extend((str(path), mark(str(path))) for path in fresh)
    shown = names([path for path in found.files if path.suffix.lower() not in (PARQUET, LIST)])
    labels: set[str] = set()
    pieces: list[Piece] = []
    for place, changed in places:
        try:
            pieces.extend(frames_in(place, changed, labels, shown.get(Path(place))))
        except VGTokError as error:
            fail(place, str(error))
    return pieces, found


def image_pieces(images: Sequence[Path]) -> "list[Frame]":
    """Return the images of a data set as frames, named by their paths."""
    from vgtok.scale.frames import Frame
    from vgtok.scale.places import mark, settled

    return [Frame(str(path), settled(str(path)), path.stem, mark(str(path))) for path in images]


@contextmanager
def shard_progress(label: str, frames: int) -> Iterator[Callable[["Receipt"], None]]:
    """Show frames done, frames per second, workers and failures; yield what hears of each shard.

    On a terminal it is a bar, elsewhere a line every half minute.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True, soft_wrap=True)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{label}: starting workers", total=frames)
        seen: dict[str, float] = {}
        done = failed = 0
        began: float | None = None
        line = time.monotonic()

        def hear(receipt: "Receipt") -> None:
            nonlocal done, failed, began, line
            began = min(receipt.began, began or receipt.began)
            done, failed = done + receipt.frames, failed + receipt.failed
            seen[receipt.worker] = receipt.ended
            working = sum(receipt.ended - last < _RECENT for last in seen.values())
            rate = done / max(receipt.ended - began, 1e-3)
            text = f"{label}: {rate:.1f} per s, {working} workers, {failed} failed"
            progress.update(task, completed=done, description=text)
            if not console.is_terminal and time.monotonic() - line > _LINE_EVERY:
                line = time.monotonic()
                console.print(f"{text}, {done} of {frames} frames", highlight=False)

        yield hear


def run_text(run: "ShardRun") -> str:
    """Return one line on how a run went."""
    parts = [
        f"{run.frames} frames in {len(run.files)} shards",
        f"{run.frames_per_second:.1f} per s with {run.workers} workers after {run.startup_s:.1f} s of start-up",
        f"{run.failed} failed",
    ]
    if run.resumed:
        parts.append(f"{run.resumed} finished before")
    return ", ".join(parts)


def print_document(fields: Mapping[str, Any], name: str, rows: Iterable[Any], after: Mapping[str, Any]) -> None:
    """Print a JSON object as `json.dumps` does, but its field `name`, a long list, row by row."""
    sys.stdout.write(f"{json.dumps(dict(fields))[:-1]}, {json.dumps(name)}: [")
    for number, row in enumerate(rows):
        sys.stdout.write(f"{', ' if number else ''}{json.dumps(row)}")
    sys.stdout.write(f"], {json.dumps(dict(after))[1:]}\n")
