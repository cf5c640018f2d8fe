"""The whole network: parameters, FLOPs, batches against single images, losses and gradients in every corner case."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.encode.small import frame, partition
from vgtok.detect.config import DETECTORS, Head
from vgtok.detect.model import CoDetr, detection_flops, detector_parameters
from vgtok.detect.neck import UpsampledConv
from vgtok.errors import InputError
from vgtok.tokenize.tokens import Tokens

from .small_models import SMALL, predict_dense, small_model
from .test_neck import enlarged_then_convolved

Target = dict[str, Tensor]


def _target(boxes: Sequence[Sequence[float]], labels: Sequence[int]) -> Target:
    return {"boxes": torch.tensor(boxes).reshape(-1, 4).float(), "labels": torch.tensor(labels, dtype=torch.long)}


def _loss(model: CoDetr, frames: list[Tensor], tokens: list[Tokens], targets: list[Target]) -> dict[str, Tensor]:
    """All losses, after their gradients were found finite."""
    torch.manual_seed(0)
    losses = model.loss(frames, tokens, targets)
    assert all(loss.isfinite() for loss in losses.values()), losses
    model.zero_grad()
    torch.autograd.backward(torch.stack(list(losses.values())).sum())
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    return {name: loss.detach() for name, loss in losses.items()}


def test_the_paper_detector_has_its_parameters_part_by_part() -> None:
    with torch.device("meta"):
        parts = CoDetr(DETECTORS["co-detr-eva02-large"]).parts()
    millions = {name: round(count / 1e6, 2) for name, count in parts.items()}
    assert millions == {
        "encoder": 304.24,
        "neck": 24.0,
        "query_head": 19.72,
        "rpn_head": 0.6,
        "roi_head": 15.22,
        "atss_head": 1.22,
        "fusion": 11.28,
    }
    assert round((sum(parts.values()) - parts["fusion"]) / 1e6, 2) == 364.99
    assert round(sum(parts.values()) / 1e6, 2) == 376.27


def test_the_tiny_detector_is_tiny_and_has_every_part() -> None:
    with torch.device("meta"):
        parts = CoDetr(DETECTORS["co-detr-vit-tiny"]).parts()
    assert sum(parts.values()) < 12e6
    assert all(parts.values())


@pytest.mark.parametrize("head", ["query", "atss"])
def test_a_batch_equals_each_image_alone(head: Head) -> None:
    """Same detections in the same order; scores to 1e-4, and boxes to 1e-4 of a pixel, not only of the frame."""
    model = small_model()
    frames = [frame(128, 192), frame(100, 90, seed=1), frame(128, 192, seed=2)]
    tokens = [partition(image, 0.5) for image in frames]
    with torch.inference_mode():
        together = model.predict(frames, tokens, 20, head)
        for number, found in enumerate(together):
            (alone,) = model.predict(frames[number : number + 1], tokens[number : number + 1], 20, head)
            torch.testing.assert_close(found[0], alone[0], atol=1e-4, rtol=0)
            torch.testing.assert_close(found[1], alone[1], atol=1e-4, rtol=0)
            assert torch.equal(found[2], alone[2])


def test_all_tokens_equal_the_dense_model() -> None:
    """Scores to 1e-4, boxes to 1e-4 of the frame's longer side."""
    model = small_model()
    image = frame(128, 192)
    with torch.inference_mode():
        (packed,) = model.predict([image], [partition(image, 1.0)], 20)
        dense = [part[:20] for part in predict_dense(model, image)]
    torch.testing.assert_close(packed[0] / 192, dense[0] / 192, atol=1e-4, rtol=0)
    torch.testing.assert_close(packed[1], dense[1], atol=1e-4, rtol=0)
    assert torch.equal(packed[2], dense[2])


