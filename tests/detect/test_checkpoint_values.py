"""Names prove nothing: each converted layer gives the numbers its public tensors give by formulas written apart."""

import pytest
import torch
from torch import Tensor

from tests.detect import public_oracle as oracle
from tests.detect.public_layout import random_public_state
from tests.detect.small_models import SMALL
from vgtok.detect.checkpoint import convert_co_detr
from vgtok.detect.losses import SetPrediction
from vgtok.detect.model import CoDetr
from vgtok.detect.query_head import Encoded
from vgtok.detect.transformer import whole_view
from vgtok.encode.modes import encode_dense

SHAPES = [(8, 6), (4, 3), (2, 2), (1, 1), (1, 1)]
CELLS = sum(rows * columns for rows, columns in SHAPES)


@pytest.fixture(scope="module")
def public() -> dict[str, Tensor]:
    return random_public_state(SMALL, 11)


@pytest.fixture(scope="module")
def model(public: dict[str, Tensor]) -> CoDetr:
    return convert_co_detr(public, "public", like=SMALL).detector.model.requires_grad_(False)


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def boxes(count: int, seed: int = 0) -> Tensor:
    random = torch.rand((count, 4), generator=torch.Generator().manual_seed(seed))
    return torch.cat([random[:, :2] * 0.8 + 0.1, random[:, 2:] * 0.3 + 0.05], dim=1)


def close(actual: Tensor, expected: Tensor) -> None:
    assert expected.std() > 1e-3, "an oracle that says nothing proves nothing"
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-5)


def test_eva02_blocks_windowed_and_global(model: CoDetr, public: dict[str, Tensor]) -> None:
    pixels = rand(3, 192, 224)
    mine = encode_dense(model.encoder, pixels[None]).maps[0]
    close(mine, oracle.backbone(public, pixels, heads=3, window=8, global_blocks=(1,)))


@pytest.mark.parametrize("stage", list(oracle.STAGES))
def test_pyramid_stages(model: CoDetr, public: dict[str, Tensor], stage: str) -> None:
    features = rand(1, 48, 7, 6)
    close(model.neck.get_submodule(stage)(features), oracle.pyramid_stage(public, stage, features))


@pytest.mark.parametrize("number", [0, 1])
def test_deformable_encoder_layers(model: CoDetr, public: dict[str, Tensor], number: int) -> None:
    cells, code = rand(CELLS, 32), rand(CELLS, 32, seed=1)
    centers = torch.rand((CELLS, 2), generator=torch.Generator().manual_seed(2))
    layer = model.query_head.transformer.encoder.layers[number]
    mine = layer(cells[None], code, centers, SHAPES)[0]
    close(mine, oracle.encoder_layer(public, number, cells, code, centers, SHAPES, heads=4))


@pytest.mark.parametrize("number", [0, 1])
def test_deformable_decoder_layers(model: CoDetr, public: dict[str, Tensor], number: int) -> None:
    query, code, memory, start = rand(9, 32), rand(9, 32, seed=1), rand(CELLS, 32, seed=2), boxes(9)
    layer = model.query_head.transformer.decoder.layers[number]
    mine = layer(query[None], code[None], start[None], memory[None], SHAPES, None)[0]
    close(mine, oracle.decoder_layer(public, number, query, code, start, memory, SHAPES, heads=4))


def test_the_decoder_with_its_branches(model: CoDetr, public: dict[str, Tensor]) -> None:
    memory, start = rand(CELLS, 32, seed=2), boxes(SMALL.queries)
    proposals = SetPrediction(torch.zeros(1, SMALL.queries, SMALL.classes), start[None])
    last = model.query_head.decode(Encoded(memory[None], SHAPES, whole_view(memory)), proposals, None)[-1]
    logits, final = oracle.decode(public, start, memory, SHAPES, heads=4, layers=2)
    close(last.logits[0], logits)
    close(last.boxes[0], final)


def test_the_roi_head(model: CoDetr, public: dict[str, Tensor]) -> None:
    maps = [rand(1, 32, 512 // stride, 384 // stride, seed=stride) for stride in oracle.STRIDES]
    sides = torch.tensor([[20.0, 30.0], [90.0, 140.0], [200.0, 250.0], [380.0, 500.0], [40.0, 400.0]])
    corner = torch.tensor([[5.0, 9.0], [100.0, 50.0], [60.0, 200.0], [-3.0, 4.0], [300.0, 60.0]])
    rois = torch.cat([torch.zeros(5, 1), corner, corner + sides], dim=1)
    assert model.roi_head is not None
    for mine, theirs in zip(model.roi_head(maps, rois), oracle.roi_head(public, maps, rois), strict=True):
        close(mine, theirs)


def test_the_atss_head(model: CoDetr, public: dict[str, Tensor]) -> None:
    maps = [rand(1, 32, side, side + 1, seed=side) for side in (9, 7, 5, 4, 3, 2)]
    assert model.atss_head is not None
    for number, (level, *mine) in enumerate(zip(maps, *model.atss_head(maps), strict=True)):
        for actual, expected in zip(mine, oracle.atss_head(public, level, number), strict=True):
            # (1, k, rows, columns) to the head's (1, rows * columns, k)
            close(actual.reshape(1, level[0, 0].numel(), -1), expected.flatten(2).transpose(1, 2))


def test_the_rpn_head(model: CoDetr, public: dict[str, Tensor]) -> None:
    maps = [rand(1, 32, side, side + 1, seed=side) for side in (9, 7, 5, 4, 3, 2)]
    assert model.rpn_head is not None
    for level, *mine in zip(maps, *model.rpn_head(maps), strict=True):
        scores, deltas = oracle.rpn_head(public, level)
        # Nine anchors share a cell; each has a score and four deltas in a row.
        close(mine[0], scores.permute(0, 2, 3, 1).flatten(1))
        close(mine[1].flatten(1), deltas.permute(0, 2, 3, 1).flatten(1))


def test_the_level_below_the_pyramid(model: CoDetr, public: dict[str, Tensor]) -> None:
    wide = rand(1, 32, 6, 8)
    assert model.query_head.downsample is not None
    expected = torch.nn.functional.conv2d(
        wide, public["query_head.downsample.0.weight"], public["query_head.downsample.0.bias"], stride=2, padding=1
    )
    centred = expected - expected.mean((2, 3), keepdim=True)
    expected = centred / (centred.square().mean((2, 3), keepdim=True) + 1e-5).sqrt()
    weight, bias = (public[f"query_head.downsample.1.{kind}"][:, None, None] for kind in ("weight", "bias"))
    close(model.query_head.downsample(wide), expected * weight + bias)
