"""Devices and precisions by name, what is converted, and how far half precision is from float32."""

import logging

import pytest
import torch
from torch import nn

from tests.devices import DEVICES, HALVES
from tests.encode.small import frame, partition, small_encoder
from vgtok.encode import precision
from vgtok.encode.precision import convert_weights, find_device, find_dtype, running_in
from vgtok.errors import InputError

CPU = torch.device("cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_by_name_and_by_itself(device: str) -> None:
    assert find_device(device) == torch.device(device)
    assert find_device(torch.device(device)) == torch.device(device)
    assert find_device("auto").type in ("cpu", "cuda", "mps")


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "tpu", "", "meta", "cpu:7"])
def test_other_devices_are_one_sentence(name: str) -> None:
    with pytest.raises(InputError, match=r"^device: .* is not (present here|one of)"):
        find_device(name)


@pytest.mark.parametrize("name", ["half", "float64", torch.float64, "int8", ""])
def test_other_precisions_are_one_sentence(name: str | torch.dtype) -> None:
    with pytest.raises(InputError, match=r"^dtype: .* is not one of auto, float32, float16, bfloat16"):
        find_dtype(name, CPU)


@pytest.mark.parametrize(("gains", "chosen"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_bfloat16_where_the_processor_gains_and_says_so_once(
    gains: bool, chosen: torch.dtype, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: gains)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    precision._say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert find_dtype("auto", CPU) is find_dtype("auto", CPU) is chosen
    assert len(caplog.records) == int(gains)
    assert find_dtype("float32", CPU) is torch.float32


def test_products_are_converted_and_nothing_else() -> None:
    encoder = small_encoder("eva02-small", mlp_norm=True)
    convert_weights(encoder, torch.bfloat16)
    for module in encoder.modules():
        kinds = {parameter.dtype for parameter in module.parameters(recurse=False)}
        assert kinds <= {torch.bfloat16 if isinstance(module, nn.Linear) else torch.float32}


@pytest.mark.parametrize(("device", "dtype"), HALVES)
@pytest.mark.parametrize("family", ["vit-tiny", "eva02-small"])
def test_half_precision_stays_close_and_repeats_bit_for_bit(family: str, device: str, dtype: str) -> None:
    place, chosen = torch.device(device), find_dtype(dtype, torch.device(device))
    encoder = small_encoder(family).to(place)
    image = frame(192, 256).to(place)
    tokens = partition(image, 0.5)
    with torch.inference_mode():
        exact = encoder([image], [tokens]).maps[0]
    convert_weights(encoder, chosen)
    with torch.inference_mode(), running_in(chosen, place):
        first, again = (encoder([image], [tokens]).maps[0] for _ in range(2))
    assert first.dtype is torch.float32
    assert torch.equal(first, again)
    # Eight bits of mantissa in bfloat16, eleven in float16, through four blocks.
    distance = float((first - exact).norm() / exact.norm())
    assert 0 < distance < (0.02 if chosen is torch.bfloat16 else 0.0025)
