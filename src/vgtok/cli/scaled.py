"""The verbs with `--engine ray`: frames to shards on a cluster, and shards to the files and tables of one machine."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli.detections import PARTS, Job, write_coco, write_csv
from vgtok.cli.detections import Output as DetectOutput
from vgtok.cli.engines import find_pieces, image_pieces, print_document, run_text, shard_progress
from vgtok.cli.inputs import absolute_inputs, passed_over_text
from vgtok.cli.options import console_table, said_when_interrupted
from vgtok.cli.tokenize import Output, write_tokens
from vgtok.data.dataset import IMAGE_SUFFIXES, AnnotatedDataset, open_dataset
from vgtok.defaults import DEFAULT_TOKENIZER
from vgtok.detect.result import record
from vgtok.errors import InputError
from vgtok.evaluate.detections import FrameFound, Run, gather_run
from vgtok.files import locked
from vgtok.runs import run_folder
from vgtok.scale.cluster import Engine
from vgtok.scale.frames import Frame, Piece, count_frames
from vgtok.scale.places import PARQUET, is_address
from vgtok.scale.shards import ShardRun, run_shards
from vgtok.scale.sources import LIST, find_frames
from vgtok.scale.tasks import DetectTask, Pixels, Row, ScoreTask, SweepTask, Task, TokenizeTask
from vgtok.slicing.frames import ArrayFrame
from vgtok.slicing.windows import LARGEST_WHOLE
from vgtok.tokenize.calibrate import Sweep, merged_table
from vgtok.tokenize.retention import RetentionTable
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vgtok.detect.detector import Detector
    from vgtok.detect.result import Result
    from vgtok.export.runtime import OnnxDetector

_SHOWN = 20
Fail = Callable[[str, str], None]


def run_verb(
    label: str,
    task: Task,
    pieces: Sequence[Piece],
    place: str,
    engine: Engine,
    shard_frames: int | None,
    settings: Mapping[str, Any] | None = None,
) -> ShardRun:
    """Run a task over frames with progress for people; say what is kept if it is interrupted."""

    def kept() -> str:
        return f"finished shards are kept in {place}; run the same command to go on"

    with said_when_interrupted(kept), shard_progress(label, count_frames(pieces)) as tell:
        return run_shards(task, pieces, place, engine, settings=settings, shard_frames=shard_frames, tell=tell)


@dataclass(frozen=True)
class WrittenTokens:
    """Writes the files of `vgtok tokenize --write` in a worker."""

    outputs: frozenset[Output]
    out: Path

    def __call__(self, frame: Frame, pixels: Pixels, tokens: Tokens) -> list[str]:
        """Write the files of one frame, and return their names."""
        return write_tokens(tokens, pixels, frame.label, self.outputs, self.out)


def tokenize_frames(
    images: Sequence[str],
    tokenizer: Tokenizer,
    longest: int | None,
    outputs: set[Output],
    engine: Engine,
    shards: str | None,
    shard_frames: int | None,
    out: Path | None,
    failed: list[dict[str, str]],
    fail: Fail,
    *,
    recursive: bool,
    json_: bool,
) -> None:
    """Run `vgtok tokenize` on a cluster."""
    pieces, passed_over = _pieces(images, fail, lambda paths: {path: str(path) for path in paths}, recursive=recursive)
    settings = {"write": sorted(outputs)}
    if not pieces:
        raise typer.Exit(1)
    if out is None:
        out = run_folder(
            "tokenize", _absolute(images), {**asdict(tokenizer), **settings, "recursive": recursive, "engine": "ray"}
        )
    with locked(out / ".vgtok-lock", out):
        files = WrittenTokens(frozenset(outputs), out.absolute()) if outputs else None
        task = TokenizeTask(tokenizer, files, longest)
        run = run_verb("tokenizing", task, pieces, shards or str(out / "shards"), engine, shard_frames, settings)

        def done() -> Iterator[Row]:
            counts = ("size_16", "size_32", "size_64")
            for row in run.rows(["frame", "error", "width", "height", "tokens", "dense", *counts, "written"]):
                if row["error"] is None:
                    yield {
                        "image": row["frame"],
                        "canvas": f"{row['width']} x {row['height']}",
                        "tokens": row["tokens"],
                        "dense": row["dense"],
                        "retained": row["tokens"] / row["dense"],
                        "counts": {name.removeprefix("size_"): row[name] for name in counts},
                        "written": row["written"],
                    }

        _tell_failures(run, failed, fail, "image")
        if json_:
            after = {"failed": failed, "passed_over": passed_over, "scale": run.to_dict()}
            print_document({"out": str(out)}, "images", done(), after)
        else:
            _print_tokens(done(), run, out)
    _end(run, failed)


def _print_tokens(done: Iterator[Row], run: ShardRun, out: Path) -> None:
    rows = [
        (
            Path(row["image"]).name,
            str(row["tokens"]),
            str(row["dense"]),
            f"{row['retained']:.2%}",
            *(str(count) for count in row["counts"].values()),
        )
        for _, row in zip(range(_SHOWN), done, strict=False)
    ]
    columns = ("image", "tokens", "of dense", "retained", "16 px", "32 px", "64 px")
    _print_table(f"tokens written to {out}", columns, rows, run)


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], run: ShardRun) -> None:
    """Print the first frames of a run, and how it went."""
    console = Console(soft_wrap=True)
    if rows:
        console.print(console_table(title, columns, rows))
    console.print(run_text(run), highlight=False)


@dataclass(frozen=True)
class DrawnDetections:
    """Writes the pictures of `vgtok detect --write` in a worker."""

    settings: Mapping[str, Any]
    outputs: frozenset[DetectOutput]
    out: Path
    truth: AnnotatedDataset | None

    def __call__(
        self, detector: "Detector | OnnxDetector", frame: Frame, pixels: Pixels, result: "Result"
    ) -> list[str]:
        """Write the pictures of one frame, and return their names."""
        job = Job(detector, self.settings, self.outputs, self.out, self.truth)
        return job.write_pictures(
            ArrayFrame(pixels), record(frame.item, result), result.tokens, frame.label, Path(frame.place)
        )


def detect_frames(
    inputs: Sequence[str],
    settings: Mapping[str, Any],
    outputs: frozenset[DetectOutput],
    truth: AnnotatedDataset | None,
    dtype: str,
    engine: Engine,
    shards: str | None,
    shard_frames: int | None,
    out: Path | None,
    failed: list[dict[str, str]],
    fail: Fail,
    *,
    recursive: bool,
    json_: bool,
) -> None:
    """Run `vgtok detect` on images on a cluster."""
    pieces, passed_over = _pieces(inputs, fail, _detect_names, recursive=recursive)
    if not pieces:
        raise typer.Exit(1)
    if out is None:
        out = run_folder("detect", _absolute(inputs), {**settings, "recursive": recursive, "engine": "ray"})
    task = DetectTask(
        named_model(settings["model"]),
        settings["budget"],
        settings["score_threshold"],
        settings["max_detections"],
        settings["head"],
        dtype,
        settings.get("sparse_head", False),
        DrawnDetections(settings, outputs, out.absolute(), truth),
        LARGEST_WHOLE,
        settings.get("tokenizer", DEFAULT_TOKENIZER),
    )
    with locked(out / ".vgtok-lock", out):
        run = run_verb("detecting", task, pieces, shards or str(out / "shards"), engine, shard_frames, settings)
        if DetectOutput.coco in outputs:
            write_coco(out / "detections.json", _records(run))
        if DetectOutput.csv in outputs:
            write_csv(out / "detections.csv", _records(run))
        _tell_failures(run, failed, fail, "input")
        kept = ("canvas", "tokens", "retained", "ms", "written")
        rows = (
            {
                "input": row["item"],
                "detections": len(row["objects"]),
                "georeferenced": False,
                **{key: row[key] for key in kept},
            }
            for row in _records(run)
        )
        if json_:
            after = {"videos": [], "failed": failed, "passed_over": passed_over, "scale": run.to_dict()}
            print_document({"out": str(out), "resumed": run.resumed}, "frames", rows, after)
        else:
            _print_detections(rows, run, out)
    _end(run, failed)


def _detect_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the names of `vgtok detect`: the file's, or its path if another file has the same name."""
    shared = Counter(path.name for path in paths)
    return {path: path.as_posix() if shared[path.name] > 1 else path.name for path in paths}


