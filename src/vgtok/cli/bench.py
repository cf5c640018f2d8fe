"""`vgtok bench`: what each part costs, as ratios taken in one run."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vgtok.cli import options
from vgtok.data.dataset import open_dataset
from vgtok.defaults import DEFAULT_BUDGET
from vgtok.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Speed and memory, ratios taken in one run.")


@app.command()
def tokenizer(
    image: Annotated[Path | None, typer.Option(help="A frame of your own; a rendered one unless given.")] = None,
    repeats: Annotated[int, typer.Option(min=3, help="Rounds the medians are taken over.")] = 25,
    json_: options.Json = False,
) -> None:
    """Time the tokenizer on one thread at 2048 x 1152 against six OpenCV top-hats and decode + resize."""
    from vgtok.bench.tokenizer import measure_tokenizer

    if image is not None and not image.is_file():
        raise InputError(f"{image}: no such file")
    cost = measure_tokenizer(image, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    table = Table(title=f"one thread, 2048 x 1152, medians of {repeats}, {cost.frame} frame", title_justify="left")
    for heading in ("what", "ms", "against tokenize"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    table.add_row("tokenize (score, gate, split)", f"{cost.tokenize_ms:.1f}", "1.00")
    for label, time in (
        ("six 8-bit OpenCV top-hats", cost.yardstick_ms),
        ("JPEG decode + resize", cost.decode_resize_ms),
        ("tokenize to an exact budget", cost.budget_ms),
    ):
        table.add_row(label, f"{time:.1f}", f"{time / cost.tokenize_ms:.2f}")
    console = Console()
    console.print(table)
    if cost.peak_extra_mb is not None:
        console.print(f"peak memory on top of the canvas: {cost.peak_extra_mb:.0f} MB")


@app.command()
def encoder(
    config: Annotated[str, typer.Option(help="Configuration, e.g. eva02-small, vit-tiny.")] = "eva02-small",
    data: Annotated[str | None, typer.Option(help="Frames to run on; VGTOK_VISDRONE, else a rendered one.")] = None,
    frames: Annotated[int, typer.Option(min=1, help="How many of them, spread evenly.")] = 2,
    budget: Annotated[list[float] | None, typer.Option(help="Packed rows; repeat for several.")] = None,
    packed_only: Annotated[bool, typer.Option("--packed-only", help="Leave out dense and the control.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds per frame; the best counts.")] = 2,
    json_: options.Json = False,
) -> None:
    """Time, count and weigh an encoder at 2048 x 1152: dense, packed at each budget, and the scatter control."""
    # The profiler that watches memory would otherwise narrate on standard error; it reads this at import.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from vgtok.bench.encoder import BUDGETS, measure_encoder

    cost = measure_encoder(config, _frames(data, frames), budget or BUDGETS, repeats, packed_only=packed_only)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    title = f"{config}, 2048 x 1152, {len(cost.frames)} frames, {cost.threads} threads, best of {repeats}"
    table = Table(title=title, title_justify="left")
    for heading in ("execution", "budget", "tokens", "GFLOPs", "ms", "peak MB", "speed-up", "realised"):
        table.add_column(heading, justify="left" if heading == "execution" else "right")
    for row in cost.rows:
        ratios = ("-" if ratio is None else f"{ratio:.2f}" for ratio in (row.speedup, row.realised))
        numbers = (f"{row.tokens:.0f}", f"{row.gflops:.1f}", f"{row.ms:.0f}", f"{row.peak_mb:.0f}")
        table.add_row(row.execution, f"{row.budget:.0%}", *numbers, *ratios)
    console = Console()
    console.print(table)
    console.print("peak MB: tensors the forward pass allocates; realised: speed-up over the ratio of GFLOPs")
    console.print(f"whole process at its largest: {cost.process_peak_mb:.0f} MB, weights and libraries included")


@app.command()
def detector(
    config: Annotated[str, typer.Option(help="Configuration, e.g. co-detr-eva02-large.")] = "co-detr-vit-tiny",
    image: Annotated[Path | None, typer.Option(help="A frame of your own; a rendered one unless given.")] = None,
    budget: Annotated[float, typer.Option(help="Share of the dense grid to keep.")] = DEFAULT_BUDGET,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the best of each stage counts.")] = 2,
    json_: options.Json = False,
) -> None:
    """Run one 2048 x 1152 frame from pixels to boxes with random weights: seconds by stage, and memory."""
    from vgtok.bench.detector import measure_detector

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
    console.print(f"whole process at its largest: {cost.process_peak_mb:.0f} MB, weights and libraries included")


@app.command()
def speedup(
    config: Annotated[str, typer.Option(help="Configuration, e.g. co-detr-eva02-small.")] = "co-detr-vit-tiny",
    image: Annotated[Path | None, typer.Option(help="A frame of your own; a rendered one unless given.")] = None,
    budget: Annotated[float, typer.Option(help="Share of the dense grid to keep.")] = DEFAULT_BUDGET,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the best of each stage counts.")] = 5,
    json_: options.Json = False,
) -> None:
    """Run one frame densely and at a budget, in turn: what the encoder gains, and the whole of what Amdahl allows."""
    from vgtok.bench.detector import measure_speedup

    if image is not None and not image.is_file():
        raise InputError(f"{image}: no such file")
    cost = measure_speedup(config, image, budget, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    print(f"{config}, {cost.tokens} tokens against the dense grid, {cost.threads} threads")
    print(f"encoder {cost.encoder:.2f} x: {cost.dense_encode_s:.2f} s to {cost.encode_s:.2f} s")
    print(
        f"whole   {cost.whole:.2f} x, {cost.whole / cost.allowed:.0%} of the {cost.allowed:.2f} x Amdahl's law allows"
    )


@app.command()
def step(
    config: Annotated[str, typer.Option(help="Configuration, e.g. co-detr-eva02-small.")] = "co-detr-vit-tiny",
    side: Annotated[int, typer.Option(min=64, help="Side of the crop in px, a multiple of 64.")] = 512,
    budget: Annotated[float, typer.Option(help="Share of the dense grid to keep.")] = 1.0,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds the medians are taken over.")] = 5,
    json_: options.Json = False,
) -> None:
    """Time a training step on rendered crops, in turn by precision, losses and crops per pass."""
    from vgtok.bench.step import measure_step

    cost = measure_step(config, side, budget, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    title = f"{config}, {side} px, {cost.tokens} tokens, {cost.objects} objects, {cost.threads} threads"
    table = Table(title=f"{title}, medians of {repeats}", title_justify="left")
    for heading in ("precision", "losses", "crops a pass", "s a crop", "processor s", "ratio"):
        table.add_column(heading, justify="left" if heading in ("precision", "losses") else "right")
    for row in cost.rows:
        times = (f"{row.seconds_per_crop:.2f}", f"{row.processor_seconds_per_crop:.2f}", f"{row.ratio:.2f}")
        table.add_row(row.precision, row.losses, str(row.crops_per_pass), *times)
    Console().print(table)


@app.command()
def export(
    config: Annotated[str, typer.Option(help="Configuration, e.g. co-detr-eva02-small.")] = "co-detr-vit-tiny",
    size: Annotated[str, typer.Option(help="WIDTHxHEIGHT of the frames.")] = options.CANVAS_TEXT,
    budget: Annotated[float, typer.Option(help="Share of the dense grid to keep.")] = DEFAULT_BUDGET,
    frames: Annotated[int, typer.Option(min=1, help="Rendered frames to run on.")] = 3,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds the medians are taken over.")] = 3,
    json_: options.Json = False,
) -> None:
    """Run the same frames in torch and in onnxruntime, in turn: ms by stage, their ratio, how far results are apart."""
    from vgtok.bench.export import measure_export

    with Console(stderr=True).status("exporting and running"):
        cost = measure_export(config, options.frame_size(size), budget, frames, repeats)
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    title = f"{config}, {cost.width} x {cost.height}, {cost.tokens} tokens, {frames} frames, {cost.threads} threads"
    table = Table(title=f"{title}, medians of {repeats}", title_justify="left")
    for heading in ("stage", "torch ms", "onnxruntime ms", "torch / onnxruntime"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for row in cost.stages:
        table.add_row(row.stage, f"{row.torch_ms:.0f}", f"{row.onnx_ms:.0f}", f"{row.ratio:.2f}")
    console = Console()
    console.print(table)
    console.print(
        f"at most apart: features {cost.features_difference:.1e}, scores {cost.scores_difference:.1e}, "
        f"boxes {cost.boxes_difference:.1e} of the longer side; file {cost.file_mb:.0f} MB"
    )


def _frames(data: str | None, count: int) -> list[Path]:
    """Evenly spread frames of the data set; none where none is named."""
    if data is None and "VGTOK_VISDRONE" in os.environ:
        data = f"visdrone:{os.environ['VGTOK_VISDRONE']}"
    if data is None:
        return []
    images = open_dataset(data).images
    return [images[i * len(images) // count] for i in range(min(count, len(images)))]


@app.command()
def evaluate(json_: options.Json = False) -> None:
    """Time the evaluation of 548 images with 500 detections each against pycocotools on the same files."""
    from vgtok.bench.evaluation import measure_evaluation

    with Console(stderr=True).status("evaluating twice"):
        cost = measure_evaluation()
    if json_:
        print(json.dumps(cost.to_dict()))
        return
    table = Table(title=f"{cost.images} images, {cost.detections:,} detections, files to AP", title_justify="left")
    for heading in ("what", "seconds", "against vgtok", "peak MB"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    table.add_row("vgtok evaluate", f"{cost.vgtok_s:.1f}", "1.00", f"{cost.vgtok_peak_mb:.0f}")
    ratio = f"{cost.pycocotools_over_vgtok:.2f}"
    table.add_row("pycocotools", f"{cost.pycocotools_s:.1f}", ratio, f"{cost.pycocotools_peak_mb:.0f}")
    console = Console()
    console.print(table)
    console.print(f"AP apart by {cost.ap_difference:.1e} points")
