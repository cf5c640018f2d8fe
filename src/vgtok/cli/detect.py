"""`vgtok detect`: images and videos to annotated pictures and videos, COCO JSON and CSV.

A file that cannot be read is reported in one line, and the others are still done. An interrupted run resumes.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

from vgtok.cli import options
from vgtok.cli.detections import PARTS, Job, Output, Pictures, write_coco, write_csv
from vgtok.cli.options import HeadName, console_table, expand_inputs, output_names
from vgtok.cli.video import VIDEO_SUFFIXES, Video, count_frames, is_video, logged_frames
from vgtok.data.dataset import IMAGE_SUFFIXES
from vgtok.defaults import DEFAULT_MODEL
from vgtok.errors import InputError, VGTokError
from vgtok.files import locked, stamp
from vgtok.parallel import progress_bar
from vgtok.tokenize.tokenizer import Tokenizer

_SHOWN_ROWS = 20


def detect(
    inputs: Annotated[list[str], typer.Argument(help="Image or video files, folders or globs.")],
    model: options.Model = DEFAULT_MODEL,
    budget: options.ModelBudget = None,
    score_threshold: Annotated[float, typer.Option(help="Leave out detections with a lower score.")] = 0.3,
    max_detections: Annotated[int, typer.Option(min=1, help="Maximum detections per image or frame.")] = 1000,
    head: options.Head = None,
    write: Annotated[list[Output] | None, typer.Option(help="Outputs; repeatable (default: picture, coco).")] = None,
    out: options.Out = Path("vgtok-detections"),
    json_: options.Json = False,
) -> None:
    """Detect objects at a token budget. Run the same command to resume an interrupted run."""
    from vgtok.detect.loading import load, shipped_models

    errors = Console(stderr=True, soft_wrap=True)
    failed: list[dict[str, str]] = []

    def fail(item: str, error: str) -> None:
        failed.append({"input": item, "error": error})
        errors.print(f"[bold red]error:[/] {escape(error)}")

    paths: list[Path] = []
    for argument in inputs:
        try:
            found = expand_inputs(argument, IMAGE_SUFFIXES | VIDEO_SUFFIXES)
            paths.extend(path for path in found if path not in paths)
        except VGTokError as error:
            fail(argument, str(error))
    outputs = frozenset(write or (Output.picture, Output.coco))
    # Check once what would fail for every image: the budget here, the head below.
    if budget is not None:
        Tokenizer(budget=budget)
    detector = load(model)
    budget = detector.budget if budget is None else budget
    if head is HeadName.atss and "atss" not in detector.model.config.auxiliary:
        raise InputError(f"--head: '{model}' was saved without its ATSS head; use --head query")
    place = shipped_models().get(model, Path(model))
    settings = {
        "model": model,
        "weights": stamp(place / "config.json" if place.is_dir() else place),
        "budget": budget,
        "score_threshold": score_threshold,
        "max_detections": max_detections,
        "head": head.value if head else detector.head,
        "write": sorted(outputs),
    }
    with locked(out / ".vgtok-lock", out):
        pictures, videos = _detect_all(Job(detector, settings, outputs, out), paths, fail)
        if Output.coco in outputs:
            write_coco(out / "detections.json", _records(pictures))
        if Output.csv in outputs:
            write_csv(out / "detections.csv", _records(pictures))
        _report(pictures, videos, failed, json_=json_)
    if failed:
        if len(paths) > 1:
            finished = len(pictures.journal.entries) + sum(len(video.log.entries) for video in videos)
            errors.print(f"{finished} frames finished, {len(failed)} inputs could not be")
        raise typer.Exit(1)


def _detect_all(job: Job, paths: Sequence[Path], fail: Callable[[str, str], None]) -> tuple[Pictures, list[Video]]:
    """Detect in every file; report one that fails to `fail`, with its name and the reason."""
    pictures = Pictures(job, {path.absolute().parent for path in paths})
    videos: list[Video] = []
    names, shared = output_names(paths), Counter(path.name for path in paths)
    with progress_bar() as progress:
        task = progress.add_task("detecting", total=sum(count_frames(path) if is_video(path) else 1 for path in paths))
        for path in paths:
            # The file's name, or its path if another file has the same name.
            item = path.as_posix() if shared[path.name] > 1 else path.name
            try:
                if is_video(path):
                    video = Video(job, path, item, names[path])
                    videos.append(video)
                    _detect_video(video, progress, task)
                else:
                    pictures.detect(path, item, names[path])
                    progress.advance(task)
            except VGTokError as error:
                fail(item, str(error))
    return pictures, videos


def _detect_video(video: Video, progress: Progress, task: TaskID) -> None:
    """Detect, then draw; after an error, draw the frames before it."""
    problem: VGTokError | None = None
    progress.advance(task, video.resumed)
    try:
        video.detect(partial(progress.advance, task))
    except VGTokError as error:
        problem = error
    drawing = progress.add_task("drawing", total=video.undrawn())
    video.write(partial(progress.advance, drawing))
    progress.remove_task(drawing)
    if problem:
        raise problem


def _records(pictures: Pictures) -> Iterator[Mapping[str, Any]]:
    """Yield every finished image and frame of the folder."""
    return chain(pictures.journal.entries.values(), logged_frames(pictures.job.out, pictures.job.settings))


def _report(pictures: Pictures, videos: Sequence[Video], failed: Sequence[dict[str, str]], *, json_: bool) -> None:
    out, frames, clips = pictures.job.out, pictures.rows(), [video.row() for video in videos]
    resumed = pictures.resumed + sum(video.resumed for video in videos)
    if json_:
        print(json.dumps({"out": str(out), "resumed": resumed, "frames": frames, "videos": clips, "failed": failed}))
        return
    rows = [*frames, *({**clip, "input": f"{clip['input']}, mean of {clip['frames']} frames"} for clip in clips)]
    if not rows:
        return
    cells = [
        (
            row["input"],
            f"{row['detections'] / max(row.get('frames', 1), 1):.4g}",
            f"{row['tokens']:.0f}",
            f"{row['retained']:.2%}",
            *(f"{row['ms'][part]:.0f}" for part in PARTS),
        )
        for row in rows[:_SHOWN_ROWS]
    ]
    columns = ("image", "found", "tokens", "retained", "tokenize ms", "encode ms", "head ms")
    console = Console()
    console.print(console_table(f"detections written to {out}", columns, cells))
    if len(rows) > _SHOWN_ROWS:
        console.print(f"... and {len(rows) - _SHOWN_ROWS} more")
    if resumed:
        console.print(f"{resumed} frames were finished before this run")
