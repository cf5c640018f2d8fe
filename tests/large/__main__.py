"""`make large`: detect in a GeoTIFF of 30,000 x 30,000 px, most of it empty, that this makes itself.

A rendered scene is pasted at known places. The command is killed once and run again; it must resume, stay under 3 GB,
and its GeoJSON must name the objects of the scenes at their coordinates.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from numpy.typing import NDArray
from pyogrio.raw import read as read_features
from rasterio.warp import transform as convert
from rasterio.windows import Window

from vgtok.data import render_scene
from vgtok.overlap import iou

SIDE = 30_000
BUDGET = 0.10
MOST_MEMORY = 3e9
SEED, WIDTH, HEIGHT = 89, 1536, 896
PLACES = ((1_900, 1_000), (12_345, 6_789), (28_464, 300), (7_000, 21_111), (20_480, 29_104))
"""Left and top of the scenes: across seams of windows, inside one, and in corners of the raster."""

CRS = "EPSG:32633"
TRANSFORM = rasterio.Affine(0.1, 0, 390_000, 0, -0.1, 5_820_000)
_BLOCK = 512


def main() -> None:
    """Make the raster, detect, and compare."""
    parser = argparse.ArgumentParser(prog="make large", description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep the raster and the results here [default: a temporary one]")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="vgtok-large-") as temporary:
        work = folder or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        truth = make_raster(work / "large.tif")
        detect(work / "large.tif", work / "out")
        compare(work / "out" / "detections.geojson", truth)


def make_raster(path: Path) -> NDArray[np.float64]:
    """Write the raster unless it is there; return the boxes of all pasted objects in its pixels, (N, 4)."""
    scene = render_scene(seed=SEED, width=WIDTH, height=HEIGHT)
    if not path.is_file():
        started = time.perf_counter()
        draft = path.with_suffix(".draft.tif")
        with rasterio.open(
            draft, "w", driver="GTiff", width=SIDE, height=SIDE, count=3, dtype="uint8", crs=CRS, transform=TRANSFORM,
            tiled=True, blockxsize=_BLOCK, blockysize=_BLOCK, compress="deflate", zlevel=1, BIGTIFF="IF_SAFER",
        ) as dataset:  # fmt: skip
            # Even ground that darkens slowly to the south, with noise of a few levels.
            noise = np.random.default_rng(0).integers(0, 4, (3, _BLOCK, SIDE), dtype=np.uint8)
            for top in range(0, SIDE, _BLOCK):
                rows = min(_BLOCK, SIDE - top)
                level = 120 - 40 * (top + np.arange(rows)) // SIDE
                ground = noise[:, :rows] + level[None, :, None].astype(np.uint8)
                dataset.write(ground, window=Window(0, top, SIDE, rows))
            for left, top in PLACES:
                dataset.write(np.moveaxis(scene.pixels, -1, 0), window=Window(left, top, WIDTH, HEIGHT))
        draft.replace(path)
        print(f"raster: {path.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - started:.0f} s", flush=True)
    boxes = np.asarray(scene.boxes, dtype=np.float64)
    return np.concatenate([boxes + np.array([left, top] * 2) for left, top in PLACES])


def detect(raster: Path, out: Path) -> None:
    """Detect in the raster, killed once on the way; check that the second run resumes and what both take."""
    command = [sys.executable, "-m", "vgtok", "detect", str(raster), "--budget", str(BUDGET), "--out", str(out)]
    command += ["--write", "geojson", "--write", "coco", "--json"]
    log = out / f"{raster.stem}.windows.jsonl"
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    while finished(log) < 3:
        assert process.poll() is None, "the command ended before it could be killed"
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = whole_lines(log)
    print(f"killed after {finished(log)} windows and {time.perf_counter() - started:.0f} s", flush=True)
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    # A run that resumes keeps the lines of the first; one that starts again has fewer for a while.
    while process.poll() is None:
        now = whole_lines(log)
        assert now[: len(before)] == before[: len(now)], "the second run changed finished windows"
        assert now or not log.is_file(), "the second run started again"
        time.sleep(0.5)
    stdout, _ = process.communicate()
    assert process.returncode == 0, "the second run failed"
    row: dict[str, Any] = json.loads(stdout)["frames"][0]
    peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(
        f"detected: {row['detections']} objects, {row['canvas']}, {row['tokens']:,} tokens ({row['retained']:.2%}), "
        f"{time.perf_counter() - started:.0f} s for the second run, {row['ms']['tokenizer'] / 1000:.0f} s of them for "
        f"the partition; peak {peak / 1e9:.2f} GB",
        flush=True,
    )
    assert abs(row["retained"] - BUDGET) < 0.001
    assert peak < MOST_MEMORY, f"{peak / 1e9:.2f} GB is more than {MOST_MEMORY / 1e9:.0f}"


def whole_lines(log: Path) -> list[bytes]:
    """Return the finished windows in a log: its whole lines but the first; none if it was just removed."""
    try:
        return log.read_bytes().split(b"\n")[1:-1]
    except FileNotFoundError:
        return []


def finished(log: Path) -> int:
    """Return the number of finished windows."""
    return len(whole_lines(log))


def compare(geojson: Path, truth: NDArray[np.float64]) -> None:
    """Check that what the file names lies on the pasted objects, and that every scene is found."""
    about, _, shapes, _ = read_features(geojson)
    assert about["crs"] == "EPSG:4326", about["crs"]
    # Well-known binary of a polygon of one ring of five points: 13 bytes, then the points.
    rings = np.array([np.frombuffer(shape, dtype="<f8", offset=13).reshape(5, 2) for shape in shapes])
    x, y = convert("EPSG:4326", CRS, *rings.reshape(-1, 2).T.tolist())
    columns, rows = ~TRANSFORM * (np.array(x), np.array(y))
    places = np.stack([columns, rows], axis=-1).reshape(-1, 5, 2)
    boxes = np.concatenate([places.min(axis=1), places.max(axis=1)], axis=1)
    right = (iou(boxes, truth).max(axis=1) > 0.5).mean()
    found = (iou(boxes, truth).max(axis=0) > 0.5).reshape(len(PLACES), -1).mean(axis=1)
    print(
        f"GeoJSON: {right:.1%} of {len(boxes)} on an object; of each scene {', '.join(f'{s:.0%}' for s in found)} found"
    )
    assert right > 0.9, "detections lie elsewhere"
    assert (found > 0.3).all(), "a scene was not found"


if __name__ == "__main__":
    main()
