"""Figure 2: the four stages on one frame, at p = 40 and rank 0.20: score, split, gate, pack."""

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.study.frame import picture_frame
from vgtok.study.result import Inputs, Read, Result, Row, Study
from vgtok.tokenize.canvas import Canvas
from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels, children
from vgtok.tokenize.scores import SCORES
from vgtok.tokenize.split import GATES, busy_nodes, fired_nodes, gated_splits
from vgtok.tokenize.tokenizer import SHIPPED_RANK, Tokenizer
from vgtok.tokenize.tokens import Tokens, tokens_from_splits

_PERCENTILE = 40.0
_PAPER = {"gated_nodes": 77, "tokens_ungated": 1842, "tokens_gated": 1500}


def run(inputs: Inputs) -> Result:
    """Run the stages by hand on one frame at its own size and draw what each leaves."""
    from vgtok.show.overlay import draw_tokens
    from vgtok.show.plot import panel_rows

    chosen = picture_frame(inputs)
    canvas = Tokenizer(budget=1.0, canvas="native").to_canvas(chosen.image)
    frame = CanvasPixels(canvas.image)
    scores, structure = SCORES["tophat"](frame), GATES["lambda_min"](frame)
    busy = busy_nodes(scores, frame.extent, _PERCENTILE)
    fired = fired_nodes(busy, structure, SHIPPED_RANK)
    splits = gated_splits(busy, structure, SHIPPED_RANK)
    size = (canvas.source_height, canvas.source_width)
    ungated, gated = (tokens_from_splits(nodes, frame.extent, size) for nodes in (busy, splits))
    emitted = int(fired.coarse.sum() + (fired.middle & children(splits.coarse)).sum())
    measured = {"gated_nodes": emitted, "tokens_ungated": len(ungated), "tokens_gated": len(gated)}
    rows: list[Row] = [{"quantity": name, "paper": _PAPER[name], "measured": measured[name]} for name in _PAPER]
    rows.append({"quantity": "fewer_tokens", "paper": 0.186, "measured": 1 - len(gated) / len(ungated)})
    rows_of_panels = [
        [
            ("input", chosen.image),
            ("1  score: top-hat, max per cell", _grid_picture(scores.fine, canvas, CELL)),
            (f"2  split at p = {_PERCENTILE:g}: {len(ungated)} tokens", np.asarray(draw_tokens(ungated, chosen.image))),
        ],
        [
            ("lambda_min, max per node", _grid_picture(structure.middle, canvas, NODE)),
            (f"3  gate: {emitted} nodes stop, {len(gated)} tokens", np.asarray(draw_tokens(gated, chosen.image))),
            (f"4  pack: one sequence of {len(gated)}", _sequence_picture(gated, chosen.image.shape)),
        ],
    ]
    notes = [
        f"frame {chosen.name} at its own size, {canvas.width} x {canvas.height} px; the paper does not name its frame",
    ]
    return Result(rows, notes, pictures={"method": panel_rows(rows_of_panels, width=2100)}, read=Read(chosen.data, 1))


def _grid_picture(values: NDArray[np.float32], canvas: Canvas, size: int) -> NDArray[np.uint8]:
    """A node grid as a heat map of the valid frame, by the square root so that weak responses show."""
    from vgtok.show.plot import heat_map

    valid = values[: canvas.extent.rows(size), : canvas.extent.columns(size)]
    whole = heat_map(np.sqrt(valid), (valid.shape[0] * size, valid.shape[1] * size))
    return np.ascontiguousarray(whole[: canvas.height, : canvas.width])


def _sequence_picture(tokens: Tokens, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Every token as one square, in sequence order, coloured by its size; blank squares are tokens not spent."""
    from vgtok.show.overlay import COLORS

    columns = int(np.ceil(np.sqrt(tokens.dense * shape[1] / shape[0])))
    rows = -(-tokens.dense // columns)
    squares = np.full((rows * columns, 3), 238, dtype=np.uint8)
    for size in (CELL, NODE, ROOT):
        squares[np.flatnonzero(tokens.sizes == size)] = COLORS[size]
    side = max(4, shape[1] // columns)
    picture = np.kron(squares.reshape(rows, columns, 3), np.ones((side, side, 1), dtype=np.uint8))
    picture[::side] = picture[:, ::side] = 255
    return np.asarray(cv2.resize(picture, (shape[1], shape[0]), interpolation=cv2.INTER_AREA), dtype=np.uint8)


STUDY = Study("method", "Figure 2: score, split, gate, pack", run, takes=("data", "frame"))
