"""Pixels to patches: normalised 16-px cells gathered where tokens ask for them, coarse regions resampled to one.

Nothing is computed for the whole frame: 8-bit pixels are gathered first and turned to floats after. What lies beyond
the valid area reads as zero after normalisation, as in a dense model that pads; a coarse token at a ragged edge repeats
the last cells of the grid instead of reading cells that do not exist.
"""

import torch
from torch import Tensor
from torch.nn import functional

from vgtok.encode.config import EncoderConfig, Resampling


def normalise(pixels: Tensor, config: EncoderConfig, dtype: torch.dtype) -> Tensor:
    """(..., 3, H, W) 8-bit RGB to zero mean and unit deviation; floats are taken as normalised already."""
    if pixels.dtype != torch.uint8:
        return pixels.to(dtype)
    mean = torch.tensor(config.mean, device=pixels.device, dtype=dtype).view(3, 1, 1)
    std = torch.tensor(config.std, device=pixels.device, dtype=dtype).view(3, 1, 1)
    return pixels.to(dtype).sub_(mean).div_(std)


def cell_patches(image: Tensor, row: Tensor, column: Tensor, config: EncoderConfig, dtype: torch.dtype) -> Tensor:
    """Gather normalised cells of a (3, H, W) image at (...) cell rows and columns: (..., 3, patch, patch)."""
    patch = config.patch
    height, width = image.shape[1:]
    rows, columns = (-(-side // (patch * config.grid_multiple)) * config.grid_multiple for side in (height, width))
    ragged = (rows * patch, columns * patch) != (height, width)
    if ragged:
        image = functional.pad(image, (0, columns * patch - width, 0, rows * patch - height))
    # (3, rows * patch, columns * patch) to (rows, columns, 3, patch, patch): a view, no pixel moves
    cells = torch.unflatten(torch.unflatten(image, 2, (columns, patch)), 1, (rows, patch)).permute(1, 3, 0, 2, 4)
    row, column = row.clamp(max=rows - 1), column.clamp(max=columns - 1)
    patches = normalise(cells[row, column], config, dtype)
    if ragged:
        step = torch.arange(patch, device=image.device)
        inside_row = row[..., None] * patch + step < height
        inside_column = column[..., None] * patch + step < width
        # (..., 1, patch, patch) over the channels
        patches = patches * (inside_row[..., :, None] & inside_column[..., None, :]).unsqueeze(-3)
    return patches


def region_patches(
    image: Tensor, row: Tensor, column: Tensor, span: int, config: EncoderConfig, dtype: torch.dtype
) -> Tensor:
    """Cells under (n,) tokens of `span` cells a side, first cell (row, column): (n, span, span, 3, patch, patch)."""
    step = torch.arange(span, device=image.device)
    down = (row[:, None, None] + step[:, None]).expand(-1, span, span)
    right = (column[:, None, None] + step[None, :]).expand(-1, span, span)
    return cell_patches(image, down, right, config, dtype)


def resample(cells: Tensor, resampling: Resampling) -> Tensor:
    """Regions of (n, span, span, 3, patch, patch) cells to one patch each, (n, 3, patch, patch)."""
    count, span, _, _, patch, _ = cells.shape
    # (n, span, span, 3, patch, patch) to (n, 3, span * patch, span * patch)
    region = cells.permute(0, 3, 1, 4, 2, 5).reshape(count, 3, span * patch, span * patch)
    if span == 1 or count == 0:
        return region[:, :, :patch, :patch]
    if resampling == "area":
        return functional.avg_pool2d(region, span)
    # In full precision: there is no antialiasing kernel for half on every device.
    small = functional.interpolate(
        region.float(), size=(patch, patch), mode=resampling, align_corners=False, antialias=resampling == "bicubic"
    )
    return small.to(cells.dtype)
