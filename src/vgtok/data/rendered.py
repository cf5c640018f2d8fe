"""Rendered scenes as a data set on disk, in COCO's layout: ground truth for anyone without data of their own."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from vgtok.data.synthetic import NAMES, SceneConfig, render_scene
from vgtok.files import write_bytes, write_text


def write_rendered(folder: Path, seeds: Sequence[int], width: int, height: int, config: SceneConfig) -> str:
    """Render a scene per seed into `folder`, which is only touched where it is not complete; returns its spec."""
    spec = f"coco:{folder / 'annotations.json'}:{folder / 'images'}"
    if (folder / "annotations.json").is_file():
        return spec
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, seed in enumerate(seeds):
        scene = render_scene(seed, width, height, config)
        buffer = io.BytesIO()
        Image.fromarray(scene.pixels).save(buffer, "PNG", compress_level=3)
        write_bytes(folder / "images" / f"{seed:08d}.png", buffer.getvalue())
        images.append({"id": number + 1, "file_name": f"{seed:08d}.png", "width": width, "height": height})
        for (x0, y0, x1, y1), label in zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number + 1,
                    "category_id": label + 1,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                }
            )
    categories = [{"id": label + 1, "name": name} for label, name in enumerate(NAMES)]
    # Last: the file that makes the set one.
    document = {"images": images, "annotations": annotations, "categories": categories}
    write_text(folder / "annotations.json", json.dumps(document) + "\n")
    return spec
