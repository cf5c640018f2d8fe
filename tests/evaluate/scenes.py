"""Random data sets and detections in whole pixels, for oracles that count pixels."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.data.folders import write_visdrone

FRAME = (96, 72)


@dataclass(frozen=True)
class Scene:
    """A VisDrone folder and a results list; `lines` are the annotation rows by image."""

    folder: Path
    lines: dict[str, list[tuple[int, ...]]]
    results: list[dict[str, Any]]


def box(random: np.random.Generator, largest: int = 40) -> tuple[int, int, int, int]:
    width, height = random.integers(3, largest, 2)
    return (
        int(random.integers(0, FRAME[0] - width)),
        int(random.integers(0, FRAME[1] - height)),
        int(width),
        int(height),
    )


def random_scene(folder: Path, seed: int, images: int = 4) -> Scene:
    """Objects of three classes, overlapping ignored regions and others, detections near objects and anywhere."""
    random = np.random.default_rng(seed)
    lines: dict[str, list[tuple[int, ...]]] = {}
    results: list[dict[str, Any]] = []
    for number in range(images):
        stem = f"frame_{number}"
        objects = [(*box(random), 1, int(random.integers(1, 4)), 0, 0) for _ in range(random.integers(0, 9))]
        regions = [(*box(random, 50), 0, int(random.choice([0, 0, 11])), 0, 0) for _ in range(random.integers(0, 4))]
        lines[stem] = [*objects, *regions]
        near = [(line, line[5]) for line in objects for _ in range(random.integers(0, 3))]
        anywhere = [(box(random), int(random.integers(1, 4))) for _ in range(random.integers(0, 12))]
        for place, category in (*near, *anywhere):
            shift = random.integers(-2, 3, 4)
            x, y, w, h = np.array(place[:4]) + shift
            bbox = [int(x), int(y), max(1, int(w)), max(1, int(h))]
            results.append({"image_id": stem, "category_id": category, "bbox": bbox, "score": float(random.random())})
    texts = {stem: "\n".join(",".join(map(str, row)) for row in rows) for stem, rows in lines.items()}
    return Scene(write_visdrone(folder, texts, FRAME), lines, results)


def coco_files(folder: Path, seed: int, crowds: bool = True, largest: float = 120.0) -> tuple[Path, Path]:
    """A COCO annotation file with areas of its own, sparse ids and crowds, and a results file of continuous boxes."""
    random = np.random.default_rng(seed)
    identities = [3, 11, 4, 250]
    entries: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for identity in identities:
        for _ in range(random.integers(3, 15)):
            size = random.uniform(3, largest, 2)
            place = [*random.uniform(0, 200, 2), *size]
            category = int(random.choice([1, 5, 9]))
            crowd = int(crowds and random.random() < 0.1)
            area = float(np.prod(size) * random.uniform(0.5, 1))
            fields = {"id": len(entries) + 1, "image_id": identity, "category_id": category, "iscrowd": crowd}
            entries.append({**fields, "bbox": [float(value) for value in place], "area": area})
            for _ in range(random.integers(0, 4)):
                moved = np.array(place) + random.normal(0, 0.08, 4) * np.tile(size, 2)
                other = category if random.random() < 0.9 else 5
                found.append(
                    {
                        "image_id": identity,
                        "category_id": other,
                        "bbox": [float(value) for value in np.maximum(moved, 0.5)],
                        "score": float(random.random()),
                    }
                )
    images = [{"id": i, "file_name": f"{i}.jpg", "width": 400, "height": 400} for i in identities]
    categories = [{"id": number, "name": f"kind {number}"} for number in (1, 5, 9, 13)]
    folder.mkdir(parents=True, exist_ok=True)
    truth, results = folder / "truth.json", folder / "results.json"
    truth.write_text(json.dumps({"images": images, "categories": categories, "annotations": entries}))
    results.write_text(json.dumps(found))
    return truth, results
