"""Partition batches whose pixels are already on an accelerator; the only module of this package that imports torch.

The top-hat, the compact score and the default gate are computed on the device by maxima over exact values; a few
numbers per 16-px cell move to the host, where the shared numpy code splits. Other scores and gates read the pixels on
the host. The partitions equal those of the OpenCV path bit for bit.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from vgtok.errors import InputError
from vgtok.tokenize.canvas import fit_canvas
from vgtok.tokenize.geometry import CELL, LUMA_WEIGHTS, Extent, Grid, Pyramid, nest
from vgtok.tokenize.scores import COMPACT_LINES, COMPACT_SQUARE, COMPACT_WIDE, TOP_HAT_WIDTHS, compact_pyramid
from vgtok.tokenize.split import Structure
from vgtok.tokenize.structure import HALF_SIZE, LUMA_BITS
from vgtok.tokenize.tokens import Tokens, tokens_from_splits

if TYPE_CHECKING:
    from vgtok.tokenize.tokenizer import Tokenizer


def partition_batch(tokenizer: "Tokenizer", images: Tensor) -> list[Tokens]:
    """Partition (B, 3, H, W) uint8 RGB images of one size, without resizing them."""
    if not isinstance(images, Tensor):
        raise InputError(f"images: a {type(images).__name__} is not a uint8 (B, 3, H, W) tensor")
    if images.layout != torch.strided or images.is_meta:
        raise InputError(f"images: a {'meta' if images.is_meta else 'sparse'} tensor holds no pixels to read")
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8 or 0 in images.shape:
        raise InputError(f"images: {images.dtype} of shape {tuple(images.shape)} is not a uint8 (B, 3, H, W) batch")
    if tokenizer.scorer not in _SCORES or (tokenizer.gated and tokenizer.gate != "lambda_min"):
        host = images.permute(0, 2, 3, 1).cpu().numpy()
        return [tokenizer.partition(fit_canvas(np.ascontiguousarray(image), "native")) for image in host]
    extent = Extent(*images.shape[2:])
    luma = luma_16_bit(images)
    scores = _SCORES[tokenizer.scorer](luma, extent)
    structures = _on_host(lambda_min_cells(luma), extent) if tokenizer.gated else [None] * len(scores)
    return [
        tokens_from_splits(
            tokenizer.split(score, None if cells is None else Structure(*nest(cells)[1:]), extent),
            extent,
            (extent.height, extent.width),
        )
        for score, cells in zip(scores, structures, strict=True)
    ]


def top_hat(luma: Tensor, extent: Extent) -> list[Pyramid]:
    """Return the default score of each (B, 1, H, W) luma."""
    return [nest(cells) for cells in _on_host(top_hat_cells(luma), extent)]


def compact(luma: Tensor, extent: Extent) -> list[Pyramid]:
    """Return the compact score of each (B, 1, H, W) luma."""
    root = torch.floor(torch.sqrt(half_size(luma)) * 256)
    cell = CELL // HALF_SIZE.shrink
    responses = [_response(root, elements) for elements in (COMPACT_LINES, (COMPACT_SQUARE,), (COMPACT_WIDE,))]
    largest, total, wide = responses
    grids = (_pool_cells(largest, cell), _sum_cells(total, cell), _pool_cells(wide, cell), lambda_min_cells(luma))
    return [compact_pyramid(*parts) for parts in zip(*(_on_host(grid, extent) for grid in grids), strict=True)]


_SCORES: dict[object, Callable[[Tensor, Extent], list[Pyramid]]] = {"tophat": top_hat, "compact": compact}


def luma_16_bit(images: Tensor) -> Tensor:
    """Return the exact 16-bit fixed-point luma as float32: (B, 3, H, W) uint8 to (B, 1, H, W)."""
    weights = torch.tensor(LUMA_WEIGHTS, dtype=torch.float32, device=images.device).view(1, 3, 1, 1)
    return (images.float() * weights).sum(dim=1, keepdim=True)


def top_hat_cells(luma: Tensor) -> Tensor:
    """Return the largest 17-px white or black top-hat response per cell: (B, 1, H, W) to (B, rows, columns)."""
    opened = _dilate(-_dilate(-luma))
    closed = -_dilate(-_dilate(luma))
    return _pool_cells(torch.maximum(luma - opened, closed - luma), CELL)


def lambda_min_cells(luma: Tensor) -> Tensor:
    """Return the largest half-size lambda_min per cell: (B, 1, H, W) to (B, rows, columns)."""
    half = torch.floor(half_size(luma) / 2 ** (16 - LUMA_BITS))
    near = functional.pad(half, (1, 1, 1, 1), mode="replicate")
    down = near[:, :, :-2] + 2 * near[:, :, 1:-1] + near[:, :, 2:]
    across = near[:, :, :, :-2] + 2 * near[:, :, :, 1:-1] + near[:, :, :, 2:]
    x = (down[:, :, :, 2:] - down[:, :, :, :-2]).int()
    y = (across[:, :, 2:] - across[:, :, :-2]).int()
    # From here on the same IEEE operations in the same order as the OpenCV path; a mean is a quarter of a sum.
    xx, yy, xy = (_windowed(product).float() / HALF_SIZE.stride**2 for product in (x * x, y * y, x * y))
    spread, cross = xx - yy, xy * 2
    smaller = (xx + yy) - torch.sqrt(spread * spread + cross * cross)
    return _pool_cells(smaller.clamp_min(0), CELL // HALF_SIZE.step)


def half_size(luma: Tensor) -> Tensor:
    """Return the means of 2 x 2 blocks, rounded half up: (B, 1, H, W) to (B, 1, ceil(H/2), ceil(W/2))."""
    height, width = luma.shape[2:]
    even = functional.pad(luma, (0, width % 2, 0, height % 2), mode="replicate")
    # Whole numbers below 2 ** 18 throughout
    blocks = even[:, :, 0::2, 0::2] + even[:, :, 0::2, 1::2] + even[:, :, 1::2, 0::2] + even[:, :, 1::2, 1::2]
    return torch.floor((blocks + 2) / 4)


def _response(values: Tensor, elements: Sequence[NDArray[np.uint8]]) -> Tensor:
    """Return the larger of values minus their highest opening and their lowest closing minus values, (B, 1, H, W)."""
    opened = reduce(torch.maximum, (_largest(-_largest(-values, element), element) for element in elements))
    closed = reduce(torch.minimum, (-_largest(-_largest(values, element), element) for element in elements))
    return torch.maximum(values - opened, closed - values)


def _largest(values: Tensor, element: NDArray[np.uint8]) -> Tensor:
    """Return the maximum of (B, 1, H, W) values over an element centered on each; outside the image nothing counts."""
    height, width = values.shape[2:]
    rows, columns = element.shape
    padded = functional.pad(values, (columns // 2, columns // 2, rows // 2, rows // 2), value=-torch.inf)
    if element.all():
        return functional.max_pool2d(functional.max_pool2d(padded, (1, columns), stride=1), (rows, 1), stride=1)
    shifts = (padded[:, :, y : y + height, x : x + width] for y, x in np.argwhere(element))
    return reduce(torch.maximum, shifts)


def _sum_cells(values: Tensor, cell: int) -> Tensor:
    """Return sums per cell of whole numbers: (B, 1, H, W) to (B, rows, columns)."""
    height, width = values.shape[2:]
    rows, columns = -(-height // cell), -(-width // cell)
    whole = functional.pad(values, (0, columns * cell - width, 0, rows * cell - height))
    return whole.reshape(-1, rows, cell, columns, cell).sum(dim=(2, 4))


def _dilate(values: Tensor) -> Tensor:
    """Return the maximum over 17 x 17 px, rows then columns; max pooling ignores what lies outside the image."""
    width = max(TOP_HAT_WIDTHS)
    rows = functional.max_pool2d(values, (1, width), stride=1, padding=(0, width // 2))
    return functional.max_pool2d(rows, (width, 1), stride=1, padding=(width // 2, 0))


def _windowed(values: Tensor) -> Tensor:
    """Return sums of (B, 1, H, W) int32 values over windows one stride apart; values outside the image are 0."""
    window, stride = HALF_SIZE.window, HALF_SIZE.stride
    rows, columns = (-(-side // stride) for side in values.shape[2:])
    # A window of an even number of blocks reaches one block further up and left.
    before, after = window // 2, window // 2 + stride
    padded = functional.pad(values, (before, after, before, after))
    across = padded.unfold(3, window, stride)[:, :, :, :columns].sum(dim=-1, dtype=torch.int32)
    return across.unfold(2, window, stride)[:, :, :rows].sum(dim=-1, dtype=torch.int32)


def _pool_cells(values: Tensor, cell: int) -> Tensor:
    return functional.max_pool2d(values, cell, ceil_mode=True)[:, 0]


def _on_host(cells: Tensor, extent: Extent) -> list[Grid]:
    """Move (B, rows, columns) cells to the host, one padded grid per image."""
    grids = np.zeros((cells.shape[0], *extent.grid_shape(CELL)), dtype=np.float32)
    grids[:, : cells.shape[1], : cells.shape[2]] = cells.cpu().numpy()
    return list(grids)
