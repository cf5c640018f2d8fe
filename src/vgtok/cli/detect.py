"""`vgtok detect`: images and videos to annotated pictures and videos, COCO JSON and CSV.

A file that cannot be read is reported in one line, and the others are still done. An interrupted run resumes.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

from vgtok.cli import engines, options
from vgtok.cli.detections import GEO_FILES, PARTS, Job, Output, weights_stamp, write_coco, write_csv
from vgtok.cli.engines import EngineName, check_plain_reading, engine_from, model_worker
from vgtok.cli.frames import Reading
from vgtok.cli.inputs import Found, absolute_inputs, find_inputs, output_names, passed_over_text
from vgtok.cli.loading import check_head, named_tokenizer, open_detector
from vgtok.cli.options import BudgetOver, print_rows, said_when_interrupted
from vgtok.cli.pictures import File, Pictures
from vgtok.cli.video import VIDEO_SUFFIXES, Video, check_camera, count_frames, is_video, logged_frames, record_camera
from vgtok.data.dataset import IMAGE_SUFFIXES, open_annotated
from vgtok.defaults import DEFAULT_MODEL, DEFAULT_SCORE
from vgtok.errors import InputError, VGTokError
from vgtok.files import locked
from vgtok.parallel import progress_bar
from vgtok.runs import run_folder
from vgtok.slicing.geo import check_geo_packages
from vgtok.slicing.windows import LARGEST_WHOLE
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    pass


def detect(
    inputs: Annotated[
        list[str], typer.Argument(help="Image or video files, folders, globs, or the number of a camera.")
    ],
    model: Annotated[
        str, typer.Option("--model", help=f"{options.MODEL_HELP} Also a file of 'vgtok export onnx'.")
    ] = DEFAULT_MODEL,
    budget: options.ModelBudget = None,
    budget_over: options.BudgetOverOption = BudgetOver.image,
    score_threshold: Annotated[float, typer.Option(help="Leave out detections with a lower score.")] = DEFAULT_SCORE,
    max_detections: Annotated[int, typer.Option(min=1, help="Maximum detections per image or frame.")] = 1000,
    head: options.Head = None,
    sparse_head: options.SparseHead = None,
    tokenizer: options.TokenizerName = None,
    write: Annotated[
        list[Output] | None,
        typer.Option(
            metavar="OUTPUT",
            help="picture, tokens, compare, coco, csv, geojson or gpkg; repeatable (default: picture and coco; with "
            "ray coco).",
        ),
    ] = None,
    track: Annotated[bool, typer.Option("--track", help="Follow objects through videos; count them by class.")] = False,
    truth: Annotated[
        str | None, typer.Option(help="Data set with the images, as in --data, whose annotated boxes to draw too.")
    ] = None,
    canvas: options.FrameCanvas = None,
    windows_over: options.WindowsOver = LARGEST_WHOLE,
    bands: options.Bands = None,
    value_range: options.ValueRange = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    recursive: options.Recursive = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds to record of a camera.")] = 10,
    out: options.Out = None,
    engine: engines.EngineOption = EngineName.local,
    address: engines.Address = None,
    workers: engines.Workers = None,
    worker: engines.WorkerSize = None,
    shards: engines.Shards = None,
    shard_frames: engines.ShardFrames = None,
    json_: options.Json = False,
) -> None:
    """Detect objects at a token budget. Run the same command to resume an interrupted run."""
    cluster = engine_from(
        engine,
        model_worker,
        address=address,
        workers=workers,
        worker=worker,
        shards=shards,
        shard_frames=shard_frames,
    )
    reading = Reading.of(canvas, windows_over, bands, value_range)
    outputs = frozenset(write or ((Output.picture, Output.coco) if cluster is None else (Output.coco,)))
    if outputs & GEO_FILES.keys():
        check_geo_packages()
    if cluster is not None:
        streamed = budget_over is BudgetOver.stream
        check_plain_reading(reading.settings(), *(["budget_over"] if streamed else []), *(outputs & GEO_FILES.keys()))
    errors = Console(stderr=True, soft_wrap=True)
    failed: list[dict[str, str]] = []

    def fail(item: str, error: str) -> None:
        failed.append({"input": item, "error": error})
        errors.print(f"[bold red]error:[/] {escape(error)}")

    if cluster is None:
        found = find_inputs(inputs, IMAGE_SUFFIXES | VIDEO_SUFFIXES, fail, recursive=recursive, cameras=True)
    elif track or any(argument.isdecimal() or is_video(Path(argument)) for argument in inputs):
        raise InputError("--engine ray: takes images; run videos and cameras with --engine local")
    else:
        found = Found()
    for camera in found.cameras:
        check_camera(camera)
    if cluster is None and not (found.files or found.cameras):
        if json_:
            print(json.dumps({"out": None, "resumed": 0, "frames": [], "videos": [], "failed": failed}))
        raise typer.Exit(1)
    if said := passed_over_text(found.passed_over):
        errors.print(f"[yellow]{escape(said)}[/]", highlight=False)
    if track and not found.cameras and not any(map(is_video, found.files)):
        raise InputError("--track: follows objects through videos, and none of the inputs is one")
    annotated = None if truth is None else open_annotated(truth)
    # Check once what would fail for every image: the budget here, the head below.
    if budget is not None:
        Tokenizer(budget=budget)
    detector = open_detector(model, device, dtype, sparse_head, tokenizer)
    budget = detector.budget if budget is None else budget
    check_head(detector, head, model)
    settings = {
        "model": model,
        "weights": weights_stamp(model),
        "budget": budget,
        "score_threshold": score_threshold,
        "max_detections": max_detections,
        "head": head.value if head else detector.head,
        "write": sorted(outputs),
        # Only if asked for, so that runs of earlier versions resume.
        **({"budget_over": budget_over.value} if budget_over is BudgetOver.stream else {}),
        **({"track": True} if track else {}),
        **({"truth": truth} if truth else {}),
        **reading.settings(),
        **({"sparse_head": True} if getattr(detector, "sparse_head", False) else {}),
        **named_tokenizer(detector),
        **({} if (precision := getattr(detector, "precision", "float32")) == "float32" else {"dtype": precision}),
    }
    if cluster is not None:
        from vgtok.cli.scaled import detect_frames

        detect_frames(
            inputs,
            settings,
            outputs,
            annotated,
            dtype,
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
    # What a camera shows is never the same again.
    clock = datetime.now(UTC).isoformat() if found.cameras else ""
    # A run of its own for other inputs and settings; with --out the journal refuses other settings.
    if out is None:
        out = run_folder("detect", absolute_inputs(inputs), {**settings, "recursive": recursive, "clock": clock})
    with locked(out / ".vgtok-lock", out):
        recordings = [record_camera(camera, seconds, out) for camera in found.cameras]
        paths = [*found.files, *recordings]
        pictures, videos = _detect_all(Job(detector, settings, outputs, out, annotated, reading), paths, fail)
        if Output.coco in outputs:
            write_coco(out / "detections.json", _records(pictures))
        if Output.csv in outputs:
            write_csv(out / "detections.csv", _records(pictures), tracked=track)
        for kind, (name, write_geo) in GEO_FILES.items():
            if kind in outputs:
                write_geo(out / name, _records(pictures))
                nowhere = [row["input"] for row in pictures.rows() if not row["georeferenced"]]
                if nowhere:
                    errors.print(f"[yellow]{escape(_without_place(nowhere, name))}[/]", highlight=False)
        _report(pictures, videos, failed, found.passed_over, json_=json_)
    if failed:
        if len(paths) > 1:
            errors.print(f"{_finished(pictures, videos)} frames finished, {len(failed)} inputs could not be")
        raise typer.Exit(1)


def _shown_name(row: Mapping[str, Any]) -> str:
    """Return the name of an input, and below it how it was read if that was not the model's canvas."""
    return f"{row['input']}\n{row['canvas']}" if row.get("canvas", "").endswith("windows") else str(row["input"])


