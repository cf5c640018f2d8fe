"""Region proposals: what of them the RoI head gets to see."""

import torch

from tests.detect.small_models import SMALL
from vgtok.detect.roi import RPNHead


def test_a_proposal_without_area_is_dropped() -> None:
    head = RPNHead(SMALL)
    anchors = [torch.tensor([[10.0, 10, 30, 30], [-60.0, 5, -20, 40], [70.0, 70, 90, 90], [40.0, 40, 50, 60]])]
    still = [torch.zeros(4, 4)]
    # Best of all is one that lies beyond the left border and is cut to nothing there.
    found = head._proposals([torch.tensor([1.0, 5.0, 4.0, 2.0])], still, anchors, (64, 64))
    assert found.tolist() == [[40.0, 40, 50, 60], [10.0, 10, 30, 30]]
    nothing = head._proposals([torch.ones(1)], [torch.zeros(1, 4)], [torch.tensor([[-9.0, 0, -1, 9]])], (64, 64))
    assert nothing.shape == (0, 4)
