"""A converted release on frames of any size: the numbers of the public model, written out apart in `padded_oracle`."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.detect import padded_oracle as oracle
from tests.detect.public_layout import random_public_state
from tests.detect.small_models import ENCODER, SMALL, predict_dense
from tests.encode.small import frame, partition
from vgtok.detect.checkpoint import convert_co_detr
from vgtok.detect.model import CoDetr
from vgtok.encode.config import IMAGENET_MEAN, IMAGENET_STD

RELEASED = replace(SMALL, encoder_overrides={**ENCODER, "grid_multiple": 2}, atss_suppression="soft")
SIZES = [(45, 83), (33, 64), (32, 49)]


@pytest.fixture(scope="module")
def public() -> dict[str, Tensor]:
    return random_public_state(RELEASED, 5)


@pytest.fixture(scope="module")
def model(public: dict[str, Tensor]) -> CoDetr:
    return convert_co_detr(public, "public", like=RELEASED).detector.model.requires_grad_(False)


def normalized(image: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    return (image - mean) / std


def same(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    assert len(expected[0]) > 5, "an oracle that says nothing proves nothing"
    assert actual[2].tolist() == expected[2].tolist()
    torch.testing.assert_close(actual[1], expected[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-4, atol=5e-3)


@pytest.mark.parametrize("size", SIZES)
def test_every_frame_runs_as_the_public_model_runs_it(
    model: CoDetr, public: dict[str, Tensor], size: tuple[int, int]
) -> None:
    image = frame(*size)
    levels = oracle.feature_levels(public, normalized(image), window=8)
    masks = oracle.level_masks(levels, size)
    memory = oracle.encoded(public, levels, masks, layers=2)
    logits, boxes = oracle.query_boxes(public, memory, masks, layers=2, queries=RELEASED.queries)
    expected = oracle.query_detections(logits, boxes, size)
    same(predict_dense(model, image), expected)
    same(model.predict([image], [partition(image, 1.0)], 1000)[0], expected)
    same(
        model.predict([image], [partition(image, 1.0)], 1000, "atss")[0],
        oracle.atss_detections(public, memory, masks, size),
    )
