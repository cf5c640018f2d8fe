"""`vgtok bench`: benchmark each part against a baseline in the same run."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vgtok.cli import options
from vgtok.cli.options import console_table
from vgtok.cli.verbs import Verbs
from vgtok.data.dataset import open_dataset
from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_MODEL
from vgtok.errors import InputError

app = Verbs(help="Benchmark speed and memory against a baseline in the same run.")


@app.command()
def tokenizer(
    image: Annotated[Path | None, typer.Option(help="Image to run on (default: a rendered one).")] = None,
    repeats: Annotated[int, typer.Option(min=3, help="Number of timed rounds; medians are reported.")] = 25,
    json_: options.Json = False,
) -> None:
    """Time the tokenizer on one thread at 2048 x 1152, against six OpenCV top-hats and decode + resize."""
    from vgtok.bench.tokenizer import measure_tokenizer

    if image is not None and not image.is_file():
        raise InputError(f"{image}: no such file")
    cost = measure_tokenizer(image, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    times = {
        "tokenize (score, gate, split)": cost.tokenize_ms,
        "six 8-bit OpenCV top-hats": cost.yardstick_ms,
        "JPEG decode + resize": cost.decode_resize_ms,
        "tokenize to an exact budget": cost.budget_ms,
    }
    rows = [(label, f"{time:.1f}", f"{time / cost.tokenize_ms:.2f}") for label, time in times.items()]
    title = f"one thread, 2048 x 1152, medians of {repeats}, {cost.frame} frame"
    console = Console()
    console.print(console_table(title, ("what", "ms", "against tokenize"), rows))
    if cost.peak_extra_mb is not None:
        console.print(f"peak memory in addition to the canvas: {cost.peak_extra_mb:.0f} MB")


@app.command()
def encoder(
    config: Annotated[str, typer.Option(help="Configuration, e.g. eva02-small, vit-tiny.")] = "eva02-small",
    data: Annotated[str | None, typer.Option(help="Data set (default: VGTOK_VISDRONE, else a rendered image).")] = None,
    frames: Annotated[int, typer.Option(min=1, help="Number of its images to use, evenly spaced.")] = 2,
    budget: Annotated[list[float] | None, typer.Option(help="Budgets of the packed runs; repeatable.")] = None,
    packed_only: Annotated[bool, typer.Option("--packed-only", help="Skip the dense and the control run.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds per image; the best is reported.")] = 2,
    json_: options.Json = False,
) -> None:
    """Measure time, FLOPs and memory of an encoder at 2048 x 1152: dense, packed per budget, and a control."""
    # Silence the memory profiler; it reads this variable at import.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from vgtok.bench.model import BUDGETS, measure_encoder

    cost = measure_encoder(config, _frames(data, frames), budget or BUDGETS, repeats, packed_only=packed_only)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    title = f"{config}, 2048 x 1152, {len(cost.frames)} frames, {cost.threads} threads, best of {repeats}"
    rows = []
    for row in cost.rows:
        ratios = ("-" if ratio is None else f"{ratio:.2f}" for ratio in (row.speedup, row.realised))
        numbers = (f"{row.tokens:.0f}", f"{row.gflops:.1f}", f"{row.ms:.0f}", f"{row.peak_mb:.0f}")
        rows.append((row.execution, f"{row.budget:.0%}", *numbers, *ratios))
    columns = ("execution", "budget", "tokens", "GFLOPs", "ms", "peak\nMB", "speed-\nup", "realized")
    console = Console()
    console.print(console_table(title, columns, rows))
    console.print("peak MB: tensors the forward pass allocates; realized: speed-up over the ratio of GFLOPs")
    console.print(f"peak memory of the process: {cost.process_peak_mb:.0f} MB, with weights and libraries")


@app.command()
def detector(
    config: Annotated[str, typer.Option(help="Configuration, e.g. co-detr-eva02-large.")] = "co-detr-vit-tiny",
    image: Annotated[Path | None, typer.Option(help="Image to run on (default: a rendered one).")] = None,
    budget: Annotated[float, typer.Option(help="Token budget: share of the dense grid to keep.")] = DEFAULT_BUDGET,
    repeats: Annotated[int, typer.Option(min=1, help="Number of rounds; the best of each stage is reported.")] = 2,
    json_: options.Json = False,
) -> None:
    """Measure seconds per stage and memory for one 2048 x 1152 image, from pixels to boxes, with random weights."""
    from vgtok.bench.model import measure_detector

    if image is not None and not image.is_file():
        raise InputError(f"{image}: no such file")
    cost = measure_detector(config, image, budget, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    console = Console()
    console.print(f"{config}, {cost.width} x {cost.height}, {cost.tokens} tokens, {cost.threads} threads")
    for stage, seconds in (("tokenize", cost.tokenize_s), ("encode", cost.encode_s), ("detect", cost.detect_s)):
        console.print(f"{stage:9} {seconds:8.2f} s")
    console.print(f"peak memory of the process: {cost.process_peak_mb:.0f} MB, with weights and libraries")


@app.command()
def speedup(
    model: options.Model = DEFAULT_MODEL,
    image: Annotated[Path | None, typer.Option(help="Image to run on (default: a rendered one).")] = None,
    budget: Annotated[list[float] | None, typer.Option(help="Budgets to compare with dense; repeatable.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of rounds; the best of each way is reported.")] = 5,
    large: Annotated[
        bool, typer.Option("--large", help="Also measure the peak memory of an 8192 x 4608 frame at the first budget.")
    ] = False,
    json_: options.Json = False,
) -> None:
    """Measure the speed-up at a budget, dense and sparse head, against dense and against the plain modules."""
    # Silence the memory profiler; it reads this variable at import.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from vgtok.bench.speedup import BUDGETS, measure_speedup

    if image is not None and not image.is_file():
        raise InputError(f"{image}: no such file")
    cost = measure_speedup(model, image, tuple(budget or BUDGETS), repeats, large=large)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    rows = [
        (
            f"{row.precision}{', plain' if row.plain else ''}",
            f"{row.budget:.0%}",
            row.sparse or "-",
            f"{row.ms:.0f}",
            f"{row.processor_ms:.0f}",
            f"{row.over_dense:.2f}",
            f"{row.over_plain:.2f}",
            f"{row.peak_mb:.0f}",
        )
        for row in cost.rows
    ]
    title = f"{model}, {cost.head} head, {cost.width} x {cost.height}, {cost.threads} threads, best of {repeats}"
    columns = ("precision", "budget", "sparse\nhead", "ms", "CPU\nms", "over\ndense", "over\nplain", "peak\nMB")
    console = Console()
    console.print(console_table(title, columns, rows))
    console.print("over dense: all tokens in the same precision; over plain: all tokens, float32, modules as trained")
    if cost.large_peak_mb is not None:
        console.print(
            f"peak memory of a process at 8192 x 4608, with weights and libraries: {cost.large_peak_mb:.0f} MB by "
            f"windows, {cost.large_whole_peak_mb:.0f} MB read whole"
        )


@app.command()
def step(
    config: Annotated[str, typer.Option(help="Configuration, e.g. co-detr-eva02-small.")] = "co-detr-vit-tiny",
    side: Annotated[int, typer.Option(min=64, help="Side of the crop in px, a multiple of 64.")] = 512,
    budget: Annotated[float, typer.Option(help="Token budget: share of the dense grid to keep.")] = 1.0,
    repeats: Annotated[int, typer.Option(min=1, help="Number of timed rounds; medians are reported.")] = 5,
    json_: options.Json = False,
) -> None:
    """Time a training step on rendered crops, by precision, losses and crops per pass."""
    from vgtok.bench.model import measure_step

    cost = measure_step(config, side, budget, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    title = f"{config}, {side} px, {cost.tokens} tokens, {cost.objects} objects, {cost.threads} threads"
    rows = [
        (
            f"{row.precision}, {row.losses}",
            str(row.crops_per_pass),
            f"{row.seconds_per_crop:.2f}",
            f"{row.processor_seconds_per_crop:.2f}",
            f"{row.ratio:.2f}",
        )
        for row in cost.rows
    ]
    columns = ("precision, losses", "crops per pass", "s per crop", "CPU s", "ratio")
    Console().print(console_table(f"{title}, medians of {repeats}", columns, rows))


@app.command()
def export(
    config: Annotated[str, typer.Option(help="Configuration, e.g. co-detr-eva02-small.")] = "co-detr-vit-tiny",
    size: Annotated[str, typer.Option(help="Image size as WIDTHxHEIGHT.")] = options.CANVAS_TEXT,
    budget: Annotated[float, typer.Option(help="Token budget: share of the dense grid to keep.")] = DEFAULT_BUDGET,
    frames: Annotated[int, typer.Option(min=1, help="Number of rendered images to run on.")] = 3,
    repeats: Annotated[int, typer.Option(min=1, help="Number of timed rounds; medians are reported.")] = 3,
    json_: options.Json = False,
) -> None:
    """Compare torch and onnxruntime on the same images: ms per stage, their ratio and the difference of results."""
    from vgtok.bench.export import measure_export

    with Console(stderr=True).status("exporting and running"):
        cost = measure_export(config, options.image_size(size), budget, frames, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    title = f"{config}, {cost.width} x {cost.height}, {cost.tokens} tokens, {frames} frames, {cost.threads} threads"
    rows = [(row.stage, f"{row.torch_ms:.0f}", f"{row.onnx_ms:.0f}", f"{row.ratio:.2f}") for row in cost.stages]
    columns = ("stage", "torch ms", "onnxruntime ms", "torch / onnxruntime")
    console = Console()
    console.print(console_table(f"{title}, medians of {repeats}", columns, rows))
    console.print(
        f"largest differences: features {cost.features_difference:.1e}, scores {cost.scores_difference:.1e}, "
        f"boxes {cost.boxes_difference:.1e} of the longer side; file size {cost.file_mb:.0f} MB"
    )
    console.print(
        f"with --int8 {cost.int8_ms:.0f} ms, {cost.int8_ratio:.2f} times as fast as float32 in onnxruntime; file size "
        f"{cost.int8_file_mb:.0f} MB"
    )


def _frames(data: str | None, count: int) -> list[Path]:
    """Return evenly spaced images of the data set; none if no data set is named."""
    if data is None and "VGTOK_VISDRONE" in os.environ:
        data = f"visdrone:{os.environ['VGTOK_VISDRONE']}"
    if data is None:
        return []
    images = open_dataset(data).images
    return [images[i * len(images) // count] for i in range(min(count, len(images)))]


@app.command()
def evaluate(json_: options.Json = False) -> None:
    """Time the evaluation of 548 images with 500 detections each, against pycocotools on the same files."""
    from vgtok.bench.evaluation import measure_evaluation

    with Console(stderr=True).status("evaluating twice"):
        cost = measure_evaluation()
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    ratio = f"{cost.pycocotools_over_vgtok:.2f}"
    rows = [
        ("vgtok evaluate", f"{cost.vgtok_s:.1f}", "1.00", f"{cost.vgtok_peak_mb:.0f}"),
        ("pycocotools", f"{cost.pycocotools_s:.1f}", ratio, f"{cost.pycocotools_peak_mb:.0f}"),
    ]
    title = f"{cost.images} images, {cost.detections:,} detections, files to AP"
    console = Console()
    console.print(console_table(title, ("what", "seconds", "against vgtok", "peak MB"), rows))
    console.print(f"difference in AP: {cost.ap_difference:.1e} points")


@app.command()
def scale(
    frames: Annotated[int, typer.Option(min=16, help="Number of rendered frames.")] = 500,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds of all engines in turn; medians are reported.")] = 1,
    json_: options.Json = False,
) -> None:
    """Measure frames per second on Ray with one and two workers of one core, against the local engine."""
    from vgtok.bench.scale import measure_scale

    with Console(stderr=True).status("tokenizing and detecting"):
        cost = measure_scale(frames, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    rows = [
        (
            row.verb,
            *(f"{rate:.1f}" for rate in (row.local_fps, row.one_worker_fps, row.two_workers_fps)),
            f"{row.two_over_one:.2f}",
            f"{row.overhead:.1%}",
            f"{row.worker_startup_s:.1f}",
            f"{row.shard_kb_per_frame:.1f}",
        )
        for row in cost.rows
    ]
    columns = ("frames per s", "local", "1 worker", "2 workers", "2 over 1", "overhead", "start-up s", "KB a frame")
    console = Console()
    console.print(console_table(f"{frames} frames, one core per worker, medians of {repeats}", columns, rows))
    console.print(f"Ray was up after {cost.ray_startup_s:.1f} s; start-up is not in the rates")


@app.command()
def stream(
    frames: Annotated[int, typer.Option(min=1000, help="Number of tiny frames.")] = 100_000,
    workers: Annotated[int, typer.Option(min=1, help="Number of workers.")] = 2,
    json_: options.Json = False,
) -> None:
    """Tokenize many tiny frames from parquet files on Ray, and print the driver's memory after each tenth."""
    from vgtok.bench.scale import measure_stream

    with Console(stderr=True).status("tokenizing"):
        cost = measure_stream(frames, workers)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    print(f"{cost.frames} frames in {cost.seconds:.0f} s, {cost.frames_per_second:.0f} per s with {workers} workers")
    print(f"driver: {', '.join(f'{value:.0f}' for value in cost.driver_mb)} MB; grew by {cost.driver_growth_mb:.1f} MB")
    print(f"parquet: {cost.input_mb:.0f} MB in, {cost.output_mb:.0f} MB out")


