"""`vgtok tokenize` and `vgtok calibrate`: images to tokens, and data sets to retention tables.

A file that cannot be tokenized is reported in one line, and the others are still done.
"""

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import engines, options
from vgtok.cli.engines import EngineName, check_plain_reading, engine_from, plain_worker
from vgtok.cli.frames import Reading
from vgtok.cli.inputs import absolute_inputs, find_inputs, output_names, passed_over_text
from vgtok.cli.options import console_table, print_rows, said_when_interrupted
from vgtok.data.dataset import IMAGE_SUFFIXES, open_dataset
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import BudgetError, InputError, VGTokError
from vgtok.files import is_there, locked, stamp, write_bytes, write_text
from vgtok.journal import Journal, is_number
from vgtok.parallel import default_workers, progress_bar
from vgtok.runs import run_folder
from vgtok.slicing.frames import ArrayFrame, Frame, fit_frame, partition_frame
from vgtok.slicing.windows import LARGEST_WHOLE
from vgtok.tokenize.calibrate import RANKS, Sweep, measure_table
from vgtok.tokenize.retention import RetentionTable
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    from vgtok.slicing.stream import StreamBudget

_SHOWN_BUDGETS = (0.8, 0.7, 0.6, 0.4, 0.2)


class Output(StrEnum):
    """Files written per image; `overlay` is the name that `picture` had up to version 0.2."""

    picture = "picture"
    overlay = "overlay"
    npz = "npz"
    json = "json"


def tokenize(
    images: Annotated[list[str], typer.Argument(help="Image files, folders or globs.")],
    budget: options.Budget = None,
    budget_over: options.BudgetOverOption = options.BudgetOver.image,
    percentile: options.Percentile = None,
    table: options.Table = None,
    rank: options.Rank = SHIPPED_RANK,
    scorer: options.ScorerName = "tophat",
    gate: options.GateName = "lambda_min",
    splitter: options.Splitter = "quadtree",
    canvas: options.FrameCanvas = None,
    windows_over: options.WindowsOver = LARGEST_WHOLE,
    bands: options.Bands = None,
    value_range: options.ValueRange = None,
    write: Annotated[
        list[Output] | None,
        typer.Option(metavar="OUTPUT", help="Per image: picture (default; with ray none), npz or json; repeatable."),
    ] = None,
    recursive: options.Recursive = False,
    out: options.Out = None,
    engine: engines.EngineOption = EngineName.local,
    address: engines.Address = None,
    workers: engines.Workers = None,
    worker: engines.WorkerSize = None,
    shards: engines.Shards = None,
    shard_frames: engines.ShardFrames = None,
    json_: options.Json = False,
) -> None:
    """Partition images into tokens of 16, 32 and 64 px, at a budget of 40% by default; the same command resumes."""
    cluster = engine_from(
        engine,
        plain_worker,
        address=address,
        workers=workers,
        worker=worker,
        shards=shards,
        shard_frames=shard_frames,
    )
    reading = Reading.of(canvas, windows_over, bands, value_range)
    fitted = reading.fitted(DEFAULT_CANVAS)
    tokenizer = options.tokenizer_from(budget, percentile, table, rank, scorer, gate, splitter, fitted)
    streamed = budget_over is options.BudgetOver.stream
    if streamed and tokenizer.budget is None:
        raise InputError("--budget-over: a stream needs --budget, without --percentile and --table")
    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    errors = Console(stderr=True, soft_wrap=True)

    def fail(image: str, error: str) -> None:
        failed.append({"image": image, "error": error})
        errors.print(f"[bold red]error:[/] {escape(error)}")

    outputs: set[Output] = {Output.picture if name is Output.overlay else name for name in write or []}
    if cluster is not None:
        from vgtok.cli.scaled import tokenize_frames

        fits = isinstance(reading.canvas, tuple) or reading.canvas == "native"
        unread = {name: value for name, value in reading.settings().items() if name != "canvas" or not fits}
        check_plain_reading(unread, *(["budget_over"] if streamed else []))

        tokenize_frames(
            images,
            tokenizer,
            None if fits else LARGEST_WHOLE,
            outputs,
            cluster,
            shards,
            shard_frames,
            out,
            failed,
            fail,
            recursive=recursive,
            json_=json_,
        )
        return
    found = find_inputs(images, IMAGE_SUFFIXES, fail, recursive=recursive)
    if said := passed_over_text(found.passed_over):
        errors.print(f"[yellow]{escape(said)}[/]", highlight=False)
    if found.files:
        outputs = outputs or {Output.picture}
        settings = {**asdict(tokenizer), **reading.settings(), "write": sorted(outputs)}
        # Only if asked for, so that runs of earlier versions resume.
        settings |= {"budget_over": "stream"} if streamed else {}
        if out is None:
            out = run_folder("tokenize", absolute_inputs(images), {**settings, "recursive": recursive})
        with locked(out / ".vgtok-lock", out):
            _tokenize_all(found.files, _Job(tokenizer, settings, outputs, out, reading), done, fail)
    if json_:
        print(json.dumps({"out": out and str(out), "images": done, "failed": failed, "passed_over": found.passed_over}))
    elif done:
        assert out is not None
        _print_summary(done, out)
    if failed:
        errors.print(f"{len(done)} images tokenized, {len(failed)} inputs could not be")
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Job:
    """One run of the command: the tokenizer, the settings that results depend on, the outputs and their folder."""

    tokenizer: Tokenizer
    settings: Mapping[str, Any]
    outputs: set[Output]
    out: Path
    reading: Reading