def _records(run: ShardRun) -> Iterator[Row]:
    """Yield the record of every frame with a result, in order."""
    for row in run.rows():
        if row["error"] is None:
            yield {"item": row["frame"], **row}


def _print_detections(rows: Iterator[Row], run: ShardRun, out: Path) -> None:
    cells = [
        (
            row["input"],
            str(row["detections"]),
            str(row["tokens"]),
            f"{row['retained']:.2%}",
            *(f"{row['ms'][part]:.0f}" for part in PARTS),
        )
        for _, row in zip(range(_SHOWN), rows, strict=False)
    ]
    columns = ("image", "found", "tokens", "retained", "token-\nize ms", "encode\nms", "head\nms")
    _print_table(f"detections written to {out}", columns, cells, run)


def score_frames(
    model: str,
    names: Sequence[str],
    dataset: AnnotatedDataset,
    labels: "NDArray[np.int64]",
    tokenizer: Tokenizer,
    max_detections: int,
    head: Any,
    dtype: str,
    sparse_head: bool,
    engine: Engine,
    place: str,
    shard_frames: int | None,
    settings: Mapping[str, Any],
) -> tuple[Run, ShardRun]:
    """Run a model over a data set on a cluster, for `vgtok evaluate`; detections are read shard by shard."""
    task = ScoreTask(named_model(model), tokenizer, max_detections, head, dtype, sparse_head)
    run = run_verb("detecting", task, image_pieces(dataset.images), place, engine, shard_frames, settings)

    def found() -> Iterator[FrameFound | None]:
        for row in run.rows():
            if row["error"] is None:
                boxes = np.array(row["boxes"], dtype=np.float64).reshape(-1, 4)
                scores, classes = np.array(row["scores"], dtype=np.float32), np.array(row["labels"], dtype=np.int64)
                yield FrameFound((boxes, scores, classes), row["retained"], row["ms"])
            # A missing file is a problem of the data set, which its reader has already reported.
            elif not dataset.images[row["index"]].is_file():
                yield None
            else:
                raise InputError(row["error"])

    return gather_run(found(), names, dataset, labels), run


