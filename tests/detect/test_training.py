"""Who sees whom among queries, proven by gradients through a decoder, and what the noise does."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vgtok.detect.boxes import to_corners
from vgtok.detect.losses import PADDING, QueryGroups, QueryPart, SetPrediction, Targets
from vgtok.detect.query_head import Encoded
from vgtok.detect.roi import Positives
from vgtok.detect.training import auxiliary_queries, denoising_queries
from vgtok.detect.transformer import whole_view

from .small_models import SMALL, small_model

SIZE = (64, 64)
NOTHING = torch.zeros(0, 4)


def _targets(*counts: int) -> list[Targets]:
    torch.manual_seed(1)
    targets = []
    for count in counts:
        corner = torch.rand(count, 2) * 30
        targets.append(
            Targets(torch.cat([corner, corner + torch.rand(count, 2) * 20 + 4], dim=1), torch.randint(0, 3, (count,)))
        )
    return targets


def _groups(part: QueryPart, model_name: str = "denoising") -> QueryGroups:
    return QueryGroups({model_name: part})


@pytest.fixture(scope="module")
def scene() -> tuple[torch.nn.Module, Encoded, SetPrediction, QueryGroups]:
    """Two images of two and one objects, five groups of noised copies and positives of both auxiliary heads."""
    model = small_model()
    head = model.query_head
    torch.manual_seed(2)
    shapes = [(8, 8), (4, 4), (2, 2), (1, 1), (1, 1)]
    memory = torch.randn(2, sum(r * c for r, c in shapes), SMALL.dim)
    encoded = Encoded(memory, shapes, whole_view(memory))
    targets = _targets(2, 1)
    noised = denoising_queries(targets, head.label_embedding, SMALL, [SIZE] * len(targets))
    assert noised is not None
    positives = [Positives(t.boxes + 1, t.labels, t.boxes, NOTHING) for t in targets]
    parts = {"denoising": noised}
    for name in ("roi", "atss"):
        part = auxiliary_queries(name, positives, head.transformer, SMALL, [SIZE] * len(positives))
        assert part is not None
        parts[f"{name}-queries"] = part
    proposals = SetPrediction(torch.randn(2, 6, SMALL.classes), torch.rand(2, 6, 4) * 0.4 + 0.2)
    return head, encoded, proposals, QueryGroups(parts)


def _influence(scene: tuple[torch.nn.Module, Encoded, SetPrediction, QueryGroups]) -> torch.Tensor:
    """(B, Q, Q) whether the content of the column's query reaches the row's last prediction."""
    head, encoded, proposals, groups = scene
    transformer = head.transformer
    proposed = transformer.query_embed.weight[:6].expand(2, -1, -1)
    content = torch.cat([proposed, groups.content], dim=1).detach().requires_grad_()
    boxes = torch.cat([proposals.boxes, groups.boxes], dim=1).detach()
    outputs, _ = transformer.decoder(
        content, boxes, encoded.memory, encoded.shapes, encoded.view, list(head.reg_branches), groups.hidden(6)
    )
    rows = []
    for query in range(content.shape[1]):
        # A direction at random: the sum over a normed vector has no gradient to speak of.
        direction = torch.randn(SMALL.dim, generator=torch.Generator().manual_seed(query))
        (gradient,) = torch.autograd.grad((outputs[-1][:, query] @ direction).sum(), content, retain_graph=True)
        rows.append(gradient.abs().amax(dim=-1) > 0)
    return torch.stack(rows, dim=1)


def test_groups_cannot_see_each_other_by_gradient(
    scene: tuple[torch.nn.Module, Encoded, SetPrediction, QueryGroups],
) -> None:
    groups = scene[3]
    influence = _influence(scene)
    noised = groups.parts["denoising"]
    copies = noised.boxes.shape[1]
    assert copies == 5 * 2 * 2
    origin = torch.cat([torch.zeros(6), noised.group + 1, torch.full((9,), 100.0), torch.full((9,), 200.0)])
    real = torch.cat([torch.ones(2, 6).bool(), *(p.assigned.labels != PADDING for p in groups.parts.values())], dim=1)
    for image in range(2):
        for row in range(len(origin)):
            for column in range(len(origin)):
                same = origin[row] == origin[column]
                looks = 0 < origin[row] < 100 and origin[column] == 0
                allowed = row == column or bool((same or looks) and real[image, column])
                assert bool(influence[image, row, column]) == allowed, (image, row, column)


def test_proposals_predict_the_same_with_and_without_groups(
    scene: tuple[torch.nn.Module, Encoded, SetPrediction, QueryGroups],
) -> None:
    head, encoded, proposals, groups = scene
    with torch.no_grad():
        alone = head.decode(encoded, proposals, None)[-1]
        together, others = groups.split(head.decode(encoded, proposals, groups)[-1])
    torch.testing.assert_close(together.boxes, alone.boxes, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together.logits, alone.logits, atol=1e-4, rtol=1e-4)
    assert {name: part.boxes.shape[1] for name, part in others.items()} == {
        name: part.boxes.shape[1] for name, part in groups.parts.items()
    }


@given(st.lists(st.integers(0, 14), min_size=1, max_size=3), st.integers(0, 100))
@settings(deadline=None, max_examples=30)
def test_noise_keeps_its_bounds(counts: list[int], seed: int) -> None:
    embedding = torch.nn.Embedding(SMALL.classes, SMALL.dim)
    targets = _targets(*counts)
    torch.manual_seed(seed)
    part = denoising_queries(targets, embedding, SMALL, [SIZE] * len(targets))
    if max(counts) == 0:
        assert part is None
        return
    assert part is not None
    groups = max(1, SMALL.denoising // max(counts))
    assert part.boxes.shape == (len(counts), groups * 2 * max(counts), 4)
    assert int(part.group.max()) + 1 == groups
    labels = part.assigned.labels
    for image, count in enumerate(counts):
        assert int((labels[image] == SMALL.classes).sum()) == int((labels[image] < SMALL.classes).sum()) - int(
            (labels[image] == PADDING).sum()
        )
        assert int((labels[image] == PADDING).sum()) == (max(counts) - count) * groups * 2
        near = (labels[image] >= 0) & (labels[image] < SMALL.classes)
        goal = part.assigned.boxes[image, near]
        moved = to_corners(part.boxes[image, near]) * 64
        half = (goal[:, 2:] - goal[:, :2]).repeat(1, 2) / 2
        assert ((moved - goal).abs() <= SMALL.box_noise * half + 0.1).all()


def test_auxiliary_queries_takes_at_most_so_many_and_fills_up_with_negatives() -> None:
    transformer = small_model().query_head.transformer
    negatives = torch.rand(4, 4) + torch.tensor([0.0, 0, 5, 5])
    found = [Positives(t.boxes, t.labels, t.boxes, negatives) for t in _targets(15, 3)]
    part = auxiliary_queries("roi", found, transformer, SMALL, [SIZE] * len(found))
    assert part is not None
    assert part.boxes.shape == (2, SMALL.positives, 4)
    labels = part.assigned.labels
    assert (labels[0] < SMALL.classes).all()
    # Three objects, all four negatives, and what is still missing is no query at all.
    assert (labels[1, 3:7] == SMALL.classes).all()
    assert (labels[1, 7:] == PADDING).all()
    filled = to_corners(part.boxes[1, 3:7]) * 64
    torch.testing.assert_close(filled[filled[:, 0].argsort()], negatives[negatives[:, 0].argsort()], atol=1e-4, rtol=0)


def test_auxiliary_queries_has_nine_queries_even_without_an_object() -> None:
    transformer = small_model().query_head.transformer
    negatives = torch.rand(40, 4) + torch.tensor([0.0, 0, 5, 5])
    for count in (0, 2):
        found = [Positives(t.boxes, t.labels, t.boxes, negatives) for t in _targets(count)]
        part = auxiliary_queries("atss", found, transformer, SMALL, [SIZE] * len(found))
        assert part is not None
        assert int((part.assigned.labels == SMALL.classes).sum()) == 9 - count
        assert int((part.assigned.labels < SMALL.classes).sum()) == count
    empty = [Positives(t.boxes, t.labels, t.boxes, NOTHING) for t in _targets(0, 0)]
    assert auxiliary_queries("atss", empty, transformer, SMALL, [SIZE] * len(empty)) is None


def test_an_anchor_beyond_the_image_stays_where_it_is() -> None:
    anchor = torch.tensor([[-48.0, 16.0, 16.0, 80.0]])
    found = [Positives(anchor, torch.tensor([1]), torch.tensor([[0.0, 20, 10, 60]]), NOTHING)]
    part = auxiliary_queries("atss", found, small_model().query_head.transformer, SMALL, [SIZE])
    assert part is not None
    assert part.boxes[0, 0].tolist() == [-0.25, 0.75, 1.0, 1.0]
    assert part.content.isfinite().all()
