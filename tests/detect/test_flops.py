"""FLOPs of neck and head against the paper's end-to-end figure and torch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vgtok.detect.config import DETECTORS
from vgtok.detect.model import detection_flops, detector_parameters
from vgtok.detect.neck import UpsampledConv

from .small_models import SMALL, small_model
from .test_pyramid import enlarged_then_convolved


def test_the_paper_frame_costs_what_the_paper_says() -> None:
    after = sum(detection_flops(DETECTORS["co-detr-eva02-large"], 72, 128).values()) / 1e9
    assert 8281.5 + after == pytest.approx(12955.5, rel=1e-3)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (5, 3)])
def test_every_part_costs_what_torch_counts(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Counted is the model as it was published, which enlarges maps before it convolves them.
    monkeypatch.setattr(UpsampledConv, "forward", enlarged_then_convolved)
    model = small_model()
    head = model.query_head
    counted = {}
    # Fused attention on CPU counts as nothing; the plain form is made of products that count.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            levels = model.neck(torch.randn(1, 48, rows, columns))
        counted["neck"] = counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            encoded = head.encode(levels)
        counted["cells"] = counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            proposals = head.propose(encoded)
        counted["proposals"] = counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            head.decode(encoded, proposals, None)
        counted["queries"] = counter.get_total_flops()
    assert detection_flops(SMALL, rows, columns) == counted
    assert model.atss_head is not None
    with FlopCounterMode(display=False) as counter:
        model.atss_head.candidates(head.auxiliary_maps(encoded))
    expected = {"neck": counted["neck"], "cells": counted["cells"], "anchors": counter.get_total_flops()}
    assert detection_flops(SMALL, rows, columns, "atss") == expected


def test_parameters_come_by_part() -> None:
    assert detector_parameters(SMALL).keys() == {
        "encoder", "neck", "query_head", "rpn_head", "roi_head", "atss_head", "fusion",
    }  # fmt: skip
