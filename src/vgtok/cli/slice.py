"""`vgtok slice`: a YOLO of your own over large images at a budget, to pictures and COCO JSON.

A file that cannot be read is reported in one line, and the others are still done. An interrupted run resumes.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from vgtok.cli import options
from vgtok.cli.detections import write_coco
from vgtok.cli.inputs import absolute_inputs, find_inputs, output_names, passed_over_text
from vgtok.cli.options import print_rows, said_when_interrupted
from vgtok.data.dataset import IMAGE_SUFFIXES
from vgtok.defaults import DEFAULT_SCORE
from vgtok.errors import InputError, VGTokError
from vgtok.files import is_there, locked, stamp, write_bytes
from vgtok.journal import Journal, is_number
from vgtok.parallel import progress_bar
from vgtok.runs import run_folder

if TYPE_CHECKING:
    from vgtok.slicing.sliced import Sliced
    from vgtok.slicing.slicer import Slicer

_FIGURES = ("read", "tiles", "megapixels", "ms")


class SliceOutput(StrEnum):
    """Outputs: pictures with the boxes, the same over the tiles that were read, one COCO file."""

    picture = "picture"
    tiles = "tiles"
    coco = "coco"


class GuideName(StrEnum):
    """What orders the tiles."""

    pixels = "pixels"
    scores = "scores"
    both = "both"


class MergeName(StrEnum):
    """How boxes of one object become one."""

    nms = "nms"
    fusion = "fusion"


def slice_(
    inputs: Annotated[list[str], typer.Argument(help="Image files, folders or globs.")],
    onnx: Annotated[Path, typer.Option(help="A YOLO exported to ONNX (v5, v7, v8, v11, or end to end).")],
    budget: Annotated[float | None, typer.Option(help="Share of the tiles to read (default: 0.5).")] = None,
    megapixels: Annotated[float | None, typer.Option(help="Instead: megapixels to read per image.")] = None,
    milliseconds: Annotated[float | None, typer.Option(help="Instead: time per image.")] = None,
    guide: Annotated[GuideName | None, typer.Option(help="What orders the tiles (default: both).")] = None,
    coarse: Annotated[int, typer.Option(min=0, help="Long side of the coarse pass in px; 0 for none.")] = 640,
    fine: Annotated[int | None, typer.Option(help="Long side tiles are cut at (default: the image's own).")] = None,
    tile: Annotated[int, typer.Option(help="Longest side of a tile in px.")] = 640,
    overlap: Annotated[int, typer.Option(help="Pixels that neighboring tiles share.")] = 64,
    merge: Annotated[MergeName, typer.Option(help="How boxes of one object become one.")] = MergeName.nms,
    score_threshold: Annotated[float, typer.Option(help="Leave out detections with a lower score.")] = DEFAULT_SCORE,
    write: Annotated[
        list[SliceOutput] | None,
        typer.Option(metavar="OUTPUT", help="picture, tiles or coco; repeatable (default: tiles and coco)."),
    ] = None,
    recursive: options.Recursive = False,
    out: options.Out = None,
    json_: options.Json = False,
) -> None:
    """Detect with a YOLO of your own: coarsely everywhere, finely where it pays. Run again to resume."""
    from vgtok.slicing.onnx_yolo import YoloOnnx
    from vgtok.slicing.slicer import Slicer

    errors = Console(stderr=True, soft_wrap=True)
    failed: list[dict[str, str]] = []

    def fail(item: str, error: str) -> None:
        failed.append({"input": item, "error": error})
        errors.print(f"[bold red]error:[/] {escape(error)}")

    found = find_inputs(inputs, IMAGE_SUFFIXES, fail, recursive=recursive)
    if not found.files:
        if json_:
            print(json.dumps({"out": None, "resumed": 0, "frames": [], "failed": failed}))
        raise typer.Exit(1)
    if said := passed_over_text(found.passed_over):
        errors.print(f"[yellow]{escape(said)}[/]", highlight=False)
    outputs = frozenset(write or (SliceOutput.tiles, SliceOutput.coco))
    settings: dict[str, Any] = {
        "budget": budget,
        "megapixels": megapixels,
        "milliseconds": milliseconds,
        "guide": guide.value if guide else None,
        "coarse": coarse or None,
        "fine": fine,
        "tile": tile,
        "overlap": overlap,
        "merge": merge.value,
    }
    detector = YoloOnnx(onnx)
    slicer = Slicer(detector, names=detector.names, **settings)
    settings |= {"onnx": stamp(onnx), "score_threshold": score_threshold, "write": sorted(outputs)}
    if out is None:
        out = run_folder("slice", absolute_inputs(inputs), {**settings, "recursive": recursive})
    with locked(out / ".vgtok-lock", out):
        job = _Job(slicer, score_threshold, outputs, out, Journal(out / "journal.jsonl", settings, _is_whole))
        items = _slice_all(job, found.files, fail)
        if SliceOutput.coco in outputs:
            write_coco(out / "detections.json", job.journal.entries.values())
        _report(job, items, failed, found.passed_over, json_=json_)
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Job:
    """One run of the command."""

    slicer: "Slicer"
    score_threshold: float
    outputs: frozenset[SliceOutput]
    out: Path
    journal: Journal

    def finished(self, path: Path, item: str) -> bool:
        """Whether an earlier run wrote everything for this file, and it has not changed since."""
        entry = self.journal.entries.get(item)
        return entry is not None and entry["stamp"] == stamp(path) and all(is_there(Path(f)) for f in entry["written"])

    def detect(self, path: Path, item: str, name: str) -> None:
        """Detect in one file, write its pictures and log it."""
        from vgtok.detect.result import picture_bytes

        seen = stamp(path)
        # An image that exhausts memory or a kernel does not affect the next one.
        try:
            found = self.slicer(path)
        except (RuntimeError, MemoryError) as error:
            raise InputError(f"{item}: {error}") from None
        written = []
        for kind in sorted(self.outputs - {SliceOutput.coco}):
            target = self.out / f"{name}.{'detections' if kind is SliceOutput.picture else kind.value}.jpg"
            picture = found.plot(score_threshold=self.score_threshold, tiles=kind is SliceOutput.tiles)
            write_bytes(target, picture_bytes(picture, target))
            written.append(str(target))
        self.journal.add(item, {"stamp": seen, "written": written, **_record(item, found, self.score_threshold)})


def _record(item: str, found: "Sliced", least: float) -> dict[str, Any]:
    """Return what was found as plain values, without detections below a score."""
    rows = zip(found.names, found.scores.tolist(), found.to_coco(item), strict=True)
    return {
        "tiles": len(found.layout),
        "read": found.read,
        "guide": found.guide,
        "megapixels": round(found.spent.megapixels, 4),
        "ms": round(found.milliseconds, 1),
        "looks": found.tiles(),
        "objects": [
            {"name": name, **{key: row[key] for key in ("category_id", "bbox", "score")}}
            for name, score, row in rows
            if score >= least
        ],
    }


def _is_whole(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of the journal holds all that is read from it; a damaged one may lack anything."""
    written, objects = entry.get("written"), entry.get("objects")
    return (
        "stamp" in entry
        and isinstance(written, list)
        and all(isinstance(file, str) for file in written)
        and all(is_number(entry.get(key)) for key in _FIGURES)
        and isinstance(objects, list)
        and all(isinstance(row, dict) and {"category_id", "bbox", "score"} <= row.keys() for row in objects)
    )