def _tokenize_all(
    paths: Sequence[Path], job: _Job, done: list[dict[str, Any]], fail: Callable[[str, str], None]
) -> None:
    """Tokenize the files that are not in the journal of the folder; add the row of every file to `done`."""
    journal = Journal(job.out / "journal.jsonl", job.settings, _is_row)
    names = output_names(paths)
    stream = _stream(job, journal)

    def kept() -> str:
        return f"{len(done)} of {len(paths)} images are finished and kept in {job.out}; run the same command to go on"

    with said_when_interrupted(kept), progress_bar() as progress:
        for path in progress.track(paths, description="tokenizing"):
            item = str(path.absolute())
            entry = journal.entries.get(item)
            try:
                if (
                    entry is None
                    or entry["stamp"] != stamp(path)
                    or not all(map(is_there, map(Path, entry["written"])))
                ):
                    seen = stamp(path)
                    entry = {**_tokenize_file(path, names[path], job, stream), "stamp": seen}
                    journal.add(item, entry)
                done.append({key: value for key, value in entry.items() if key not in ("item", "stamp")})
            except VGTokError as error:
                fail(str(path), str(error))
            except MemoryError:
                fail(str(path), f"{path}: not enough memory")


def _is_row(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of the journal has what the summary shows; a damaged one may lack any field."""
    written, counts = entry.get("written"), entry.get("counts")
    return (
        all(is_number(entry.get(key)) for key in ("tokens", "dense", "retained"))
        and isinstance(entry.get("image"), str)
        and isinstance(written, list)
        and all(isinstance(file, str) for file in written)
        and isinstance(counts, dict)
        and "stamp" in entry
    )


def _stream(job: _Job, journal: Journal) -> "StreamBudget | None":
    """Return the budget over the stream that the journal begins; None if each image has its own."""
    if "budget_over" not in job.settings:
        return None
    from vgtok.slicing.stream import StreamBudget

    assert job.tokenizer.budget is not None
    stream = StreamBudget(job.tokenizer.budget, tokenizer=job.tokenizer)
    for entry in journal.entries.values():
        stream.book(entry["retained"])
    return stream


def _tokenize_file(path: Path, name: str, job: _Job, stream: "StreamBudget | None") -> dict[str, Any]:
    with job.reading.opened(path) as frame:
        windowed = job.reading.windows(frame, DEFAULT_CANVAS) is not None
        tokens = _tokens(frame, path, job.tokenizer, stream, windowed=windowed)
        picture = frame.picture() if Output.picture in job.outputs else None
    return {
        "image": str(path),
        "canvas": "windows" if windowed else f"{tokens.width} x {tokens.height}",
        "tokens": len(tokens),
        "dense": tokens.dense,
        "retained": tokens.retained,
        "counts": {str(size): count for size, count in tokens.counts().items()},
        "written": write_tokens(tokens, picture, name, job.outputs, job.out),
    }


def write_tokens(tokens: Tokens, image: Any, name: str, outputs: Iterable[Output], out: Path) -> list[str]:
    """Write the files of one image as `name`, and return their names."""
    written = []
    for output in sorted(outputs):
        target = out / (f"{name}.tokens.png" if output is Output.picture else f"{name}.tokens.{output}")
        if output is Output.json:
            write_text(target, tokens.to_json())
        else:
            write_bytes(target, _png(tokens, image) if output is Output.picture else _npz(tokens))
        written.append(str(target))
    return written


def _tokens(frame: Frame, path: Path, tokenizer: Tokenizer, stream: "StreamBudget | None", *, windowed: bool) -> Tokens:
    if isinstance(frame, ArrayFrame) and not windowed:
        return tokenizer(frame.pixels) if stream is None else stream(frame.pixels)
    if stream is not None:
        # A large frame is looked at coarsely for its share.
        tokenizer = replace(tokenizer, budget=stream.share(frame.picture()))
    try:
        return (partition_frame(frame, tokenizer) if windowed else fit_frame(frame, tokenizer)[1]).tokens
    except VGTokError as error:
        raise InputError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None


def _png(tokens: Tokens, image: Any) -> bytes:
    buffer = io.BytesIO()
    tokens.overlay(image).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def _npz(tokens: Tokens) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **tokens.to_arrays())  # type: ignore[arg-type]
    return buffer.getvalue()


def _print_summary(done: list[dict[str, Any]], out: Path) -> None:
    rows = [
        (
            Path(row["image"]).name + ("\nby windows" if row.get("canvas") == "windows" else ""),
            str(row["tokens"]),
            str(row["dense"]),
            f"{row['retained']:.2%}",
            *(str(count) for count in row["counts"].values()),
        )
        for row in done
    ]
    columns = ("image", "tokens", "of dense", "retained", "16 px", "32 px", "64 px")
    print_rows(f"tokens written to {out}", columns, rows)


def calibrate(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="JSON file to write the table to.")] = Path("retention.json"),
    name: Annotated[str | None, typer.Option(help="Name of the table (default: the file name).")] = None,
    scorer: Annotated[list[str] | None, typer.Option(help="Scores to measure; repeatable (default: tophat).")] = None,
    rank: Annotated[
        list[float] | None, typer.Option(help="Gate ranks to measure; repeatable (default: 0 to 0.4).")
    ] = None,
    canvas: options.CanvasOption = options.CANVAS_TEXT,
    workers: options.Workers = None,
    engine: engines.EngineOption = EngineName.local,
    address: engines.Address = None,
    worker: engines.WorkerSize = None,
    shards: engines.Shards = None,
    shard_frames: engines.ShardFrames = None,
    json_: options.Json = False,
) -> None:
    """Measure the share of tokens each percentile keeps. Run the same command to resume."""
    sweep = Sweep(tuple(scorer or ["tophat"]), tuple(rank or RANKS), canvas=options.canvas_size(canvas))
    cluster = engine_from(
        engine, plain_worker, address=address, worker=worker, shards=shards, shard_frames=shard_frames
    )
    if cluster is not None:
        from vgtok.cli.scaled import calibrate_frames

        cluster = replace(cluster, workers=workers)
        table = calibrate_frames(data, name or out.stem, sweep, out, cluster, shards, shard_frames)
    else:
        dataset = open_dataset(data)
        journal = f"{out}.partial"
        with said_when_interrupted(lambda: f"measured images are kept in {journal}; run the same command to go on"):
            table = measure_table(
                name or out.stem, dataset.images, dataset.name, sweep, out, workers or default_workers()
            )
    if json_:
        print(json.dumps(asdict(table)))
    else:
        _print_table(table, out)


def _print_table(table: RetentionTable, out: Path) -> None:
    rows = []
    for curve in table.curves:
        cells = []
        for budget in _SHOWN_BUDGETS:
            try:
                cells.append(f"{curve.percentile_for(budget):.2f}")
            except BudgetError:
                cells.append("-")
        rows.append((curve.scorer, f"{curve.rank:g}", *cells))
    title = f"percentile per budget, {table.measured_on['images']} images, written to {out}"
    console = Console()
    console.print(console_table(title, ("scorer", "gate rank", *(f"{budget:.0%}" for budget in _SHOWN_BUDGETS)), rows))
    if any("-" in row for row in rows):
        console.print("-: no percentile reaches this budget at this gate rank", highlight=False)
