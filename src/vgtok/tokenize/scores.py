"""Scores: how much fine structure each cell, node and root of a canvas shows.

`CanvasPixels` enter, a `Pyramid` of values leaves; patches with higher values are split first.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.tokenize.geometry import CELL, NODE, ROOT, CanvasPixels, Grid, Pyramid, nest, parents, pool_bands, scratch
from vgtok.tokenize.structure import PAPER_FUSED, half_size, lambda_min_cells

Scorer = Callable[[CanvasPixels], Pyramid]
TOP_HAT_WIDTHS = (5, 9, 17)


def top_hat_cells(pixels: CanvasPixels, width: int = max(TOP_HAT_WIDTHS)) -> Grid:
    """Return the largest white or black top-hat response of a square element in each cell.

    The largest width suffices: an opening by a larger square never exceeds one by a smaller square, so the maximum over
    5, 9 and 17 px in both polarities equals the 17-px response in every pixel.
    """
    return _largest_response(pixels, pixels.luma, width)


def _largest_response(pixels: CanvasPixels, luma: NDArray[Any], width: int) -> Grid:
    """Return the largest response per cell to a square element, on (height, width) luma of any type."""
    element = np.ones((width, width), dtype=np.uint8)

    def map_band(rows: slice) -> NDArray[Any]:
        band = luma[rows]
        half_way, opened, closed = (scratch(name, band.shape, band.dtype) for name in ("half way", "opened", "closed"))
        cv2.erode(band, element, dst=half_way)
        cv2.dilate(half_way, element, dst=opened)
        cv2.dilate(band, element, dst=half_way)
        cv2.erode(half_way, element, dst=closed)
        np.subtract(band, opened, out=opened)
        np.subtract(closed, band, out=closed)
        return np.asarray(np.maximum(opened, closed, out=opened))

    return pool_bands(pixels.extent, halo=width - 1, map_band=map_band)


def top_hat(pixels: CanvasPixels) -> Pyramid:
    """Multi-scale morphological top-hat: contrast to the surroundings. The default score."""
    return nest(top_hat_cells(pixels))


def top_hat_float32(pixels: CanvasPixels) -> Pyramid:
    """The top-hat on float32 luma, the paper's reading: its rounding breaks ties that exact luma leaves."""
    red, green, blue = (pixels.rgb[..., channel].astype(np.float32) for channel in range(3))
    # Term by term: a matrix product would round as the library behind it does.
    luma = np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue
    return nest(_largest_response(pixels, luma, max(TOP_HAT_WIDTHS)))


def lambda_min(pixels: CanvasPixels) -> Pyramid:
    """The smaller eigenvalue of the structure tensor, read at half size as by the default gate."""
    return nest(lambda_min_cells(pixels))


def fused(pixels: CanvasPixels) -> Pyramid:
    """Sum of top-hat and lambda_min (full size, 5 px window), each divided by its largest value in the image."""
    total = np.zeros(pixels.extent.grid_shape(CELL), dtype=np.float32)
    for cells in (top_hat_cells(pixels), lambda_min_cells(pixels, PAPER_FUSED)):
        peak = cells.max()
        if peak > 0:
            total += cells / peak
    return nest(total)


# The compact score: contrast in every direction, relative to the clutter around it, and the contrast of wide objects.

COMPACT_SQUARE = np.ones((9, 9), dtype=np.uint8)

COMPACT_WIDE = np.ones((17, 17), dtype=np.uint8)
"""Element of wide objects, 33 px at full size."""

_WIDE_WEIGHT = np.float32(5)
"""Factor at which wide contrast adds about as much to the scores of an image as compact contrast does."""

_NEIGHBORHOOD = 7
"""Side in cells of the square a cell is compared with: 112 px, a few vehicles wide."""

_FLOOR = 2.0**18
"""Smallest clutter of a neighborhood, so that noise on empty ground does not count as objects."""


def _lines() -> tuple[NDArray[np.uint8], ...]:
    """Return eight straight elements on the half-size grid, 5 to 7 px long, about 22 degrees apart."""
    shallow = np.zeros((7, 7), dtype=np.uint8)
    shallow[[2, 2, 3, 3, 3, 4, 4], np.arange(7)] = 1
    diagonal = np.eye(5, dtype=np.uint8)
    elements = (np.ones((1, 7), dtype=np.uint8), diagonal, shallow, shallow[::-1])
    turned = (elements[0].T, diagonal[::-1], shallow.T, shallow[::-1].T)
    return tuple(np.ascontiguousarray(element) for element in elements + turned)


COMPACT_LINES = _lines()