def calibrate_frames(
    data: str,
    name: str,
    sweep: Sweep,
    out: Path,
    engine: Engine,
    shards: str | None,
    shard_frames: int | None,
) -> RetentionTable:
    """Run `vgtok calibrate` on a cluster: count in shards, then merge them exactly."""
    pieces: Sequence[Piece]
    if is_address(data) or Path(data).suffix.lower() in (PARQUET, LIST):
        pieces, source = find_frames(data), "frames"
    else:
        dataset = open_dataset(data)
        pieces, source = image_pieces(dataset.images), dataset.name
    place = shards or f"{out}.shards"
    with locked(out.with_name(f".{out.name}.lock"), out):
        run = run_verb(f"calibrating on {source}", SweepTask(sweep), pieces, place, engine, shard_frames)

        def counted() -> "Iterator[tuple[str, int, NDArray[np.int64]]]":
            for row in run.rows():
                if row["error"] is not None:
                    more = f" and {run.failed - 1} more frames" if run.failed > 1 else ""
                    raise InputError(f"{row['error']}{more}; repair or remove what cannot be read, and run again")
                yield Path(row["frame"]).name, row["dense"], np.array(row["tokens"])

        table = merged_table(name, counted(), source, sweep)
        table.save(out)
        if shards is None:
            shutil.rmtree(place, ignore_errors=True)
    Console(stderr=True, soft_wrap=True).print(run_text(run), highlight=False)
    return table


def named_model(model: str) -> str:
    """Return a model as workers find it: a path as an absolute one, a name as it is."""
    return str(Path(model).absolute()) if Path(model).exists() else model


def _pieces(
    arguments: Sequence[str], fail: Fail, names: Callable[[Sequence[Path]], Mapping[Path, str]], *, recursive: bool
) -> tuple[list[Piece], Mapping[str, int]]:
    pieces, found = find_pieces(arguments, IMAGE_SUFFIXES, fail, names, recursive=recursive)
    if said := passed_over_text(found.passed_over):
        Console(stderr=True, soft_wrap=True).print(f"[yellow]{escape(said)}[/]", highlight=False)
    return pieces, found.passed_over


def _absolute(arguments: Sequence[str]) -> list[str]:
    return [argument if is_address(argument) else absolute_inputs([argument])[0] for argument in arguments]


def _tell_failures(run: ShardRun, failed: list[dict[str, str]], fail: Fail, field: str) -> None:
    """Report the first frames without a result as the local engine does; the others are in the shards and in JSON."""
    if not run.failed:
        return
    shown = len(failed) + _SHOWN
    for row in run.rows(["frame", "error"]):
        if row["error"] is None:
            continue
        if len(failed) < shown:
            fail(row["frame"], row["error"])
        else:
            failed.append({field: row["frame"], "error": row["error"]})


def _end(run: ShardRun, failed: Sequence[Any]) -> None:
    if failed:
        text = f"{run.frames - run.failed} frames finished, {len(failed)} inputs could not be"
        Console(stderr=True, soft_wrap=True).print(text)
        raise typer.Exit(1)
