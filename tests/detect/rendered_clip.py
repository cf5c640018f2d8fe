"""A clip of known identities through `vgtok detect --track` with the shipped model: recall and IDF1.

`python -m tests.detect.rendered_clip FOLDER [SEED]` renders a highway, lets a camera pan over it for 200 frames,
runs the command and prints both. It takes about a minute of one core.
"""

import json
import sys
from pathlib import Path

import cv2
import numpy as np

import vgtok
from tests.detect.test_tracking import FRAMES, WINDOW, Frame, idf1
from vgtok.cli.main import app
from vgtok.data import SceneConfig, render_scene
from vgtok.data.synthetic import NAMES
from vgtok.overlap import iou

VEHICLES = ("car", "van", "truck", "bus")


def write_clip(path: Path, seed: int) -> list[Frame]:
    """Write the clip and return the boxes of its vehicles, frame by frame; no object moves on its own."""
    scene = render_scene(seed, 1100, 480, SceneConfig("highway", pixels_per_meter=8.0))
    vehicles = np.isin(scene.labels, [NAMES.index(name) for name in VEHICLES])
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"mp4v"), 25.0, WINDOW)
    frames = []
    for number in range(FRAMES):
        x, y = 3 * number, round(0.8 * number)
        window = scene.pixels[y : y + WINDOW[1], x : x + WINDOW[0]]
        writer.write(cv2.cvtColor(np.ascontiguousarray(window), cv2.COLOR_RGB2BGR))
        moved = scene.boxes - np.array([x, y, x, y])
        clipped = np.clip(moved, 0, [*WINDOW, *WINDOW])
        areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (clipped, moved)]
        seen = vehicles & (areas[0] > 0.5 * areas[1])
        frames.append(Frame(clipped[seen], scene.labels[seen], np.flatnonzero(seen) + 1))
    writer.release()
    return frames


def logged_tracks(log: Path) -> tuple[list[Frame], list[Frame]]:
    """Return the vehicles in the log of a video, and those of them that have an identity."""
    found, tracked = [], []
    for line in log.read_text(encoding="utf-8").splitlines()[1:]:
        rows = [row for row in json.loads(line)["objects"] if row["name"] in VEHICLES]
        boxes = np.array([row["bbox"] for row in rows], dtype=np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels, identities = (np.array([row[key] for row in rows], dtype=np.int64) for key in ("label", "track"))
        found.append(Frame(boxes, labels, identities))
        kept = identities > 0
        tracked.append(Frame(boxes[kept], labels[kept], identities[kept]))
    return found, tracked


def main(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    expected = write_clip(folder / "clip.mp4", seed)
    detector = vgtok.load("vgtok-tiny")
    # As much enlarged as the model reads VisDrone.
    detector.canvas = (WINDOW[0] * 3 // 2, WINDOW[1] * 3 // 2)
    detector.save_pretrained(folder / "model")
    words = ["detect", str(folder / "clip.mp4"), "--track", "--model", str(folder / "model"), "--write", "coco"]
    app([*words, "--out", str(folder / "out")], standalone_mode=False)
    found, tracked = logged_tracks(folder / "out" / "clip.frames.jsonl")
    overlaps = [iou(one.boxes, other.boxes) for one, other in zip(expected, found, strict=True) if len(other.boxes)]
    recall = sum((table.max(axis=1) >= 0.5).sum() for table in overlaps) / sum(len(one.boxes) for one in expected)
    objects, identities = (
        len({int(identity) for frame in frames for identity in frame.identities}) for frames in (expected, tracked)
    )
    print(f"recall {recall:.2f}, IDF1 {idf1(expected, tracked):.2f}, {identities} identities of {objects} objects")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
