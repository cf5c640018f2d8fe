"""What the ATSS head keeps, by its two rules; that of the shipped model must never move by a bit."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.detect.small_models import SMALL, small_model
from vgtok.data.synthetic import render_scene
from vgtok.detect.atss import ATSSHead
from vgtok.detect.boxes import clip, decode
from vgtok.detect.config import DetectorConfig
from vgtok.detect.loading import load
from vgtok.errors import InputError
from vgtok.overlap import nms

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
    """Class times centerness, the best 1000 of a level, hard suppression at 0.6: what vgtok-tiny was measured with."""
    boxes, scores, labels = [], [], []
    for logits, deltas, centered, anchors in zip(*found(levels), found._anchors(levels), strict=True):
        score = (logits[0].sigmoid() * centered[0].sigmoid()[:, None]).float().flatten()
        best = score.topk(min(1000, len(score)))
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


def test_the_shipped_model_is_as_it_was() -> None:
    detector = load("vgtok-tiny").to("cpu")
    config = detector.model.config
    assert (detector.budget, detector.head, detector.canvas) == (0.40, "atss", (2048, 1152))
    assert (config.atss_suppression, config.encoder_config().grid_multiple) == ("hard", 1)
    # A frame that ends inside a cell, on a grid of an odd number of cells: neither is padded any further.
    scene = render_scene(seed=3, width=200, height=140).pixels
    detector.canvas = "native"
    result = detector(scene, max_detections=50)
    found, model = detector.model.atss_head, detector.model
    assert found is not None
    with torch.inference_mode():
        features = model.encoder([torch.from_numpy(scene.copy()).permute(2, 0, 1)], [result.tokens]).maps[0]
        assert features.shape[1:] == (9, 13)
        levels = model.query_head.auxiliary_maps(model.query_head.encode(model.neck(features[None].contiguous())))
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
