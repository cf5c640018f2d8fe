"""Feature maps and regions to one small grid of features per region: RoIAlign in plain PyTorch.

Each output bin is a weighted sum of cells of the flattened maps, so one ragged bag per bin reads all regions of all
images at once, however many points a bin is sampled at.
"""

import torch
from torch import Tensor
from torch.nn import functional


def roi_align(
    features: Tensor, rois: Tensor, output_size: tuple[int, int], scale: float, sampling: int | None = None
) -> Tensor:
    """Read (R, 5) regions, image number and x0 y0 x1 y1 in pixels, from (B, C, H, W) maps: (R, C, oh, ow).

    `scale` maps pixels to cells (one over the stride); the first cell's centre lies half a stride in. A bin is the mean
    of `sampling` x `sampling` bilinear points, or of one point per cell it spans, rounded up, where none is given.
    Gradients reach the features, not the regions.
    """
    channels, height, width = features.shape[1:]
    rows, columns = output_size
    # (B * H * W, C): a row per cell
    table = features.permute(0, 2, 3, 1).reshape(-1, channels)
    if not len(rois):
        return torch.unflatten(table[:0], 0, (0, rows, columns)).permute(0, 3, 1, 2)
    rois = rois.detach().float()
    first_cell = rois[:, 0].long() * (height * width)
    # (R, 2) first corner and sides in cells, x before y
    corner = rois[:, 1:3] * scale - 0.5
    side = (rois[:, 3:5] - rois[:, 1:3]) * scale
    bins = side.new_tensor([columns, rows])
    points = (side / bins).ceil().clamp(min=1).long() if sampling is None else torch.full_like(side, sampling).long()
    indices, weights, counts, order = [], [], [], []
    for across, down in torch.unique(points, dim=0).tolist():
        member = ((points[:, 0] == across) & (points[:, 1] == down)).nonzero().flatten()
        # (r, ow, 2 * across) columns of cells and (r, oh, 2 * down) rows, with their weights
        column, column_weight = _taps(corner[member, 0], side[member, 0], columns, across, width)
        row, row_weight = _taps(corner[member, 1], side[member, 1], rows, down, height)
        # (r, oh, ow, 2 * down, 2 * across)
        index = row[:, :, None, :, None] * width + column[:, None, :, None, :]
        weight = row_weight[:, :, None, :, None] * column_weight[:, None, :, None, :]
        indices.append((index + first_cell[member, None, None, None, None]).flatten())
        weights.append(weight.flatten())
        counts.append(torch.full((len(member) * rows * columns,), 4 * across * down, device=rois.device))
        order.append(member)
    sizes = torch.cat(counts)
    # (R * oh * ow, C), regions in the order of the groups; then each back at its place
    out = functional.embedding_bag(
        torch.cat(indices),
        table,
        sizes.cumsum(0) - sizes,
        per_sample_weights=torch.cat(weights).to(table.dtype),
        mode="sum",
    )
    out = torch.unflatten(out, 0, (-1, rows, columns)).permute(0, 3, 1, 2)
    return out.index_select(0, torch.cat(order).argsort())


def _taps(corner: Tensor, side: Tensor, bins: int, points: int, cells: int) -> tuple[Tensor, Tensor]:
    """Along one axis, the two cells each sample point of each bin reads and their weights: both (r, bins, 2 * points).

    A point up to one cell beyond the map reads the edge; farther out it reads nothing.
    """
    step = side / (bins * points)
    offset = torch.arange(bins * points, device=corner.device) + 0.5
    at = corner[:, None] + offset * step[:, None]
    inside = (at >= -1) & (at <= cells)
    at = at.clamp(0, cells - 1)
    low = at.floor()
    upper = at - low
    index = torch.stack([low, (low + 1).clamp(max=cells - 1)], dim=-1).long()
    weight = torch.stack([1 - upper, upper], dim=-1) * (inside[..., None] / points)
    # (r, bins * points, 2) to (r, bins, points * 2)
    return index.reshape(-1, bins, 2 * points), weight.reshape(-1, bins, 2 * points)