def compact(pixels: CanvasPixels) -> Pyramid:
    """Compact two-dimensional contrast, weighted by that of the neighbors and divided by the clutter around.

    Large objects are their own clutter, so the contrast that a wide square leaves is added.
    """
    return compact_pyramid(*_contrasts(pixels), lambda_min_cells(pixels))


def compact_pyramid(contrast: Grid, clutter: Grid, wide: Grid, structure: Grid) -> Pyramid:
    """Return the compact scores of (R, C) grids of cells: line responses, square ones, wide ones and lambda_min."""
    evidence = np.floor(contrast.astype(np.float64) * np.sqrt(structure.astype(np.float64)))
    support, price = _neighborhood(evidence), _neighborhood(clutter) + _FLOOR
    fine = np.rint(65536.0 * np.sqrt(evidence * support) / price).astype(np.float32) + _WIDE_WEIGHT * wide
    middle = parents(fine)
    return Pyramid(fine, middle, _worth_of_roots(middle))


def _worth_of_roots(middle: Grid) -> Grid:
    """Return the threshold up to which the split of a root pays off: (2R, 2C) node scores to (R, C).

    Splitting a root costs as much as splitting a node. It pays off while the surplus of its nodes over the threshold
    exceeds the threshold, that is below the largest of (sum of the k best nodes) / (k + 1).
    """
    rows, columns = middle.shape
    four = middle.reshape(rows // 2, 2, columns // 2, 2).transpose(0, 2, 1, 3).reshape(rows // 2, columns // 2, 4)
    sums = np.sort(four.astype(np.float64), axis=-1)[..., ::-1].cumsum(axis=-1)
    return np.asarray((sums / np.arange(2.0, 6.0)).max(axis=-1), dtype=np.float32)


def _contrasts(pixels: CanvasPixels) -> tuple[Grid, Grid, Grid]:
    """Return per cell the largest line response, the sum of square responses and the largest response to a wide square.

    They are taken on the root of half-size luma: it evens out light and shadow, so that one threshold serves both.
    """
    root = (np.sqrt(half_size(pixels.luma).astype(np.float32)) * np.float32(256)).astype(np.uint16)

    def pooled(elements: Sequence[NDArray[np.uint8]], pool: np.ufunc = np.maximum) -> Grid:
        halo = 2 * (max(element.shape[0] for element in elements) - 1)
        return pool_bands(
            pixels.extent,
            halo,
            lambda rows: _top_hat(root[rows.start // 2 : -(-rows.stop // 2)], elements),
            2,
            pool,
        )

    return pooled(COMPACT_LINES), pooled((COMPACT_SQUARE,), np.add), pooled((COMPACT_WIDE,))


def _top_hat(values: NDArray[np.uint16], elements: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint16]:
    """Return the larger of values minus their highest opening and their lowest closing minus values, (H, W)."""
    opened, closed = (
        reduce(combine, (cv2.morphologyEx(values, kind, element) for element in elements))
        for kind, combine in ((cv2.MORPH_OPEN, np.maximum), (cv2.MORPH_CLOSE, np.minimum))
    )
    return np.asarray(np.maximum(values - opened, closed - values))


def _neighborhood(cells: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return sums over the square of cells around each cell; cells outside the grid and padding count as 0."""
    size = (_NEIGHBORHOOD, _NEIGHBORHOOD)
    sums = cv2.boxFilter(cells.astype(np.float64), -1, size, normalize=False, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(sums, dtype=np.float64)


# The other scores of the paper.


def max_deviation(pixels: CanvasPixels) -> Pyramid:
    """Largest absolute difference between a pixel's luma and the mean of its cell."""
    blocks, valid = _cell_blocks(pixels, pixels.luma)
    mean = blocks.sum(axis=-1) / valid.sum(axis=-1)
    return nest(_on_grid(pixels, np.where(valid, np.abs(blocks - mean[..., None]), 0.0).max(axis=-1)))


def max_deviation_lab(pixels: CanvasPixels) -> Pyramid:
    """Largest CIE Lab distance between a pixel and the mean color of its cell."""
    lab = cv2.cvtColor(pixels.rgb, cv2.COLOR_RGB2LAB)
    squared: NDArray[Any] | float = 0.0
    for channel in range(3):
        blocks, valid = _cell_blocks(pixels, lab[:, :, channel])
        mean = blocks.sum(axis=-1) / valid.sum(axis=-1)
        squared = squared + np.where(valid, blocks - mean[..., None], 0.0) ** 2
    return nest(_on_grid(pixels, np.sqrt(np.asarray(squared).max(axis=-1))))


def upsample_mse(pixels: CanvasPixels) -> Pyramid:
    """Mean squared error left when a region is rendered at 16 x 16 samples and enlarged again.

    At 16 px the rendering is the region itself, so the finest grid is zero by definition. A quadtree takes its
    threshold there, so it cannot hold this score to a budget, as the paper reports.
    """
    extent = pixels.extent
    height, width = extent.root_rows * ROOT, extent.root_columns * ROOT
    padding = ((0, height - extent.height), (0, width - extent.width))
    luma = np.pad(pixels.luma, padding, mode="edge").astype(np.float32)
    grids = [np.zeros(extent.grid_shape(CELL), dtype=np.float32)]
    for size in (NODE, ROOT):
        small = cv2.resize(luma, (width * CELL // size, height * CELL // size), interpolation=cv2.INTER_AREA)
        coarse = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
        error = ((luma - coarse) ** 2).reshape(height // size, size, width // size, size).mean(axis=(1, 3))
        grids.append(np.where(extent.valid(size), error, 0.0).astype(np.float32))
    return Pyramid(*grids)


def gradient_energy(pixels: CanvasPixels) -> Pyramid:
    """Mean squared 3 x 3 Sobel gradient of the luma over a cell."""
    x = cv2.Sobel(pixels.luma, cv2.CV_32F, 1, 0, borderType=cv2.BORDER_REPLICATE)
    y = cv2.Sobel(pixels.luma, cv2.CV_32F, 0, 1, borderType=cv2.BORDER_REPLICATE)
    return nest(_cell_mean(pixels, x * x + y * y))


def laplacian(pixels: CanvasPixels) -> Pyramid:
    """Mean absolute 3 x 3 Laplacian of the luma over a cell."""
    return nest(_cell_mean(pixels, np.abs(cv2.Laplacian(pixels.luma, cv2.CV_32F, borderType=cv2.BORDER_REPLICATE))))


def entropy(pixels: CanvasPixels) -> Pyramid:
    """Shannon entropy in bits of a cell's luma histogram, 32 equal bins."""
    bins = 32
    blocks, valid = _cell_blocks(pixels, pixels.luma >> 11)
    rows, columns = blocks.shape[:2]
    # One histogram for all cells: each has 32 consecutive counters; padding goes to a last one that is dropped.
    owner = np.arange(rows * columns).reshape(rows, columns, 1) * bins
    slots = np.where(valid, owner + blocks.astype(np.int64), rows * columns * bins)
    counts = np.bincount(slots.ravel(), minlength=rows * columns * bins + 1)[:-1].reshape(rows, columns, bins)
    share = counts / valid.sum(axis=-1, keepdims=True)
    logarithms = np.log2(share, out=np.zeros_like(share), where=share > 0)
    return nest(_on_grid(pixels, -(share * logarithms).sum(axis=-1)))


SCORES: dict[str, Scorer] = {
    "tophat": top_hat,
    "tophat_float32": top_hat_float32,
    "fused": fused,
    "compact": compact,
    "lambda_min": lambda_min,
    "max_deviation_lab": max_deviation_lab,
    "max_deviation": max_deviation,
    "upsample_mse": upsample_mse,
    "gradient_energy": gradient_energy,
    "laplacian": laplacian,
    "entropy": entropy,
}
"""Scores by name: the default, the paper's reading of it, its fusion with lambda_min, compact, the paper's others."""


def _cell_blocks(pixels: CanvasPixels, values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the (256,) values of each cell, zero beyond the edge, and which of them are valid."""
    extent = pixels.extent
    rows, columns = extent.rows(CELL), extent.columns(CELL)

    def blocks(array: NDArray[Any]) -> NDArray[Any]:
        padding = ((0, rows * CELL - extent.height), (0, columns * CELL - extent.width))
        tiles = np.pad(array, padding).reshape(rows, CELL, columns, CELL)
        return tiles.transpose(0, 2, 1, 3).reshape(rows, columns, CELL * CELL)

    return blocks(values).astype(np.float64), blocks(np.ones(values.shape, dtype=np.bool_))


def _cell_mean(pixels: CanvasPixels, values: NDArray[Any]) -> Grid:
    blocks, valid = _cell_blocks(pixels, values)
    return _on_grid(pixels, blocks.sum(axis=-1) / valid.sum(axis=-1))


def _on_grid(pixels: CanvasPixels, cells: NDArray[Any]) -> Grid:
    """Place (rows, columns) of valid cells on the grid padded to whole roots."""
    grid = np.zeros(pixels.extent.grid_shape(CELL), dtype=np.float32)
    grid[: cells.shape[0], : cells.shape[1]] = cells
    return grid