def _slice_all(job: _Job, paths: Sequence[Path], fail: Callable[[str, str], None]) -> dict[str, bool]:
    """Detect in every file; return the finished items and whether an earlier run finished them."""
    items: dict[str, bool] = {}
    names, shared = output_names(paths), Counter(path.name for path in paths)

    def kept() -> str:
        return f"{len(items)} of {len(paths)} images are finished and kept in {job.out}; run the same command to go on"

    with said_when_interrupted(kept), progress_bar() as progress:
        task = progress.add_task("slicing", total=len(paths))
        for path in paths:
            # The file's name, or its path if another file has the same name.
            item = path.as_posix() if shared[path.name] > 1 else path.name
            try:
                before = job.finished(path, item)
                if not before:
                    job.detect(path, item, names[path])
                items[item] = before
            except VGTokError as error:
                fail(item, str(error))
            progress.advance(task)
    return items


def _report(
    job: _Job,
    items: Mapping[str, bool],
    failed: Sequence[dict[str, str]],
    passed_over: Mapping[str, int],
    *,
    json_: bool,
) -> None:
    entries = {item: job.journal.entries[item] for item in items}
    rows = [
        {"input": item, "detections": len(entry["objects"]), **{k: entry[k] for k in (*_FIGURES, "looks", "written")}}
        for item, entry in entries.items()
    ]
    resumed = sum(items.values())
    if json_:
        document = {"out": str(job.out), "resumed": resumed, "frames": rows, "failed": failed}
        print(json.dumps({**document, "passed_over": passed_over}))
        return
    if not rows:
        return
    cells = [
        (
            row["input"],
            str(row["detections"]),
            f"{row['read']} of {row['tiles']}",
            f"{row['megapixels']:.2f}",
            f"{row['ms']:.0f}",
        )
        for row in rows
    ]
    print_rows(f"detections written to {job.out}", ("image", "found", "tiles read", "megapixels", "ms"), cells)
    if resumed:
        Console().print(f"{resumed} {'image was' if resumed == 1 else 'images were'} finished before this run")
