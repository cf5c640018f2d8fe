"""The sparse head in whole models, and every rewritten form against the plain modules, at all tokens and at fewer."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from tests.encode.small import frame, partition
from vgtok.detect.boxes import Prediction
from vgtok.detect.config import Head
from vgtok.detect.detector import Detector
from vgtok.detect.model import CoDetr
from vgtok.detect.sites import MaskedSites
from vgtok.encode.plain import plain_modules
from vgtok.tokenize.tokens import Tokens

from .small_models import small_detector, small_model

IMAGE = frame(192, 256, seed=1)
HEADS: tuple[Head, ...] = ("atss", "query")


def model_with_fusion(**changes: object) -> CoDetr:
    model = small_model()
    overrides = {**model.config.encoder_overrides, "fusion": (32, 64), **changes}
    return small_model(encoder_overrides=overrides)


def some_tokens(budget: float) -> Tokens:
    tokens = partition(IMAGE, budget)
    assert budget == 1 or tokens.counts()[64] > 0
    return tokens


def assert_same(found: Prediction, expected: Prediction) -> None:
    """Boxes and scores agree to 1e-4 of the image and 1e-4, in an order that near ties may change."""
    assert len(found[1]) == len(expected[1])
    torch.testing.assert_close(found[1], expected[1], atol=1e-4, rtol=1e-4)
    other = torch.cat([expected[0] / 256, expected[1][:, None], expected[2][:, None]], dim=1)
    mine = torch.cat([found[0] / 256, found[1][:, None], found[2][:, None]], dim=1)
    nearest = torch.cdist(mine.double(), other.double()).amin(dim=1)
    # A box at the limit of the list may be another one.
    assert float((nearest < 1e-3).float().mean()) > 0.97


def predicted(model: CoDetr, tokens: Tokens, head: Head, *, sparse: bool) -> Prediction:
    return model.predict([IMAGE], [tokens], 200, head, sparse_head=sparse)[0]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("budget", [1.0, 0.4])
def test_rewritten_modules_predict_what_the_plain_ones_do(head: Head, budget: float) -> None:
    model, tokens = model_with_fusion(), some_tokens(budget)
    with torch.inference_mode():
        found = predicted(model, tokens, head, sparse=False)
        with plain_modules():
            expected = predicted(model, tokens, head, sparse=False)
    assert_same(found, expected)


@pytest.mark.parametrize("head", HEADS)
def test_at_all_tokens_the_sparse_head_is_the_dense_one(head: Head) -> None:
    model, tokens = model_with_fusion(), some_tokens(1.0)
    with torch.inference_mode():
        sparse, dense = (predicted(model, tokens, head, sparse=way) for way in (True, False))
    for mine, other in zip(sparse, dense, strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("head", HEADS)
def test_the_sparse_head_predicts_as_it_is_trained(head: Head) -> None:
    model, tokens = model_with_fusion(), some_tokens(0.4)
    with torch.inference_mode():
        found = predicted(model, tokens, head, sparse=True)
        dense = predicted(model, tokens, head, sparse=False)
    # With gradients, every module runs in the form it is trained in.
    trained = predicted(model, tokens, head, sparse=True)
    assert_same(found, (trained[0].detach(), trained[1].detach(), trained[2]))
    assert len(found[1]) != len(dense[1]) or not torch.allclose(found[1], dense[1], atol=1e-4)


@pytest.mark.parametrize("grid_multiple", [1, 2])
@pytest.mark.parametrize("rule", ["tokens", "roots"])
def test_padded_grids_and_both_rules_run(grid_multiple: int, rule: Literal["tokens", "roots"]) -> None:
    model = model_with_fusion(grid_multiple=grid_multiple)
    image = frame(200, 250, seed=1)
    tokens = partition(image, 0.3)
    with torch.inference_mode():
        maps = model.encoder([image], [tokens]).maps
        sites = model.sites(maps, [tokens], rule)
        for head in HEADS:
            boxes, scores, _ = model.predict_maps(maps, [(200, 250)], 50, head, sites)[0]
            assert len(boxes) >= 20
            assert torch.cat([boxes.flatten(), scores]).isfinite().all()


@pytest.mark.parametrize("head", HEADS)
def test_a_frame_without_a_split_has_no_site(head: Head) -> None:
    model, tokens = model_with_fusion(), some_tokens(1 / 16)
    assert set(tokens.sizes.tolist()) == {64}
    with torch.inference_mode():
        boxes, scores, _ = predicted(model, tokens, head, sparse=True)
    assert len(boxes)
    assert torch.cat([boxes.flatten(), scores]).isfinite().all()


def test_losses_of_a_sparse_head_reach_every_parameter() -> None:
    model = model_with_fusion()
    tokens = [some_tokens(budget) for budget in (0.4, 0.3, 1.0)]
    boxes = torch.tensor([[20.0, 20.0, 52.0, 60.0], [150.0, 100.0, 170.0, 130.0]])
    target = {"boxes": boxes, "labels": torch.tensor([0, 2])}
    torch.manual_seed(0)
    losses = model.loss([IMAGE] * 3, tokens, [target] * 3, sparse_head=True)
    total = torch.stack(list(losses.values())).sum()
    assert total.isfinite()
    gradients: tuple[Tensor, ...] = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    without = [name for (name, _), part in zip(model.named_parameters(), gradients, strict=True) if part is None]
    dense = torch.stack(list(model.loss([IMAGE] * 3, tokens, [target] * 3).values())).sum()
    unused = torch.autograd.grad(dense, list(model.parameters()), allow_unused=True)
    assert without == [n for (n, _), part in zip(model.named_parameters(), unused, strict=True) if part is None]
    torch.manual_seed(0)
    with torch.no_grad():
        again = model.loss([IMAGE] * 3, tokens, [target] * 3, sparse_head=True)
    torch.testing.assert_close(torch.stack(list(again.values())).sum(), total.detach(), atol=1e-2, rtol=1e-3)


def test_the_flag_is_an_argument_and_a_property_of_saved_models(tmp_path: object) -> None:
    detector = small_detector()
    detector.sparse_head = True
    detector.save_pretrained(str(tmp_path))
    loaded = Detector.from_pretrained(str(tmp_path))
    assert loaded.sparse_head
    pixels = IMAGE.permute(1, 2, 0).numpy()
    sparse = loaded(pixels, budget=0.4, score_threshold=0.0)
    same = loaded(pixels, budget=0.4, score_threshold=0.0, sparse_head=True)
    dense = loaded(pixels, budget=0.4, score_threshold=0.0, sparse_head=False)
    assert (sparse.scores == same.scores).all()
    assert len(sparse.scores) != len(dense.scores) or not (sparse.scores == dense.scores).all()


@pytest.mark.parametrize("head", HEADS)
def test_masked_sites_predict_what_sites_do(head: Head) -> None:
    model, tokens = model_with_fusion(), some_tokens(0.4)
    with torch.inference_mode():
        maps = model.encoder([IMAGE], [tokens]).maps
        sites = model.sites(maps, [tokens])[0]
        assert sites is not None
        masked = MaskedSites.of((sites.source < len(sites)).view(sites.shape))
        found, expected = (model.predict_heads(maps[0], (192, 256), 200, (head,), way)[0] for way in (masked, sites))
    # What is no site may follow with a score of zero where there are too few candidates.
    real = found[1] > 0
    assert_same((found[0][real], found[1][real], found[2][real]), expected)
