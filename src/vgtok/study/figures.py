"""Figures 1 and 2: one image at 70% of tokens, and the four stages score, split, gate and pack.

The image is a file of the caller, one of a data set, or a rendered scene; labeled panels leave as one picture.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic import render_scene
from vgtok.errors import InputError
from vgtok.show.overlay import COLORS, draw_tokens
from vgtok.show.plot import boxed, heat_map, panel_rows
from vgtok.study.gates import nodes_with_objects
from vgtok.study.paper import percentile
from vgtok.study.result import RENDERED, Inputs, Read, Result, Row, Study
from vgtok.tokenize.canvas import Canvas, read_image
from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels, Pyramid, children
from vgtok.tokenize.split import Structure, busy_nodes, fired_nodes, gated_splits
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens, tokens_from_splits

_TEASER_IMAGE = "0000295_02400_d_0000033"
"""The VisDrone image of the paper's first figure: 317 boxes, 280 of them under 32 x 32 px."""

_METHOD_IMAGE = "0000244_04400_d_0000010"
"""The VisDrone image that gives the counts of the paper's second figure, which does not name its own."""


@dataclass(frozen=True)
class _Picture:
    """An image (H, W, 3) of some `data` with its boxes (N, 4) in image pixels, empty if they are not known."""

    data: str
    name: str
    image: NDArray[np.uint8]
    boxes: NDArray[np.float64]


def _picture(inputs: Inputs, usual: str) -> _Picture:
    """Return the image asked for; by default the `usual` one, else the first of the data set, else a rendered one."""
    if inputs.dataset is None:
        if inputs.frame is not None:
            return _Picture("a file", Path(inputs.frame).stem, read_image(inputs.frame), np.zeros((0, 4)))
        scene = render_scene(seed=7, width=2048, height=1152)
        return _Picture(RENDERED, "rendered scene", scene.pixels, scene.boxes.astype(np.float64))
    stems = [path.stem for path in inputs.dataset.images]
    wanted = inputs.frame or (usual if usual in stems else stems[0])
    if wanted not in stems:
        raise InputError(
            f"--frame: '{wanted}' is not an image of {inputs.dataset.name}; give a file stem, e.g. {stems[0]}"
        )
    index = stems.index(wanted)
    boxes = inputs.dataset.annotations(index).boxes if inputs.dataset.names else np.zeros((0, 4))
    return _Picture(inputs.dataset.name, wanted, read_image(inputs.dataset.images[index]), boxes)


_BUDGET = 0.70
_CROP = (4, 4)
"""Rows and columns of 64-px roots in the enlarged region."""

_TEASER = {"objects": 317, "small_objects": 280, "crop_tokens_ungated": 204, "crop_tokens_gated": 174}


def teaser(inputs: Inputs) -> Result:
    """Draw ground truth, the 70% partition, and one crop raw, by contrast alone and gated, at the same threshold."""
    picture = _picture(inputs, _TEASER_IMAGE)
    threshold = percentile("visdrone", SHIPPED_RANK, _BUDGET)
    gated_tokenizer = Tokenizer(percentile=threshold)
    canvas = gated_tokenizer.to_canvas(picture.image)
    gated = gated_tokenizer.partition(canvas)
    ungated = Tokenizer(percentile=threshold, rank=0.0).partition(canvas)
    crop = _emptiest_saving(ungated, gated, canvas, canvas.from_source(picture.boxes))
    sides = np.sqrt(np.prod(picture.boxes[:, 2:] - picture.boxes[:, :2], axis=1))
    measured = {
        "objects": len(picture.boxes),
        "small_objects": int((sides < 32).sum()),
        "crop_tokens_ungated": len(_inside(ungated, crop)),
        "crop_tokens_gated": len(_inside(gated, crop)),
    }
    rows: list[Row] = [{"quantity": name, "paper": _TEASER[name], "measured": measured[name]} for name in _TEASER]
    rows.append({"quantity": "retained", "paper": _BUDGET, "measured": gated.retained})
    overlay = np.asarray(draw_tokens(gated, picture.image))
    # The overlay of a small image is enlarged, and the crop with it.
    region = _on_picture(crop, canvas, overlay.shape)
    parts = [
        (f"(a) ground truth: {len(picture.boxes)} objects", boxed(picture.image, picture.boxes, (255, 60, 60))),
        (f"(b) {len(gated)} tokens, {gated.retained:.1%} of the dense grid", boxed(overlay, region[None], (255, 0, 0))),
    ]
    details = [
        ("(c) the boxed region", _cut(picture.image, _on_picture(crop, canvas, picture.image.shape))),
        (
            f"(d) contrast alone: {measured['crop_tokens_ungated']} tokens",
            _cut(np.asarray(draw_tokens(ungated, picture.image)), region),
        ),
        (f"(e) gated: {measured['crop_tokens_gated']} tokens", _cut(overlay, region)),
    ]
    notes = [
        f"image {picture.name}; the paper's is {_TEASER_IMAGE} and its crop is not given",
        f"the crop here is the {_CROP[1]} x {_CROP[0]} roots without an object where the gate saves most",
    ]
    pictures = {"teaser": panel_rows([parts, details], width=1800)}
    return Result(rows, notes, pictures=pictures, read=Read(picture.data, 1))


