"""`vgtok detect`: files, folders, globs and videos to annotated pictures, COCO json and CSV.

One bad file never stops the rest, and a run that was stopped starts again where it was.
"""

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vgtok.cli import options
from vgtok.cli.frames import VIDEO_SUFFIXES, Frame, count_frames, frames_of
from vgtok.cli.inputs import expanded, output_names
from vgtok.cli.journal import Journal
from vgtok.data.dataset import IMAGE_SUFFIXES
from vgtok.errors import InputError, VGTokError
from vgtok.files import write_bytes, write_text
from vgtok.parallel import progress_bar
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from vgtok.detect.detector import Detector
    from vgtok.detect.result import Result


class Output(StrEnum):
    """What is written: a picture per frame with or without its tokens, one COCO results file, one table."""

    picture = "picture"
    tokens = "tokens"
    coco = "coco"
    csv = "csv"


class HeadName(StrEnum):
    """The head that predicts."""

    query = "query"
    atss = "atss"


def detect(
    inputs: Annotated[list[str], typer.Argument(help="Image or video files, folders or globs.")],
    model: options.Model,
    budget: Annotated[float, typer.Option(help="Share of the dense grid every frame is read at; 1 is dense.")] = 0.40,
    score_threshold: Annotated[float, typer.Option(help="Detections below this score are left out.")] = 0.3,
    max_detections: Annotated[int, typer.Option(min=1, help="Most detections per frame.")] = 1000,
    head: Annotated[HeadName, typer.Option(help="The head that predicts.")] = HeadName.query,
    write: Annotated[list[Output] | None, typer.Option(help="What to write; repeatable. [picture, coco]")] = None,
    out: options.Out = Path("vgtok-detections"),
    json_: options.Json = False,
) -> None:
    """Detect objects at a token budget; run it again to go on where it stopped."""
    from vgtok.detect.hub import load

    errors = Console(stderr=True, soft_wrap=True)
    failed: list[dict[str, str]] = []

    def fail(item: str, error: str) -> None:
        failed.append({"input": item, "error": error})
        errors.print(f"[bold red]error:[/] {escape(error)}")

    paths: list[Path] = []
    for argument in inputs:
        try:
            found = expanded(argument, IMAGE_SUFFIXES | VIDEO_SUFFIXES)
            paths.extend(path for path in found if path not in paths)
        except VGTokError as error:
            fail(argument, str(error))
    outputs = set(write or (Output.picture, Output.coco))
    # What would fail for every frame is refused once: the budget here, the head below.
    Tokenizer(budget=budget)
    settings = {
        "model": model,
        "weights": _stamp(Path(model) / "config.json" if Path(model).is_dir() else Path(model)),
        "budget": budget,
        "score_threshold": score_threshold,
        "max_detections": max_detections,
        "head": head.value,
        "write": sorted(outputs),
    }
    detector = load(model)
    if head is HeadName.atss and "atss" not in detector.model.config.auxiliary:
        raise InputError(f"--head: '{model}' was saved without its ATSS head; use --head query")
    run = _Run(detector, settings, outputs, out, output_names(paths))
    with progress_bar() as progress:
        task = progress.add_task("detecting", total=sum(map(count_frames, paths)))
        for path in paths:
            try:
                for frame in frames_of(path, run.item(path), partial(run.finished, path)):
                    try:
                        run.detect(frame, path)
                    # What one frame does to the model (memory, a kernel) says nothing about the next.
                    except (VGTokError, RuntimeError, MemoryError) as error:
                        fail(frame.item, f"{frame.item}: {error}")
                    progress.update(task, completed=len(run.journal.entries) + len(failed))
            except VGTokError as error:
                fail(str(path), str(error))
    run.write_tables()
    _report(run, failed, json_=json_)
    if failed:
        errors.print(f"{len(run.journal.entries)} frames finished, {len(failed)} inputs could not be")
        raise typer.Exit(1)


