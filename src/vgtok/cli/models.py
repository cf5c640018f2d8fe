"""`vgtok models` and `vgtok sample`: list detectors with their size and cost, and render an image to try them on."""

import io
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image
from rich.console import Console
from rich.table import Table

from vgtok.cli import options
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import InputError
from vgtok.files import write_bytes, write_text
from vgtok.tokenize.geometry import CELL
from vgtok.tokenize.tokenizer import Tokenizer

_PARTS = ("encoder", "neck", "query_head", "rpn_head", "roi_head", "atss_head")


def models(
    name: Annotated[str | None, typer.Argument(help="Show only this configuration.")] = None,
    json_: options.Json = False,
) -> None:
    """List detector configurations, with parameters and cost, and the models shipped with the package."""
    from vgtok.detect.config import DETECTORS
    from vgtok.detect.loading import shipped_models
    from vgtok.detect.saving import read_config

    if name is not None and name not in DETECTORS:
        raise InputError(f"name: '{name}' is not one of {', '.join(DETECTORS)}")
    rows = [_counted(key) for key in ([name] if name else DETECTORS)]
    shipped = [
        {"name": key, "classes": read_config(folder)["config"]["names"], "license": read_config(folder)["license"]}
        for key, folder in shipped_models().items()
    ]
    if json_:
        print(json.dumps({"models": rows, "shipped": shipped}))
        return
    # Without borders, ten columns of numbers fit a terminal of 80 characters.
    title = "detectors, millions of parameters, GFLOPs dense at 2048 x 1152"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=True)
    table.add_column("name", no_wrap=True)
    for heading in ("encoder", "neck", "query", "RPN", "RoI", "ATSS", "all", "+ fusion", "GFLOPs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        numbers = [row["parts"].get(part, 0) for part in _PARTS] + [row["parameters"], row["parameters_with_fusion"]]
        cells = (f"{count / 1e6:.2f}" for count in numbers)
        table.add_row(row["name"], *cells, f"{row['dense_gflops']:.0f}")
    console = Console()
    console.print(table)
    console.print(f"shipped with weights: {', '.join(entry['name'] for entry in shipped) or 'none'}")


def _counted(name: str) -> dict[str, Any]:
    """Return the parameters of a configuration, with and without the fusion of coarse tokens, and its dense cost."""
    from vgtok.detect.config import DETECTORS
    from vgtok.detect.model import detection_flops, detector_parameters
    from vgtok.encode.modes import encoder_flops

    config = DETECTORS[name]
    parts = detector_parameters(config)
    everything = sum(parts.values())
    # The dense cost does not depend on the content of the image.
    width, height = DEFAULT_CANVAS
    tokens = Tokenizer(budget=1.0)(np.zeros((height, width, 3), dtype=np.uint8))
    grid = tokens.extent.rows(CELL), tokens.extent.columns(CELL)
    flops = sum(encoder_flops("dense", config.encoder_config(), tokens)) + sum(detection_flops(config, *grid).values())
    return {
        "name": name,
        "classes": config.classes,
        "queries": config.queries,
        "parameters": everything - parts["fusion"],
        "parameters_with_fusion": everything,
        "parts": parts,
        "dense_gflops": flops / 1e9,
    }


def sample(
    path: Annotated[Path, typer.Argument(help="PNG file to write.")],
    seed: Annotated[int, typer.Option(help="Seed of the scene.")] = 7,
    size: Annotated[str, typer.Option(help="Size as WIDTHxHEIGHT in px.")] = options.CANVAS_TEXT,
    truth: Annotated[Path | None, typer.Option(help="COCO file to write the objects to.")] = None,
    json_: options.Json = False,
) -> None:
    """Render a synthetic aerial image as a PNG."""
    from vgtok.data.convert import coco_document
    from vgtok.data.synthetic import render_scene

    width, height = options.image_size(size)
    scene = render_scene(seed=seed, width=width, height=height)
    buffer = io.BytesIO()
    Image.fromarray(scene.pixels).save(buffer, "PNG", compress_level=3)
    write_bytes(path, buffer.getvalue())
    if truth is not None:
        write_text(truth, json.dumps(coco_document([(path.name, scene)])) + "\n")
    if json_:
        boxes = [
            {"box": box.tolist(), "name": scene.names[label]}
            for box, label in zip(scene.boxes, scene.labels, strict=True)
        ]
        print(json.dumps({"image": str(path), "seed": seed, "width": width, "height": height, "objects": boxes}))
    else:
        print(f"{path}: {width} x {height} px, {len(scene.boxes)} objects, seed {seed}")
