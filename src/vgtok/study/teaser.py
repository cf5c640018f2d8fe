"""Figure 1: one frame at 70% of tokens, and the crop without objects where the gate saves most."""

import numpy as np
from numpy.typing import NDArray

from vgtok.study.frame import PAPER_FRAME, picture_frame
from vgtok.study.nodes import nodes_with_objects
from vgtok.study.paper import percentile
from vgtok.study.result import Inputs, Read, Result, Row, Study
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import ROOT
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens

_BUDGET = 0.70
_CROP = (4, 4)
"""Rows and columns of 64-px roots in the enlarged region."""

_PAPER = {"objects": 317, "small_objects": 280, "crop_tokens_ungated": 204, "crop_tokens_gated": 174}


def run(inputs: Inputs) -> Result:
    """Draw ground truth, the 70% partition, and one crop raw, by contrast alone and gated, at the same threshold."""
    from vgtok.show.overlay import draw_tokens
    from vgtok.show.plot import boxed, panel_rows

    frame = picture_frame(inputs)
    threshold = percentile("visdrone", SHIPPED_RANK, _BUDGET)
    gated_tokenizer = Tokenizer(percentile=threshold)
    canvas = gated_tokenizer.to_canvas(frame.image)
    gated = gated_tokenizer.partition(canvas)
    ungated = Tokenizer(percentile=threshold, rank=0.0).partition(canvas)
    crop = _emptiest_saving(ungated, gated, canvas, canvas.from_source(frame.boxes))
    sides = np.sqrt(np.prod(frame.boxes[:, 2:] - frame.boxes[:, :2], axis=1))
    measured = {
        "objects": len(frame.boxes),
        "small_objects": int((sides < 32).sum()),
        "crop_tokens_ungated": len(_inside(ungated, crop)),
        "crop_tokens_gated": len(_inside(gated, crop)),
    }
    rows: list[Row] = [{"quantity": name, "paper": _PAPER[name], "measured": measured[name]} for name in _PAPER]
    rows.append({"quantity": "retained", "paper": _BUDGET, "measured": gated.retained})
    overlay = np.asarray(draw_tokens(gated, frame.image))
    # An overlay of a small image is enlarged; its crop scales along.
    region = _on_picture(crop, canvas, overlay.shape)
    parts = [
        (f"(a) ground truth: {len(frame.boxes)} objects", boxed(frame.image, frame.boxes, (255, 60, 60))),
        (f"(b) {len(gated)} tokens, {gated.retained:.1%} of the dense grid", boxed(overlay, region[None], (255, 0, 0))),
    ]
    details = [
        ("(c) the boxed region", _cut(frame.image, _on_picture(crop, canvas, frame.image.shape))),
        (
            f"(d) contrast alone: {measured['crop_tokens_ungated']} tokens",
            _cut(np.asarray(draw_tokens(ungated, frame.image)), region),
        ),
        (f"(e) gated: {measured['crop_tokens_gated']} tokens", _cut(overlay, region)),
    ]
    notes = [
        f"frame {frame.name}; the paper's is {PAPER_FRAME} and its crop is not given",
        f"the crop here is the {_CROP[1]} x {_CROP[0]} roots without an object where the gate saves most",
    ]
    return Result(rows, notes, pictures={"teaser": panel_rows([parts, details], width=1800)}, read=Read(frame.data, 1))


def _emptiest_saving(ungated: Tokens, gated: Tokens, canvas: Canvas, boxes: NDArray[np.float64]) -> NDArray[np.int64]:
    """The (4,) canvas box of whole roots, free of objects where there is such a one, in which the gate saves most."""
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
    """A (4,) canvas box in the pixels of a picture of the same frame at another size."""
    ratio = np.array([shape[1] / canvas.width, shape[0] / canvas.height] * 2)
    return np.asarray(crop * ratio)


def _cut(picture: NDArray[np.uint8], box: NDArray[np.float64]) -> NDArray[np.uint8]:
    x0, y0, x1, y1 = np.rint(box).astype(int)
    return np.ascontiguousarray(picture[y0:y1, x0:x1])


STUDY = Study("teaser", "Figure 1: one frame at 70% of tokens", run, takes=("data", "frame"))