def _predict(model: CoDetr, frames: list[Tensor], tokens: list[Tokens]) -> None:
    """Every head predicts finite boxes with an area, and finite scores."""
    heads: list[Head] = ["query", "atss"] if model.atss_head else ["query"]
    with torch.inference_mode():
        for head in heads:
            for boxes, scores, labels in model.predict(frames, tokens, 1500, head):
                assert len(boxes) == len(scores) == len(labels) > 0
                assert boxes.isfinite().all()
                assert (boxes[:, 2:] >= boxes[:, :2]).all()
                assert ((scores >= 0) & (scores <= 1)).all()


def test_predictions_are_sorted_capped_and_inside() -> None:
    model = small_model()
    image = frame(100, 90)
    with torch.inference_mode():
        ((boxes, scores, labels),) = model.predict([image], [partition(image, 0.6)], 7)
    assert boxes.shape == (7, 4)
    assert scores.shape == labels.shape == (7,)
    assert (scores.diff() <= 0).all()
    assert (boxes >= 0).all()
    assert (boxes[:, [0, 2]] <= 90).all()
    assert (boxes[:, [1, 3]] <= 100).all()


def test_every_parameter_learns() -> None:
    model = small_model()
    frames = [frame(128, 128), frame(128, 192, seed=1)]
    targets = [_target([[10, 12, 40, 44], [60, 60, 90, 100]], [0, 2]), _target([[100, 20, 150, 70]], [1])]
    losses = _loss(model, frames, [partition(image, 0.6) for image in frames], targets)
    assert {name.split("/")[0] for name in losses} == {
        "rpn", "roi", "atss", "proposals", "queries", "denoising", "roi-queries", "atss-queries",
    }  # fmt: skip
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    # An EVA-02 has no prefix tokens, and a level's scale learns only from anchors of that level.
    assert [name for name in still if name != "encoder.embedding.prefix" and "atss_head.scales" not in name] == []


def test_a_layer_is_trained_through_the_next_one() -> None:
    model = small_model()
    head = model.query_head
    encoded = head.encode(model.neck(torch.randn(1, 48, 4, 4)))
    prediction = head.decode(encoded, head.propose(encoded), None)[1]
    (gradient,) = torch.autograd.grad(prediction.boxes.sum(), head.reg_branches[0][4].weight)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("auxiliary", [("roi", "atss"), ("roi",), ("atss",), ()])
def test_nothing_to_find_trains_and_predicts_without_nan(auxiliary: tuple[str, ...]) -> None:
    model = small_model(auxiliary=auxiliary)
    frames = [frame(64, 64), frame(64, 64, seed=1)]
    tokens = [partition(image, 1.0) for image in frames]
    losses = _loss(model, frames, tokens, [_target([], []), _target([], [])])
    assert losses["queries/0/class"] > 0
    assert not any(name.startswith("denoising") for name in losses)
    # Boxes that show nothing are fed back all the same, and have no box to learn.
    for head in auxiliary:
        assert losses[f"{head}-queries/0/class"] > 0
        assert losses[f"{head}-queries/0/l1"] == 0
    _predict(model, frames, tokens)


def test_one_image_without_objects_beside_one_with() -> None:
    model = small_model()
    frames = [frame(64, 64), frame(64, 64, seed=1)]
    tokens = [partition(image, 1.0) for image in frames]
    _loss(model, frames, tokens, [_target([], []), _target([[5, 5, 30, 30]], [1])])
    _predict(model, frames, tokens)


def test_an_empty_image_trains_and_predicts_without_nan() -> None:
    model = small_model()
    frames = [torch.zeros(3, 64, 64, dtype=torch.uint8), torch.full((3, 64, 64), 255, dtype=torch.uint8)]
    tokens = [partition(image, 0.6) for image in frames]
    _loss(model, frames, tokens, [_target([], []), _target([], [])])
    _predict(model, frames, tokens)


