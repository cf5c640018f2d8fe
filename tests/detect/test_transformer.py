"""Deformable attention against the reference of transformers; crops keep their place on the canvas."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DeformableDetrConfig
from transformers.models.deformable_detr.modeling_deformable_detr import DeformableDetrMultiscaleDeformableAttention

from tests.encode.small import frame, partition
from vgtok.detect import deformable
from vgtok.detect.deformable import DeformableAttention
from vgtok.detect.transformer import cell_codes, crop_view, whole_view
from vgtok.encode.packing import Crop
from vgtok.encode.plain import plain_modules
from vgtok.errors import InputError

from .small_models import small_model

SHAPES = [(9, 7), (5, 4), (3, 2), (1, 1)]
CELLS = sum(rows * columns for rows, columns in SHAPES)


def _attention(seed: int = 0) -> DeformableAttention:
    torch.manual_seed(seed)
    attention = DeformableAttention(dim=32, heads=4, levels=4, points=3)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return attention


def _oracle(attention: DeformableAttention) -> DeformableDetrMultiscaleDeformableAttention:
    config = DeformableDetrConfig(d_model=32, num_feature_levels=4, disable_custom_kernels=True)
    oracle = DeformableDetrMultiscaleDeformableAttention(config, num_heads=4, n_points=3)
    oracle.load_state_dict(attention.state_dict())
    return oracle


@pytest.mark.parametrize("coordinates", [2, 4])
def test_equals_transformers_forward_and_gradient(coordinates: int) -> None:
    attention = _attention()
    oracle = _oracle(attention)
    # References also outside the image: what lies there reads as zero.
    query, memory = torch.randn(2, 11, 32), torch.randn(2, CELLS, 32)
    reference = torch.rand(2, 11, coordinates) * 1.4 - 0.2
    ours = [part.clone().requires_grad_() for part in (query, reference, memory)]
    theirs = [part.clone().requires_grad_() for part in (query, reference, memory)]
    out = attention(*ours, SHAPES)
    expected, _ = oracle(
        theirs[0],
        encoder_hidden_states=theirs[2],
        reference_points=theirs[1][:, :, None].expand(-1, -1, 4, -1),
        spatial_shapes=torch.tensor(SHAPES),
        spatial_shapes_list=SHAPES,
        level_start_index=torch.tensor([0, 63, 83, 89]),
    )
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    direction = torch.randn_like(out)
    parts = (*ours, *attention.parameters()), (*theirs, *oracle.parameters())
    gradients = [torch.autograd.grad((o * direction).sum(), p) for o, p in zip((out, expected), parts, strict=True)]
    for mine, other in zip(*gradients, strict=True):
        # Gradients of places run into the hundreds: compare as shares of the largest.
        scale = max(1.0, float(other.abs().max()))
        torch.testing.assert_close(mine / scale, other / scale, atol=1e-5, rtol=1e-5)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = _attention()
    query, reference, memory = torch.randn(1, 50, 32), torch.rand(1, 50, 4), torch.randn(1, CELLS, 32)
    whole = attention(query, reference, memory, SHAPES)
    monkeypatch.setattr(deformable, "QUERIES_AT_ONCE", 7)
    torch.testing.assert_close(attention(query, reference, memory, SHAPES), whole, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("coordinates", [2, 4])
@pytest.mark.parametrize("by_level", [False, True])
def test_bags_read_what_grids_do(coordinates: int, by_level: bool) -> None:
    attention = _attention()
    query, memory = torch.randn(2, 2100, 32), torch.randn(2, CELLS, 32)
    levels = (len(SHAPES),) if by_level else ()
    reference = torch.rand(2, 2100, *levels, coordinates) * 1.4 - 0.2
    beyond = torch.arange(CELLS) % 7 == 0
    with torch.inference_mode():
        found = attention(query, reference, memory, SHAPES, beyond)
        with plain_modules():
            expected = attention(query, reference, memory, SHAPES, beyond)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_places_that_are_no_numbers_do_not_end_the_program() -> None:
    attention = _attention()
    query, memory = torch.full((1, 3, 32), torch.nan), torch.randn(1, CELLS, 32)
    with torch.inference_mode():
        assert attention(query, torch.rand(1, 3, 2), memory, SHAPES).isnan().all()


def test_heads_start_in_directions_of_their_own() -> None:
    attention = DeformableAttention(dim=16, heads=8, levels=2, points=4)
    offsets = torch.unflatten(attention.sampling_offsets.bias, 0, (8, 2, 4, 2))
    assert len(torch.unique(offsets[:, 0, 0].round(decimals=4), dim=0)) == 8
    torch.testing.assert_close(offsets[:, :, 3], 4 * offsets[:, :, 0])
    torch.testing.assert_close(offsets.abs().amax(dim=-1)[0, 0], torch.arange(1.0, 5.0))


@given(x=st.integers(0, 20), y=st.integers(0, 12), rows=st.integers(1, 16), columns=st.integers(1, 16))
def test_boxes_go_to_the_map_and_points_come_back(x: int, y: int, rows: int, columns: int) -> None:
    size, frame_size = (rows * 16, columns * 16), ((y + rows) * 16, (x + columns + 3) * 16)
    view = crop_view([(x * 16, y * 16)], size, [frame_size], torch.zeros(1))
    points = torch.rand(7, 2)
    boxes = torch.cat([view.on_canvas(points), torch.rand(1, 7, 2)], dim=-1)
    back = view.on_map(boxes)
    assert torch.allclose(back[0, :, :2], points, atol=1e-4)
    scale = torch.tensor([frame_size[1] / size[1], frame_size[0] / size[0]])
    assert torch.allclose(back[..., 2:], boxes[..., 2:] * scale, rtol=1e-4)


def test_a_crop_has_the_codes_its_cells_have_in_the_frame() -> None:
    everywhere = cell_codes([(12, 20)], 16, whole_view(torch.zeros(1)))[0].reshape(12, 20, 32)
    view = crop_view([(4 * 16, 8 * 16), (0, 0)], (4 * 16, 8 * 16), [(12 * 16, 20 * 16)] * 2, torch.zeros(1))
    crops = cell_codes([(4, 8)], 16, view)[0].reshape(2, 4, 8, 32)
    assert torch.allclose(crops[0], everywhere[8:12, 4:12], atol=1e-5)
    assert torch.allclose(crops[1], everywhere[:4, :8], atol=1e-5)


def test_a_crop_that_is_the_whole_frame_changes_nothing() -> None:
    model = small_model().train()
    pixels = frame(128, 192)
    tokens = partition(pixels, 0.5)
    target = {"boxes": torch.tensor([[10.0, 12, 40, 50]]), "labels": torch.tensor([1])}
    losses = []
    for crops in (None, [Crop(0, 0, 128, 192)]):
        torch.manual_seed(0)
        losses.append(model.loss([pixels], [tokens], [target], crops))
    assert losses[0].keys() == losses[1].keys()
    assert all(torch.allclose(losses[0][name], losses[1][name], rtol=1e-5) for name in losses[0])


def test_where_a_crop_lies_matters_and_crops_of_several_frames_train_together() -> None:
    model = small_model().train()
    pixels = frame(64, 64)
    tokens = partition(pixels, 0.5)
    target = {"boxes": torch.tensor([[10.0, 12, 40, 50]]), "labels": torch.tensor([1])}
    sums = []
    for place in ((0, 0), (128, 64)):
        torch.manual_seed(0)
        losses = model.loss([pixels], [tokens], [target], [Crop(*place, 256, 512)], queries=20)
        sums.append(float(torch.stack(list(losses.values())).sum().detach()))
    assert sums[0] != pytest.approx(sums[1], rel=1e-4)
    several = model.loss(
        [pixels, pixels], [tokens, tokens], [target, target], [Crop(0, 64, 256, 512), Crop(64, 0, 320, 512)]
    )
    assert all(value.isfinite() for value in several.values())


def test_crops_that_cannot_be_are_refused() -> None:
    model = small_model()
    with pytest.raises(InputError, match="does not lie on the 16-px grid"):
        Crop(8, 0, 64, 64)
    with pytest.raises(InputError, match="leave their canvas"):
        model.encoder([frame(64, 64)], [partition(frame(64, 64), 0.5)], crops=[Crop(64, 0, 64, 96)])
    with pytest.raises(InputError, match="crops: 0 for 1 images"):
        model.encoder([frame(64, 64)], [partition(frame(64, 64), 0.5)], crops=[])
