"""`vgtok sample`: render a synthetic aerial frame, for a first try without any data."""

import io
import json
from pathlib import Path
from typing import Annotated

import typer
from PIL import Image

from vgtok.cli import options
from vgtok.files import write_bytes, write_text


def sample(
    path: Annotated[Path, typer.Argument(help="The PNG to write.")],
    seed: Annotated[int, typer.Option(help="Which scene.")] = 7,
    size: Annotated[str, typer.Option(help="WIDTHxHEIGHT in pixels.")] = options.CANVAS_TEXT,
    truth: Annotated[Path | None, typer.Option(help="Also write its objects, as a COCO file.")] = None,
    json_: options.Json = False,
) -> None:
    """Render a synthetic aerial frame as a PNG."""
    from vgtok.data.convert import coco_document
    from vgtok.data.synthetic import render_scene

    width, height = options.frame_size(size)
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