def test_objects_of_two_pixels_train_and_predict_without_nan() -> None:
    model = small_model()
    image = frame(128, 128)
    boxes = [[float(x), float(y), x + 2.0, y + 2.0] for x in range(4, 120, 30) for y in range(4, 120, 30)]
    for x0, y0, x1, y1 in torch.tensor(boxes).int().tolist():
        image[:, y0:y1, x0:x1] = 255
    tokens = [partition(image, 0.6)]
    _loss(model, [image], tokens, [_target(boxes, [0] * len(boxes))])
    _predict(model, [image], tokens)


def test_fifteen_hundred_objects_train_and_predict_without_nan() -> None:
    model = small_model(queries=1500)
    image = frame(192, 256)
    generator = torch.Generator().manual_seed(0)
    corner = torch.rand(1500, 2, generator=generator) * torch.tensor([240.0, 180.0])
    boxes = torch.cat([corner, corner + torch.rand(1500, 2, generator=generator) * 10 + 2], dim=1)
    for x0, y0, x1, y1 in boxes.round().int().tolist():
        image[:, y0:y1, x0:x1] = torch.randint(0, 256, (3, 1, 1), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 3, (1500,), generator=generator)
    tokens = [partition(image, 0.6)]
    _loss(model, [image], tokens, [{"boxes": boxes, "labels": labels}])
    _predict(model, [image], tokens)


def test_a_left_out_head_is_refused_by_name() -> None:
    model = small_model(auxiliary=())
    assert model.rpn_head is model.roi_head is model.atss_head is None
    image = frame(64, 64)
    with pytest.raises(InputError, match="ATSS"):
        model.predict([image], [partition(image, 1.0)], 10, "atss")


def test_the_first_stage_learns_from_its_own_loss_alone() -> None:
    model = small_model()
    head = model.query_head
    encoded = head.encode(model.neck(torch.randn(1, 48, 4, 4)))
    prediction = head.decode(encoded, head.propose(encoded), None)[-1]
    weight = head.reg_branches[-1][4].weight
    (gradient,) = torch.autograd.grad(prediction.boxes.sum(), weight, allow_unused=True)
    assert gradient is None


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
        model.atss_head.candidates(head.auxiliary_levels(encoded))
    expected = {"neck": counted["neck"], "cells": counted["cells"], "anchors": counter.get_total_flops()}
    assert detection_flops(SMALL, rows, columns, "atss") == expected


def test_a_sparse_head_costs_what_torch_counts() -> None:
    model, image = small_model(), frame(192, 256)
    tokens = partition(image, 0.4)
    head, counted = model.query_head, {}
    features = torch.randn(1, 48, 12, 16)
    sites = model.sites(list(features), [tokens])[0]
    assert sites is not None
    levels = model.neck(features, sites)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        with FlopCounterMode(display=False) as counter:
            encoded = head.encode(levels, sites=sites)
        counted["cells"] = counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            proposals = head.propose(encoded)
        counted["proposals"] = counter.get_total_flops()
        with FlopCounterMode(display=False) as counter:
            head.decode(encoded, proposals, None)
        counted["queries"] = counter.get_total_flops()
    expected = detection_flops(SMALL, 12, 16, sites=len(sites))
    assert {name: expected[name] for name in counted} == counted
    assert model.atss_head is not None
    with FlopCounterMode(display=False) as counter:
        model.atss_head.candidates(head.auxiliary_levels(encoded), sites)
    # Torch counts the means of the norms at the sites too.
    anchors = detection_flops(SMALL, 12, 16, "atss", len(sites))["anchors"]
    assert anchors == pytest.approx(counter.get_total_flops(), rel=0.01)
    assert expected["neck"] < detection_flops(SMALL, 12, 16)["neck"]


def test_parameters_come_by_part() -> None:
    assert detector_parameters(SMALL).keys() == {
        "encoder", "neck", "query_head", "rpn_head", "roi_head", "atss_head", "fusion",
    }  # fmt: skip
