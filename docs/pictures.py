"""Draws the pictures of docs/concepts, one per stage: `python docs/pictures.py`; with `--gallery` those of the gallery.

No photograph goes in: all scenes are rendered. The two stages behind the encoder use random weights, which is enough to
see where vectors land, unless `--model` names a trained detector. The gallery always has one.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import vgtok
from vgtok.data.synthetic import LAYOUTS, Scene, SceneConfig, render_scene
from vgtok.defaults import DEFAULT_MODEL
from vgtok.detect.config import detector_configuration
from vgtok.detect.detector import Detector
from vgtok.detect.model import CoDetr
from vgtok.encode.packing import pack
from vgtok.show.overlay import COLORS, draw_tokens
from vgtok.show.plot import Panel, boxed, heat_map, panel_rows
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels
from vgtok.tokenize.scores import SCORES
from vgtok.tokenize.split import GATES, Nodes, busy_nodes, fired_nodes, gated_splits
from vgtok.tokenize.tokens import Tokens, tokens_from_splits

SIZE = (1000, 562)
"""The canvas to fit: not whole roots, so that padding shows."""

WIDTH = 1600
GALLERY_WIDTH = 1240
RANK = 0.20
PERCENTILE = 74.82
RED = (255, 40, 40)

Picture = NDArray[np.uint8]


def main() -> None:
    """Write one JPEG per stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder of the pictures [default: below docs/images]")
    parser.add_argument("--model", help="a trained detector for the last two pictures, or the gallery")
    parser.add_argument("--gallery", action="store_true", help="draw the gallery instead of the stages")
    options = parser.parse_args()
    out = options.out or Path(__file__).parent / "images" / ("gallery" if options.gallery else "stages")
    out.mkdir(parents=True, exist_ok=True)
    pictures = gallery(options.model or DEFAULT_MODEL) if options.gallery else stages(options.model)
    width, quality = (GALLERY_WIDTH, 80) if options.gallery else (WIDTH, 88)
    for name, rows in pictures.items():
        panel_rows(rows, width=width).save(out / f"{name}.jpg", quality=quality, optimize=True)


def gallery(model: str) -> dict[str, list[list[Panel]]]:
    """Rows of captioned panels per layout: what the detector finds at three budgets, and the tokens of one of them."""
    detector = vgtok.load(model).to("cpu")
    sheets = {}
    for layout in LAYOUTS:
        scene = render_scene(seed=11, width=1536, height=864, config=SceneConfig(layout=layout))
        results = {budget: detector(scene.pixels, budget=budget, score_threshold=0.3) for budget in (1.0, 0.4, 0.2)}
        dense, middle, least = (
            (f"{budget:.0%}: {len(result.tokens):,} tokens, {len(result)} boxes", np.asarray(result.plot()))
            for budget, result in results.items()
        )
        tokens = ("the tokens of 40%", np.asarray(results[0.4].tokens.overlay(scene.pixels)))
        sheets[layout] = [[dense, middle], [least, tokens]]
    return sheets


def stages(model: str | None = None) -> dict[str, list[list[Panel]]]:
    """Rows of captioned panels per stage, in the order an image passes them."""
    scene = render_scene(seed=9, width=800, height=450, config=SceneConfig(layout="street", pixels_per_meter=9.0))
    canvas = vgtok.Tokenizer(budget=0.4, canvas=SIZE).to_canvas(scene.pixels)
    frame = CanvasPixels(canvas.image)
    scores, structure = SCORES["tophat"](frame), GATES["lambda_min"](frame)
    busy = busy_nodes(scores, frame.extent, PERCENTILE)
    fired = fired_nodes(busy, structure, RANK)
    ungated, gated = (tokens_of(nodes, canvas) for nodes in (busy, gated_splits(busy, structure, RANK)))
    pixels = canvas.image
    exact = {budget: vgtok.Tokenizer(budget=budget, canvas=SIZE).partition(canvas) for budget in (0.2, 0.4, 0.7)}
    levels = zip(("16", "32", "64"), scores, (CELL, NODE, ROOT), strict=True)
    return {
        "canvas": [
            [
                (f"the image, {scene.pixels.shape[1]} x {scene.pixels.shape[0]} px", scene.pixels),
                (f"the canvas, {canvas.width} x {canvas.height} px, padded to whole 64 px roots", padded(canvas)),
            ]
        ],
        "score": [[("the canvas", pixels), ("largest top-hat response per 16 px cell", heat(scores.fine, canvas, 16))]],
        "pyramid": [
            [(f"{label} px: the largest value inside", heat(grid, canvas, size)) for label, grid, size in levels]
        ],
        "split": [
            [
                ("busy: a 32 px node with a cell above the threshold", marked(pixels, busy.middle, NODE)),
                (f"split all the way: {len(ungated)} of {ungated.dense} tokens", over(ungated, pixels)),
            ]
        ],
        "gate": [
            [
                ("lambda_min, the largest per 32 px node", heat(structure.middle, canvas, NODE)),
                (f"the {RANK:.0%} of the busy nodes with least of it", marked(pixels, fired.middle, NODE)),
                (f"stay whole: {len(gated)} tokens", over(gated, pixels)),
            ]
        ],
        "count": [[(f"{budget:.0%}: {len(t)} tokens of {t.dense}", over(t, pixels)) for budget, t in exact.items()]],
        **learned(model, scene, canvas, exact[0.4]),
    }


