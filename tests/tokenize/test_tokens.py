"""Tokens: order, geometry, validation that can fail, files."""

import json
from dataclasses import replace

import numpy as np
import pytest

from vgtok import InputError, Tokenizer, Tokens
from vgtok.tokenize.geometry import z_order


@pytest.fixture
def tokens() -> Tokens:
    image = np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    return Tokenizer(percentile=60, canvas="native")(image)


def test_contract_of_the_arrays(tokens: Tokens) -> None:
    assert tokens.boxes.shape == (len(tokens), 4)
    assert tokens.boxes.dtype == tokens.sizes.dtype == np.int32
    assert set(tokens.sizes.tolist()) <= {16, 32, 64}
    assert tokens.dense == 10 * 13
    assert tokens.retained == len(tokens) / 130
    assert sum(tokens.counts().values()) == len(tokens)
    assert (tokens.cell_sizes() > 0).all()


def test_tokens_come_root_by_root_in_z_order(tokens: Tokens) -> None:
    roots = tokens.y // 64 * 100 + tokens.x // 64
    assert (np.diff(roots) >= 0).all()
    for root in np.unique(roots):
        inside = roots == root
        x, y = tokens.x[inside] % 64 // 16, tokens.y[inside] % 64 // 16
        morton = (x & 1) | (y & 1) << 1 | (x & 2) << 1 | (y & 2) << 2
        assert (np.diff(morton) > 0).all()


def test_z_order_lists_every_cell_once() -> None:
    order = z_order(3, 5)
    assert sorted(order.tolist()) == list(range(3 * 5 * 16))
    assert order[:4].tolist() == [0, 1, 20, 21]


def test_source_boxes_tile_the_callers_image() -> None:
    image = np.random.default_rng(1).integers(0, 256, (77, 131, 3), dtype=np.uint8)
    boxes = Tokenizer(budget=0.5, canvas=(512, 288))(image).source_boxes
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    assert area.sum() == pytest.approx(77 * 131)
    assert boxes.min() == 0
    assert boxes[:, 2].max() == 131
    assert boxes[:, 3].max() == 77


def test_validate_finds_what_is_wrong(tokens: Tokens) -> None:
    tokens.validate()
    keep = np.arange(len(tokens)) != 5
    missing = replace(tokens, x=tokens.x[keep], y=tokens.y[keep], sizes=tokens.sizes[keep])
    with pytest.raises(InputError, match="covered 0 times"):
        missing.validate()
    twice = replace(
        tokens, **{name: np.append(getattr(tokens, name), getattr(tokens, name)[-1]) for name in ("x", "y", "sizes")}
    )
    with pytest.raises(InputError, match="covered 2 times"):
        twice.validate()
    with pytest.raises(InputError, match="sizes other than"):
        replace(tokens, sizes=np.full_like(tokens.sizes, 8)).validate()
    with pytest.raises(InputError, match="grid of its own size"):
        replace(tokens, x=tokens.x + 4).validate()
    with pytest.raises(InputError, match="outside the canvas"):
        replace(tokens, x=tokens.x + 192).validate()


def test_json_and_arrays_hold_the_whole_partition(tokens: Tokens) -> None:
    document = json.loads(tokens.to_json())
    assert document["format"] == "vgtok-tokens"
    assert document["version"] == 1
    assert document["tokens"] == len(tokens) == len(document["x"]) == len(document["y"])
    assert document["size"] == tokens.sizes.tolist()
    assert document["canvas"] == {"width": 200, "height": 150}
    arrays = tokens.to_arrays()
    assert arrays["canvas"].tolist() == [150, 200]
    np.testing.assert_array_equal(arrays["x"], tokens.x)


def test_a_crop_holds_the_tokens_of_its_place_and_is_strict(tokens: Tokens) -> None:
    part = tokens.crop(64, 0, 128, 128)
    part.validate()
    assert (part.width, part.height) == (128, 128)
    moved = {(x0 + 64, y0, x1 + 64, y1) for x0, y0, x1, y1 in part.boxes.tolist()}
    inside = (tokens.x >= 64) & (tokens.x < 192) & (tokens.y < 128)
    assert moved == {tuple(box) for box in tokens.boxes[inside].tolist()}
    edge = tokens.crop(128, 64, 128, 128)
    edge.validate()
    assert (edge.width, edge.height) == (200 - 128, 150 - 64)


@pytest.mark.parametrize(
    ("corner", "size", "message"),
    [
        ((10, 0), (64, 64), "does not lie on a 64-px root"),
        ((256, 0), (64, 64), "does not lie"),
        ((0, 0), (50, 64), "cut through"),
    ],
)
def test_crops_off_the_roots_are_refused(
    tokens: Tokens, corner: tuple[int, int], size: tuple[int, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        tokens.crop(*corner, *size)
