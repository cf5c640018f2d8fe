"""Groups of further queries in training, and who of them may see whom.

A group is a set of queries that attend to each other. Proposals see only proposals; noised ground truth also sees
proposals, never another noised copy; positives of an auxiliary head see only themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vgtok.detect.losses import PADDING, Assigned, SetPrediction


@dataclass(frozen=True)
class QueryPart:
    """Queries of one origin: `content` (B, n, D), `boxes` (B, n, 4) as shares, `group` (n,) numbers from zero.

    `assigned` says what they should predict; those it marks as padding are seen by none.
    """

    content: Tensor
    boxes: Tensor
    group: Tensor
    sees_proposals: bool
    assigned: Assigned


@dataclass(frozen=True)
class QueryGroups:
    """All further queries of a batch, by the name of their origin."""

    parts: Mapping[str, QueryPart]

    @property
    def content(self) -> Tensor:
        """(B, G, D)."""
        return torch.cat([part.content for part in self.parts.values()], dim=1)

    @property
    def boxes(self) -> Tensor:
        """(B, G, 4)."""
        return torch.cat([part.boxes for part in self.parts.values()], dim=1)

    def hidden(self, proposals: int) -> Tensor:
        """(B, Q, Q) true where the row's query must not see the column's; Q counts the proposals before the groups."""
        first = next(iter(self.parts.values()))
        numbers = [torch.zeros(proposals, dtype=torch.long, device=first.group.device)]
        looks = [torch.zeros(proposals, dtype=torch.bool, device=first.group.device)]
        real = [torch.ones(len(first.boxes), proposals, dtype=torch.bool, device=first.group.device)]
        taken = 1
        for part in self.parts.values():
            numbers.append(part.group + taken)
            looks.append(torch.full_like(part.group, part.sees_proposals, dtype=torch.bool))
            real.append(part.assigned.labels != PADDING)
            taken = int(numbers[-1].max()) + 1
        number, look = torch.cat(numbers), torch.cat(looks)
        # (Q, Q) by groups, then (B, Q, Q) without padding; a query always sees itself, so no row is empty
        visible = (number[:, None] == number[None]) | (look[:, None] & (number[None] == 0))
        visible = visible & torch.cat(real, dim=1)[:, None]
        return ~(visible | torch.eye(len(number), dtype=torch.bool, device=number.device))

    def split(self, prediction: SetPrediction) -> tuple[SetPrediction, dict[str, SetPrediction]]:
        """Part a prediction for all (B, Q) queries into the proposals' and that of each part by name."""
        lengths = [part.boxes.shape[1] for part in self.parts.values()]
        lengths = [prediction.boxes.shape[1] - sum(lengths), *lengths]
        pieces = [
            SetPrediction(logits, boxes)
            for logits, boxes in zip(
                *(torch.split(part, lengths, dim=1) for part in (prediction.logits, prediction.boxes)), strict=True
            )
        ]
        return pieces[0], dict(zip(self.parts, pieces[1:], strict=True))