def learned(model: str | None, scene: Scene, canvas: Canvas, tokens: Tokens) -> dict[str, list[list[Panel]]]:
    """Packed sequence, scatter and head."""
    torch.manual_seed(0)
    if model is None:
        detector = Detector(CoDetr(detector_configuration("co-detr-vit-tiny")), canvas=SIZE)
    else:
        detector = vgtok.load(model).to("cpu")
    network = detector.model
    image = torch.from_numpy(canvas.image.copy()).permute(2, 0, 1)
    everything = vgtok.Tokenizer(budget=1.0, canvas=SIZE).partition(canvas)
    with torch.inference_mode():
        packed = network.encoder([image], [tokens]).maps[0]
        dense = network.encoder([image], [everything]).maps[0]
        levels = network.neck(packed[None])
    colors = principal(torch.cat([packed.flatten(1), dense.flatten(1)], dim=1)).reshape(2, *packed.shape[1:], 3)
    maps = [enlarged(grid, canvas) for grid in colors]
    if model is None:
        caption, boxes = "what a trained head returns; here the scene's own boxes", scene.boxes.astype(np.float64)
    else:
        result = detector(scene.pixels, budget=0.4, score_threshold=0.2)
        caption, boxes = f"{len(result)} boxes of {model}, in the image's own pixels", result.boxes
    panels = [
        (f"stride {stride}", enlarged(principal(level[0].flatten(1)).reshape(*level.shape[2:], 3), canvas))
        for stride, level in zip(network.config.strides, levels, strict=True)
    ]
    return {
        "pack": [
            [
                (f"{len(tokens)} tokens on the canvas", over(tokens, canvas.image)),
                ("the sequence: each token as one 16 px patch, framed by its size", sequence(tokens, canvas, network)),
            ]
        ],
        "scatter": [
            [
                (f"{len(tokens)} vectors, each written to every cell it spans", maps[0]),
                (f"the dense grid's {everything.dense} vectors", maps[1]),
            ]
        ],
        "head": [panels[:2], [*panels[2:], (caption, boxed(scene.pixels, boxes, RED))]],
    }


def tokens_of(splits: Nodes, canvas: Canvas) -> Tokens:
    """The partition of the canvas itself, so that it is drawn on the canvas."""
    return tokens_from_splits(splits, canvas.extent, (canvas.height, canvas.width))


def over(tokens: Tokens, pixels: Picture) -> Picture:
    """A partition over the canvas, at twice its size."""
    own = Tokens(tokens.x, tokens.y, tokens.sizes, tokens.height, tokens.width, *pixels.shape[:2])
    return np.asarray(draw_tokens(own, pixels))


def padded(canvas: Canvas) -> Picture:
    """The canvas with its padding hatched and its roots outlined."""
    picture = canvas.pixels.copy()
    rows, columns = np.indices(picture.shape[:2])
    outside = (rows >= canvas.height) | (columns >= canvas.width)
    picture[outside] = np.where((rows + columns) % 8 < 3, 90, 225)[outside][:, None]
    for x in range(0, picture.shape[1], ROOT):
        picture[:, x] = COLORS[ROOT]
    for y in range(0, picture.shape[0], ROOT):
        picture[y] = COLORS[ROOT]
    return picture


def heat(grid: NDArray[np.float32], canvas: Canvas, size: int) -> Picture:
    """A node grid over the canvas, by the square root so that weak responses show."""
    whole = heat_map(np.sqrt(grid), (grid.shape[0] * size, grid.shape[1] * size))
    return np.ascontiguousarray(whole[: canvas.height, : canvas.width])


def marked(pixels: Picture, nodes: NDArray[np.bool_], size: int) -> Picture:
    """The canvas in gray with the chosen nodes colored and outlined."""
    grey = cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    drawn = (grey.astype(np.float32) * 0.45 + 120).astype(np.uint8)
    for row, column in np.argwhere(nodes).tolist():
        y, x = row * size, column * size
        drawn[y : y + size, x : x + size] = pixels[y : y + size, x : x + size]
        cv2.rectangle(drawn, (x, y), (x + size, y + size), RED, 1)
    return drawn


def sequence(tokens: Tokens, canvas: Canvas, network: CoDetr) -> Picture:
    """The pixels each token is read from, in the order of the packed sequence."""
    packing = pack([tokens], network.encoder.config)
    side, frame = 20, 2
    columns = round(np.sqrt(len(tokens) * canvas.width / canvas.height))
    rows = -(-len(tokens) // columns)
    picture = np.full((rows * side, columns * side, 3), 255, dtype=np.uint8)
    places = zip(packing.row * CELL, packing.column * CELL, packing.span * CELL, strict=True)
    for number, (y, x, size) in enumerate(places):
        patch = cv2.resize(canvas.pixels[y : y + size, x : x + size], (CELL, CELL), interpolation=cv2.INTER_AREA)
        top, left = number // columns * side, number % columns * side
        picture[top : top + side - 1, left : left + side - 1] = COLORS[int(size)]
        picture[top + frame - 1 : top + frame - 1 + CELL, left + frame - 1 : left + frame - 1 + CELL] = patch
    return picture


def principal(vectors: torch.Tensor) -> Picture:
    """The three main directions of (D, n) vectors as (n, 3) colors."""
    centered = (vectors - vectors.mean(dim=1, keepdim=True)).T
    directions = torch.linalg.svd(centered, full_matrices=False)[2][:3].T
    values = (centered @ directions).numpy()
    low, high = np.percentile(values, (2, 98), axis=0)
    return np.asarray(np.clip((values - low) / np.maximum(high - low, 1e-12) * 255, 0, 255), dtype=np.uint8)


def enlarged(grid: Picture, canvas: Canvas) -> Picture:
    """A small grid over the whole canvas, cells left as squares."""
    image = Image.fromarray(np.ascontiguousarray(grid)).resize((canvas.width, canvas.height), Image.Resampling.NEAREST)
    return np.asarray(image)


if __name__ == "__main__":
    main()
