"""What the ATSS head keeps, by its two rules; that of the shipped model must never move by a bit."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.detect.small_models import SMALL, small_model
from tests.detect.test_roi import random_boxes
from vgtok.data.synthetic import render_scene
from vgtok.detect.atss import ATSSHead, assign_by_statistics, centerness, enlarged
from vgtok.detect.boxes import clip, decode
from vgtok.detect.config import DetectorConfig
from vgtok.detect.loading import load
from vgtok.detect.roi import BACKGROUND, level_anchors
from vgtok.errors import InputError
from vgtok.overlap import nms, paired_iou

SIZE = (96, 128)


def head(suppression: str) -> ATSSHead:
    found = small_model(atss_suppression=suppression).atss_head
    assert found is not None
    return found.requires_grad_(False)


def maps(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sides = [(-(-SIZE[0] // stride), -(-SIZE[1] // stride)) for stride in (4, 8, 16, 32, 64, 128)]
    return [torch.randn(1, SMALL.dim, *side, generator=generator) for side in sides]


def by_hand(found: ATSSHead, levels: list[Tensor], size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Class times centerness, the best 2000 of a level, hard suppression at 0.6: what vgtok-tiny is measured with."""
    boxes, scores, labels = [], [], []
    for logits, deltas, centered, anchors in zip(*found(levels), found._anchors(levels), strict=True):
        score = (logits[0].sigmoid() * centered[0].sigmoid()[:, None]).float().flatten()
        best = score.topk(min(2000, len(score)))
        where = torch.div(best.indices, found.classes, rounding_mode="floor")
        boxes.append(decode(anchors[where], deltas[0, where].float(), (0.1, 0.1, 0.2, 0.2)))
        scores.append(best.values)
        labels.append(best.indices % found.classes)
    every, score, label = clip(torch.cat(boxes), size), torch.cat(scores), torch.cat(labels)
    kept = nms(every, score, label, 0.6)
    return every[kept], score[kept], label[kept]


def test_the_hard_rule_is_the_default_and_stays_bit_for_bit() -> None:
    found = head(DetectorConfig("vit-tiny", ("car",)).atss_suppression)
    for mine, expected in zip(found.predict(maps(), SIZE, 10**6), by_hand(found, maps(), SIZE), strict=True):
        assert torch.equal(mine, expected)


def test_the_shipped_model_predicts_by_the_hard_rule() -> None:
    detector = load("vgtok-tiny", dtype="float32").to("cpu")
    config = detector.model.config
    assert (detector.budget, detector.head, detector.canvas) == (0.40, "atss", (2048, 1152))
    assert detector.sparse_head
    assert (config.atss_suppression, config.encoder_config().grid_multiple) == ("hard", 1)
    # A frame that ends inside a cell, on a grid of an odd number of cells: neither is padded any further.
    scene = render_scene(seed=3, width=200, height=140).pixels
    detector.canvas = "native"
    result = detector(scene, max_detections=50, score_threshold=0.0, sparse_head=False)
    found, model = detector.model.atss_head, detector.model
    assert found is not None
    with torch.inference_mode():
        features = model.encoder([torch.from_numpy(scene.copy()).permute(2, 0, 1)], [result.tokens]).maps[0]
        assert features.shape[1:] == (9, 13)
        levels = model.query_head.auxiliary_levels(model.query_head.encode(model.neck(features[None].contiguous())))
        boxes, scores, labels = by_hand(found, levels, (140, 200))
    assert result.scores.tolist() == scores[:50].tolist()
    assert result.labels.tolist() == labels[:50].tolist()
    assert result.boxes.astype("float32").tolist() == boxes[:50].tolist()


def test_the_soft_rule_keeps_a_hundred_at_most_and_lowers_scores() -> None:
    hard, soft = head("hard"), head("soft")
    boxes, scores, labels = soft.predict(maps(), SIZE, 1000)
    assert len(boxes) == len(labels) == 100
    assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    assert len(hard.predict(maps(), SIZE, 1000)[0]) > 100
    assert len(soft.predict(maps(), SIZE, 7)[0]) == 7
    with pytest.raises(InputError, match="atss_suppression: 'firm' is not one of hard, soft"):
        replace(SMALL, atss_suppression="firm")  # type: ignore[arg-type]


def test_the_soft_rule_chooses_by_class_before_centerness() -> None:
    found = head("soft")
    with torch.no_grad():
        # Of 3072 pairs on the finest level the thousand best by class differ from the thousand best by the product.
        found.atss_centerness.weight.mul_(30)
    logits, _, centered = (parts[0][0] for parts in found(maps()))
    chosen = found.candidates(maps())[1][:1000]
    by_class = logits.sigmoid().flatten().topk(1000)
    middle = centered.sigmoid()[torch.div(by_class.indices, found.classes, rounding_mode="floor")]
    assert torch.equal(chosen, by_class.values * middle)
    product = (logits.sigmoid() * centered.sigmoid()[:, None]).flatten().topk(1000).values
    assert not torch.equal(chosen.sort(descending=True).values, product)


