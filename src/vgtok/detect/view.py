"""The part of a frame a feature map shows: all of it, or in training the crop it was made from.

Boxes and codes are shares of the frame; what reads the map needs shares of the map.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class View:
    """A share of the frame is `shift` + `scale` times the share of the map: (B, 1, 2) each, x before y.

    A batch of whole frames has one shift of zero and one scale of one for all.
    """

    shift: Tensor
    scale: Tensor

    def on_frame(self, points: Tensor) -> Tensor:
        """(S, 2) shares of the map to (B, S, 2) shares of the frames."""
        return self.shift + self.scale * points

    def on_map(self, boxes: Tensor) -> Tensor:
        """(B, Q, 4) boxes, centre and size as shares of the frames, as shares of the map."""
        return torch.cat([(boxes[..., :2] - self.shift) / self.scale, boxes[..., 2:] / self.scale], dim=-1)


def whole(like: Tensor) -> View:
    """The view of maps that show whole frames, on the device of `like`."""
    return View(torch.zeros(1, 1, 2, device=like.device), torch.ones(1, 1, 2, device=like.device))


def cut(
    corners: Sequence[tuple[int, int]], size: tuple[int, int], frames: Sequence[tuple[int, int]], like: Tensor
) -> View:
    """B maps of `size` (height, width) px, each at its (x, y) in a frame of its own (height, width) px."""
    # (B, 1, 2), width before height
    extent = torch.tensor(frames, device=like.device, dtype=torch.float32).flip(1)[:, None]
    shift = torch.tensor(corners, device=like.device, dtype=torch.float32)[:, None] / extent
    return View(shift, torch.tensor([size[1], size[0]], device=like.device) / extent)