class _Run:
    """One call of the verb: what it writes and what is finished."""

    def __init__(
        self, detector: "Detector", settings: dict[str, Any], outputs: set[Output], out: Path, names: dict[Path, str]
    ) -> None:
        self.detector, self.settings, self.outputs, self.out, self.names = detector, settings, outputs, out, names
        self.journal = Journal(out / "journal.jsonl", settings)
        self.resumed = len(self.journal.entries)

    def item(self, path: Path) -> str:
        """What a file is called in results: its name, or its path where another file has the same name."""
        shared = sum(other.name == path.name for other in self.names) > 1
        return path.as_posix() if shared else path.name

    def finished(self, path: Path, item: str) -> bool:
        """Whether an earlier run wrote everything for this item of a file that has not changed since."""
        entry = self.journal.entries.get(item)
        if entry is None or entry["stamp"] != _stamp(path):
            return False
        return all(Path(file).is_file() for file in entry["written"])

    def detect(self, frame: Frame, path: Path) -> None:
        """Detect in one frame, write its pictures, note it as finished."""
        result = self.detector(
            frame.pixels,
            budget=self.settings["budget"],
            max_detections=self.settings["max_detections"],
            score_threshold=self.settings["score_threshold"],
            head=self.settings["head"],
        )
        self.journal.add(
            frame.item,
            {
                "stamp": _stamp(path),
                "detections": len(result),
                "tokens": len(result.tokens),
                "retained": result.tokens.retained,
                "ms": vars(result.timings),
                "written": self._pictures(result, frame, path),
                "coco": result.to_coco(frame.item),
                "table": result.csv_rows(),
            },
        )

    def _pictures(self, result: "Result", frame: Frame, path: Path) -> list[str]:
        from vgtok.detect.result import picture_bytes

        name = self.names[path] if frame.number is None else f"{self.names[path]}-{frame.number:06d}"
        written = []
        for output, ending in ((Output.picture, "detections"), (Output.tokens, "tokens")):
            if output in self.outputs:
                target = self.out / f"{name}.{ending}.jpg"
                plot = result.plot(score_threshold=0.0, tokens=output is Output.tokens)
                write_bytes(target, picture_bytes(plot, target))
                written.append(str(target))
        return written

    def write_tables(self) -> None:
        """Write what covers all frames: the COCO results file and the table."""
        from vgtok.detect.result import CSV_COLUMNS

        entries = self.journal.entries
        if Output.coco in self.outputs:
            rows = [row for entry in entries.values() for row in entry["coco"]]
            write_text(self.out / "detections.json", json.dumps(rows))
        if Output.csv in self.outputs:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(("image", *CSV_COLUMNS))
            for item, entry in entries.items():
                writer.writerows((item, *row) for row in entry["table"])
            write_text(self.out / "detections.csv", text.getvalue())


def _stamp(path: Path) -> list[int]:
    """Size and time of a file: what changes when it does; nothing where there is none."""
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def _report(run: _Run, failed: Sequence[dict[str, str]], *, json_: bool) -> None:
    hidden = ("coco", "table", "item", "stamp")
    rows = [
        {"input": item, **{key: value for key, value in entry.items() if key not in hidden}}
        for item, entry in run.journal.entries.items()
    ]
    if json_:
        print(json.dumps({"out": str(run.out), "resumed": run.resumed, "frames": rows, "failed": failed}))
        return
    if not rows:
        return
    table = Table(title=f"detections written to {run.out}", title_justify="left")
    for heading in ("frame", "found", "tokens", "retained", "tokenize ms", "encode ms", "head ms"):
        table.add_column(heading, justify="left" if heading == "frame" else "right")
    for row in rows[:20]:
        times = (f"{row['ms'][part]:.0f}" for part in ("tokenizer", "encoder", "head"))
        counts = (str(row["detections"]), str(row["tokens"]), f"{row['retained']:.2%}")
        table.add_row(escape(row["input"]), *counts, *times)
    console = Console()
    console.print(table)
    if len(rows) > 20:
        console.print(f"... and {len(rows) - 20} more")
    if run.resumed:
        console.print(f"{run.resumed} frames were finished before this run")