@pytest.mark.parametrize(("norm", "local"), [("channel", True), ("group", False)])
def test_with_a_norm_per_position_a_place_is_found_alike_whatever_lies_far_away(norm: str, local: bool) -> None:
    found = small_model(auxiliary_norm=norm).atss_head
    assert found is not None
    before = maps()
    # Another right half of the finest level, of 24 x 32 cells; two convolutions see two cells far.
    after = [torch.cat([before[0][..., :16], before[0][..., 16:] * 5], dim=-1), *before[1:]]
    with torch.no_grad():
        first, second = (torch.unflatten(found(levels)[0][0][0], 0, (24, 32))[:, :14] for levels in (before, after))
    assert torch.allclose(first, second, atol=1e-5) == local


@given(st.integers(0, 8), st.integers(0, 1000))
@settings(deadline=None)
def test_statistics_assignment_by_loops(objects: int, seed: int) -> None:
    levels = level_anchors([(12, 12), (6, 6), (3, 3)], (8, 16, 32), (4.0,), (1.0,), torch.zeros(()))
    truth = random_boxes(objects, seed)
    owner = assign_by_statistics(levels, truth)
    anchors = torch.cat(levels)
    best = [(-1.0, BACKGROUND)] * len(anchors)
    for number in range(objects):
        center = (truth[number, :2] + truth[number, 2:]) / 2
        candidates, first = [], 0
        for level in levels:
            distance = torch.linalg.vector_norm((level[:, :2] + level[:, 2:]) / 2 - center, dim=1)
            candidates += [first + int(i) for i in distance.argsort(stable=True)[:9]]
            first += len(level)
        overlap = paired_iou(anchors[candidates], truth[number])[0]
        threshold = overlap.mean() + overlap.std()
        for anchor, amount in zip(candidates, overlap, strict=True):
            x, y = ((anchors[anchor, :2] + anchors[anchor, 2:]) / 2).tolist()
            x0, y0, x1, y1 = truth[number].tolist()
            inside = min(x - x0, y - y0, x1 - x, y1 - y) > 0.01
            if amount >= threshold and inside and float(amount) > best[anchor][0]:
                best[anchor] = (float(amount), number)
    # Anchors tied in distance may be taken in another order: then only their number can differ.
    agree = sum(int(owner[i]) == number for i, (_, number) in enumerate(best))
    assert agree >= len(anchors) - 2
    assert abs(int((owner >= 0).sum()) - sum(number >= 0 for _, number in best)) <= 1


def test_centerness_is_one_in_the_middle_and_zero_at_the_border() -> None:
    boxes = torch.tensor([[0.0, 0, 20, 10]]).expand(3, 4)
    anchors = torch.tensor([[5.0, 0, 15, 10], [-5.0, 0, 5, 10], [0.0, 0, 10, 10]])
    torch.testing.assert_close(centerness(anchors, boxes), torch.tensor([1.0, 0.0, (1 / 3) ** 0.5]))


@given(st.floats(0, 90), st.floats(0, 90), st.floats(0.5, 7.5), st.floats(0.5, 7.5))
@settings(deadline=None)
def test_an_object_between_the_centres_of_cells_finds_an_anchor(
    x: float, y: float, width: float, height: float
) -> None:
    levels = level_anchors([(16, 16), (8, 8), (4, 4), (2, 2)], (8, 16, 32, 64), (8.0,), (1.0,), torch.zeros(()))
    box = torch.tensor([[x, y, x + width, y + height]])
    owner = assign_by_statistics(levels, box, least=1.5 / 8)
    anchors = torch.cat(levels)[owner == 0]
    assert len(anchors)
    assert centerness(anchors, enlarged(box.expand(len(anchors), 4), anchors, 1.5 / 8)).max() > 0.19


def test_a_box_larger_than_its_cell_stays_as_it_is() -> None:
    boxes = torch.tensor([[0.0, 0.0, 9.0, 20.0], [4.0, 4.0, 6.0, 16.0]])
    anchors = torch.tensor([[-32.0, -32.0, 32.0, 32.0]]).expand(2, 4)
    assert enlarged(boxes, anchors, 0.0) is boxes
    grown = enlarged(boxes, anchors, 1 / 8)
    torch.testing.assert_close(grown[0], boxes[0])
    torch.testing.assert_close(grown[1], torch.tensor([1.0, 4.0, 9.0, 16.0]))
