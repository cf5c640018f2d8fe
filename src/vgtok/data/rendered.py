"""Rendered scenes as a data set on disk, in COCO's layout: ground truth for anyone without data of their own."""

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from vgtok.data.synthetic import NAMES, Scene, SceneConfig, render_scene
from vgtok.files import write_bytes, write_text


def write_rendered(folder: Path, seeds: Sequence[int], width: int, height: int, config: SceneConfig) -> str:
    """Render a scene per seed into `folder`, which is only touched where it is not complete; returns its spec."""
    spec = f"coco:{folder / 'annotations.json'}:{folder / 'images'}"
    if (folder / "annotations.json").is_file():
        return spec
    scenes = []
    for seed in seeds:
        scene = render_scene(seed, width, height, config)
        buffer = io.BytesIO()
        Image.fromarray(scene.pixels).save(buffer, "PNG", compress_level=3)
        write_bytes(folder / "images" / f"{seed:010d}.png", buffer.getvalue())
        scenes.append((f"{seed:010d}.png", scene))
    # Last: the file that makes the set one.
    write_text(folder / "annotations.json", json.dumps(coco_document(scenes)) + "\n")
    return spec


def coco_document(scenes: Iterable[tuple[str, Scene]]) -> dict[str, Any]:
    """The objects of scenes, each with the name of its file, as a COCO file holds them."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (name, scene) in enumerate(scenes, start=1):
        height, width = scene.pixels.shape[:2]
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for (x0, y0, x1, y1), label in zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": label + 1,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                }
            )
    categories = [{"id": label + 1, "name": name} for label, name in enumerate(NAMES)]
    return {"images": images, "annotations": annotations, "categories": categories}