def _detect_all(job: Job, paths: Sequence[Path], fail: Callable[[str, str], None]) -> tuple[Pictures, list[Video]]:
    """Detect in every file; report one that fails to `fail`, with its name and the reason."""
    pictures = Pictures(job, {path.absolute().parent for path in paths})
    videos: list[Video] = []
    names, shared = output_names(paths), Counter(path.name for path in paths)
    total = sum(count_frames(path) if is_video(path) else 1 for path in paths)

    def kept() -> str:
        return (
            f"{_finished(pictures, videos)} of {total} frames are finished and kept in {job.out}; run the same command "
            "to go on"
        )

    def file(path: Path) -> File:
        # The file's name, or its path if another file has the same name.
        return File(path, path.as_posix() if shared[path.name] > 1 else path.name, names[path])

    with said_when_interrupted(kept), progress_bar() as progress:
        task = progress.add_task("detecting", total=total)
        stills = [file(path) for path in paths if not is_video(path)]
        pictures.detect(stills, partial(progress.advance, task), fail)
        for one in map(file, filter(is_video, paths)):
            try:
                videos.append(video := Video(job, *one))
                _detect_video(video, progress, task)
            except VGTokError as error:
                fail(one.item, str(error))
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


def _without_place(items: Sequence[str], file: str) -> str:
    """Return a sentence on images that a geo file cannot hold."""
    more = f" and {len(items) - 3} more" if len(items) > 3 else ""
    return f"not in {file}, for lack of a georeference in the file: {', '.join(items[:3])}{more}"


