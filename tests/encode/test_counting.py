"""Counts against torch's own counter with attention unfused, and the paper's dense figure."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.encode.small import frame, partition, small_encoder
from vgtok.encode.counting import control_flops, dense_flops, packed_flops, peak_megabytes
from vgtok.encode.dense import encode_control, encode_dense
from vgtok.encode.packing import pack
from vgtok.encode.registry import configuration


@pytest.mark.parametrize("family", ["eva02-tiny", "vit-tiny"])
def test_counts_equal_those_of_an_unfused_run(family: str) -> None:
    encoder = small_encoder(family)
    image = frame(192, 320)
    tokens = partition(image, 0.4)
    packing = pack([tokens], encoder.config)
    runs = {
        packed_flops(encoder.config, packing): lambda: encoder([image], [tokens]),
        dense_flops(encoder.config, 12, 20): lambda: encode_dense(encoder, image[None]),
        control_flops(encoder.config, packing): lambda: encode_control(encoder, [image], [tokens]),
    }
    for counted, run in runs.items():
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            run()
        assert counter.get_total_flops() == counted


def test_dense_large_costs_what_the_paper_says() -> None:
    assert dense_flops(configuration("eva02-large"), 72, 128) / 1e9 == pytest.approx(8281.5, rel=1e-3)


def test_peak_memory_is_what_is_alive_at_once() -> None:
    def run() -> None:
        first = torch.zeros(1_000_000)
        second = first + 1
        del first
        second.add(1)

    assert peak_megabytes(run) == pytest.approx(8.0, rel=0.01)
