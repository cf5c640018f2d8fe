"""The whole network: encoder, pyramid, query head and the auxiliary heads that help it train."""

from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor, nn

from vgtok.detect.config import DetectorConfig
from vgtok.tokenize.tokens import Tokens

Head = Literal["query", "atss"]
"""The heads that predict."""

Prediction = tuple[Tensor, Tensor, Tensor]
"""(N, 4) boxes x0 y0 x1 y1 in canvas pixels, (N,) scores, best first, and (N,) labels."""


class CoDetr(nn.Module):
    """`encoder`, `neck`, `query_head`, and `rpn_head`, `roi_head`, `atss_head` where the configuration has them."""

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config = config

    def predict(
        self, frames: Sequence[Tensor], tokens: Sequence[Tokens], max_detections: int, head: Head = "query"
    ) -> list[Prediction]:
        """B (3, H, W) uint8 frames on the canvas with their partitions to a prediction each."""
        raise NotImplementedError

    def loss(
        self, frames: Sequence[Tensor], tokens: Sequence[Tokens], targets: Sequence[Mapping[str, Tensor]]
    ) -> dict[str, Tensor]:
        """Every weighted loss by name; targets hold (N, 4) `boxes` x0 y0 x1 y1 in canvas px and (N,) `labels`."""
        raise NotImplementedError

    def parts(self) -> dict[str, int]:
        """Parameters by part."""
        return {name: sum(p.numel() for p in part.parameters()) for name, part in self.named_children()}