def _finished(pictures: Pictures, videos: Sequence[Video]) -> int:
    """Return the number of finished images and frames of this command."""
    return len(pictures.rows()) + sum(len(video.log.entries) for video in videos)


def _records(pictures: Pictures) -> Iterator[Mapping[str, Any]]:
    """Yield every finished image and frame of the folder."""
    return chain(pictures.journal.entries.values(), logged_frames(pictures.job.out, pictures.job.settings))


def _report(
    pictures: Pictures,
    videos: Sequence[Video],
    failed: Sequence[dict[str, str]],
    passed_over: Mapping[str, int],
    *,
    json_: bool,
) -> None:
    out, frames, clips = pictures.job.out, pictures.rows(), [video.row() for video in videos]
    resumed = pictures.resumed + sum(video.resumed for video in videos)
    if json_:
        document = {"out": str(out), "resumed": resumed, "frames": frames, "videos": clips, "failed": failed}
        print(json.dumps({**document, "passed_over": passed_over}))
        return
    rows = [*frames, *({**clip, "input": f"{clip['input']}, mean of {clip['frames']} frames"} for clip in clips)]
    if not rows:
        return
    cells = [
        (
            _shown_name(row),
            f"{row['detections'] / max(row.get('frames', 1), 1):.4g}",
            f"{row['tokens']:.0f}",
            f"{row['retained']:.2%}",
            *(f"{row['ms'][part]:.0f}" for part in PARTS),
        )
        for row in rows
    ]
    # Units in a second line, so that names of files keep most of a terminal of 80 characters.
    columns = ("image", "found", "tokens", "retained", "token-\nize ms", "encode\nms", "head\nms")
    print_rows(f"detections written to {out}", columns, cells)
    console = Console()
    for clip in clips:
        if "tracks" in clip:
            counts = ", ".join(f"{count} {name}" for name, count in clip["tracks"].items()) or "none"
            console.print(f"{escape(clip['input'])}, objects followed: {escape(counts)}", highlight=False)
    fitted = sorted({row["canvas"] for row in rows if not row.get("canvas", "windows").endswith("windows")})
    if fitted:
        shown = fitted[0] if len(fitted) == 1 else f"{len(fitted)} sizes up to {fitted[-1]}"
        console.print(f"canvas: {shown} px{'' if len(rows) == 1 else ' where no windows are named'}", highlight=False)
    if resumed:
        console.print(f"{resumed} {'frame was' if resumed == 1 else 'frames were'} finished before this run")
