"""A YOLO data set of rendered frames with a class that vgtok-tiny knows, car, and one that it does not, ship.

`python -m tests.train.rendered_yolo FOLDER [FRAMES]` writes it.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from vgtok.data import SceneConfig, render_scene
from vgtok.data.synthetic import NAMES

CLASSES = ("car", "ship")


def write_yolo(folder: Path, frames: int, width: int = 768, height: int = 512, first_seed: int = 100) -> Path:
    """Render harbors and highways in turn and write them with labels and a YAML that names one split, train."""
    places = {NAMES.index(name): place for place, name in enumerate(CLASSES)}
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number in range(frames):
        layout = ("harbour", "highway")[number % 2]
        config = SceneConfig(layout, pixels_per_meter=(3.0, 8.0)[number % 2])
        scene = render_scene(first_seed + number, width, height, config)
        Image.fromarray(scene.pixels).save(folder / "images" / f"flight{number:03d}_{number}.jpg", quality=92)
        lines = []
        for (x0, y0, x1, y1), label in zip(scene.boxes, scene.labels, strict=True):
            if int(label) in places:
                shares = np.array(
                    [(x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height]
                )
                lines.append(f"{places[int(label)]} " + " ".join(f"{share:.6f}" for share in shares))
        (folder / "labels" / f"flight{number:03d}_{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    yaml = folder / "data.yaml"
    yaml.write_text("train: images\nnames:\n  0: car\n  1: ship\n", encoding="utf-8")
    return yaml


if __name__ == "__main__":
    print(write_yolo(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 40))