def _emptiest_saving(ungated: Tokens, gated: Tokens, canvas: Canvas, boxes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the (4,) canvas box of whole roots, free of objects if possible, in which the gate saves most."""
    extent = canvas.extent
    saved = _per_root(ungated) - _per_root(gated)
    occupied = nodes_with_objects(boxes, extent, ROOT).astype(np.int64)
    best, place = -np.inf, (0, 0)
    for row in range(max(1, extent.root_rows - _CROP[0] + 1)):
        for column in range(max(1, extent.root_columns - _CROP[1] + 1)):
            window = np.s_[row : row + _CROP[0], column : column + _CROP[1]]
            value = saved[window].sum() - 100.0 * occupied[window].sum()
            if value > best:
                best, place = value, (row, column)
    y, x = place[0] * ROOT, place[1] * ROOT
    return np.array([x, y, min(x + _CROP[1] * ROOT, canvas.width), min(y + _CROP[0] * ROOT, canvas.height)])


def _per_root(tokens: Tokens) -> NDArray[np.int64]:
    counts = np.zeros(tokens.extent.grid_shape(ROOT), dtype=np.int64)
    np.add.at(counts, (tokens.y // ROOT, tokens.x // ROOT), 1)
    return counts


def _inside(tokens: Tokens, crop: NDArray[np.int64]) -> NDArray[np.int64]:
    x0, y0, x1, y1 = crop
    return np.flatnonzero((tokens.x >= x0) & (tokens.x < x1) & (tokens.y >= y0) & (tokens.y < y1))


def _on_picture(crop: NDArray[np.int64], canvas: Canvas, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a (4,) canvas box in the pixels of a picture of the same image at another size."""
    ratio = np.array([shape[1] / canvas.width, shape[0] / canvas.height] * 2)
    return np.asarray(crop * ratio)


def _cut(picture: NDArray[np.uint8], box: NDArray[np.float64]) -> NDArray[np.uint8]:
    x0, y0, x1, y1 = np.rint(box).astype(int)
    return np.ascontiguousarray(picture[y0:y1, x0:x1])


_PERCENTILE = 40.0
_METHOD = {"gated_nodes": 77, "tokens_ungated": 1842, "tokens_gated": 1500, "fewer_tokens": 0.186}


def method(inputs: Inputs) -> Result:
    """Run the stages one by one on an image at its own size, in the paper's reading, and draw the result of each."""
    chosen = _picture(inputs, _METHOD_IMAGE)
    paper = _stages(Tokenizer.paper(_PERCENTILE, canvas="native"), chosen.image)
    shipped = _stages(Tokenizer(percentile=_PERCENTILE, canvas="native"), chosen.image)
    rows: list[Row] = [
        {
            "quantity": name,
            "paper": printed,
            "measured": paper.quantities()[name],
            "measured_shipped": shipped.quantities()[name],
        }
        for name, printed in _METHOD.items()
    ]
    ungated, gated, seen = paper.ungated, paper.gated, np.ascontiguousarray(paper.canvas.image)
    rows_of_panels = [
        [
            ("input", chosen.image),
            ("1  score: top-hat, max per cell", _grid_picture(paper.scores.fine, paper.canvas, CELL)),
            (f"2  split at p = {_PERCENTILE:g}: {len(ungated)} tokens", np.asarray(draw_tokens(ungated, seen))),
        ],
        [
            ("lambda_min, max per node", _grid_picture(paper.structure.middle, paper.canvas, NODE)),
            (f"3  gate: {paper.stopped} nodes stop, {len(gated)} tokens", np.asarray(draw_tokens(gated, seen))),
            (f"4  pack: one sequence of {len(gated)}", _sequence_picture(gated, seen.shape)),
        ],
    ]
    notes = [
        f"image {chosen.name} at its own size, {seen.shape[1]} x {seen.shape[0]} px with padding; the paper names none",
        "measured: Tokenizer.paper, whose padding to whole 64-px roots mirrors the image and counts; measured_shipped: "
        "the readings of Tokenizer",
    ]
    if chosen.name == _METHOD_IMAGE:
        notes.append(
            "all counts match on this image alone; as many images, paddings and readings were tried, "
            "chance is not excluded"
        )
    return Result(rows, notes, pictures={"method": panel_rows(rows_of_panels, width=2100)}, read=Read(chosen.data, 1))


@dataclass(frozen=True)
class _Stages:
    """What each stage of a tokenizer gives on one image; `stopped` counts the nodes that are tokens by the gate."""

    canvas: Canvas
    scores: Pyramid
    structure: Structure
    ungated: Tokens
    gated: Tokens
    stopped: int

    def quantities(self) -> dict[str, float]:
        """Return the figures that the paper prints."""
        before, after = len(self.ungated), len(self.gated)
        return {
            "gated_nodes": self.stopped,
            "tokens_ungated": before,
            "tokens_gated": after,
            "fewer_tokens": 1 - after / before,
        }


def _stages(tokenizer: Tokenizer, image: NDArray[np.uint8]) -> _Stages:
    """Run a gated percentile tokenizer stage by stage on an (H, W, 3) image."""
    canvas = tokenizer.to_canvas(image)
    pixels = CanvasPixels(canvas.image)
    scores, structure = tokenizer.score(pixels), tokenizer.structure(pixels)
    assert structure is not None
    busy = busy_nodes(scores, pixels.extent, _PERCENTILE)
    fired = fired_nodes(busy, structure, tokenizer.rank)
    splits = gated_splits(busy, structure, tokenizer.rank)
    ungated, gated = (tokens_from_splits(nodes, pixels.extent, canvas.source_size) for nodes in (busy, splits))
    stopped = int(fired.coarse.sum() + (fired.middle & children(splits.coarse)).sum())
    return _Stages(canvas, scores, structure, ungated, gated, stopped)


def _grid_picture(values: NDArray[np.float32], canvas: Canvas, size: int) -> NDArray[np.uint8]:
    """Return a grid of nodes as a heat map of the image; the square root makes weak responses visible."""
    valid = values[: canvas.extent.rows(size), : canvas.extent.columns(size)]
    whole = heat_map(np.sqrt(valid), (valid.shape[0] * size, valid.shape[1] * size))
    rows, columns = canvas.image.shape[:2]
    return np.ascontiguousarray(whole[:rows, :columns])


def _sequence_picture(tokens: Tokens, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return every token as one square in sequence order, colored by its size; blank squares are tokens saved."""
    columns = int(np.ceil(np.sqrt(tokens.dense * shape[1] / shape[0])))
    rows = -(-tokens.dense // columns)
    squares = np.full((rows * columns, 3), 238, dtype=np.uint8)
    for size in (CELL, NODE, ROOT):
        squares[np.flatnonzero(tokens.sizes == size)] = COLORS[size]
    side = max(4, shape[1] // columns)
    picture = np.kron(squares.reshape(rows, columns, 3), np.ones((side, side, 1), dtype=np.uint8))
    picture[::side] = picture[:, ::side] = 255
    return np.asarray(cv2.resize(picture, (shape[1], shape[0]), interpolation=cv2.INTER_AREA), dtype=np.uint8)


STUDIES = (
    Study("teaser", "Figure 1: one frame at 70% of tokens", teaser, takes=("data", "frame")),
    Study("method", "Figure 2: score, split, gate, pack", method, takes=("data", "frame")),
)