@app.command()
def wrap(
    model: Annotated[
        list[str] | None, typer.Option(help="dinov2-small, rf-detr or vit-small; repeatable (default: the first two).")
    ] = None,
    budget: Annotated[float, typer.Option(help="Share of the dense grid the wrapped models read.")] = DEFAULT_BUDGET,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds; medians are reported.")] = 3,
    compile_: Annotated[
        str | None, typer.Option("--compile", help="Compile both sides by this backend, e.g. inductor or aot_eager.")
    ] = None,
    json_: options.Json = False,
) -> None:
    """Time models of transformers at a budget against the same models dense, at 1024 px and more."""
    from vgtok.bench.wrap import MODELS, measure_wrap

    names = model or list(MODELS)[:2]
    if unknown := [name for name in names if name not in MODELS]:
        raise InputError(f"--model: '{unknown[0]}' is not one of {', '.join(MODELS)}")
    cost = measure_wrap(names, budget, repeats, compile_)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    rows = [
        (
            row.model,
            str(row.side),
            f"{row.tokens} / {row.dense_tokens}",
            f"{row.dense_ms:.0f}",
            f"{row.ms:.0f}",
            f"{row.flop_ratio:.2f}",
            f"{row.speedup:.2f}",
            f"{row.realized:.2f}",
        )
        for row in cost.rows
    ]
    columns = ("model", "px", "tokens", "dense\nms", "ms", "fewer\nFLOPs", "speed-\nup", "realized")
    title = f"wrapped at {budget:.0%} against dense, {cost.threads} threads, medians of {repeats}"
    Console().print(console_table(title, columns, rows))
