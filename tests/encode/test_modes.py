"""Counts against torch's own counter with attention unfused, and the paper's dense figure."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.encode.small import frame, partition, small_encoder
from vgtok.encode.config import configuration
from vgtok.encode.modes import encode_control, encode_dense, encoder_flops, peak_megabytes
from vgtok.encode.plain import plain_modules


@pytest.mark.parametrize(("family", "spread"), [("eva02-tiny", 0), ("vit-tiny", 0), ("vit-tiny", 8)])
def test_counts_equal_those_of_an_unfused_run(family: str, spread: int) -> None:
    encoder = small_encoder(family, spread=spread)
    image = frame(192, 320)
    tokens = partition(image, 0.4)
    runs: dict[str, Callable[[], object]] = {
        "packed": lambda: encoder([image], [tokens]),
        "dense": lambda: encode_dense(encoder, image[None]),
        "control": lambda: encode_control(encoder, [image], [tokens]),
    }
    for execution, run in runs.items():
        with torch.no_grad(), plain_modules(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            run()
        assert counter.get_total_flops() == sum(encoder_flops(execution, encoder.config, tokens))


def test_dense_large_costs_what_the_paper_says() -> None:
    tokens = partition(torch.zeros(3, 1152, 2048, dtype=torch.uint8), 0.4)
    flops = sum(encoder_flops("dense", configuration("eva02-large"), tokens))
    assert flops / 1e9 == pytest.approx(8281.5, rel=1e-3)


def test_control_costs_at_least_dense() -> None:
    config, tokens = configuration("eva02-large"), partition(frame(576, 1024), 0.7)
    assert sum(encoder_flops("control", config, tokens)) >= sum(encoder_flops("dense", config, tokens))


def test_peak_memory_is_what_is_alive_at_once() -> None:
    def run() -> None:
        first = torch.zeros(1_000_000)
        second = first + 1
        del first
        second.add(1)

    assert peak_megabytes(run) == pytest.approx(8.0, rel=0.01)
