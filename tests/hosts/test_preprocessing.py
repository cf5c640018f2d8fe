"""The preprocessing of hosts, against the PIL image processors of transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from vgtok.data import render_scene
from vgtok.errors import InputError
from vgtok.hosts.adapters import IMAGENET, OPENAI
from vgtok.hosts.preprocessing import read_preprocessing

_EDGES = {"shortest_edge": 96, "longest_edge": 160}

PROCESSORS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "yolos": ("YolosImageProcessorPil", {"size": _EDGES}, {"multiple": 16}),
    "lw-detr": ("DeformableDetrImageProcessorPil", {"size": _EDGES}, {}),
    "lw-detr, square": ("DeformableDetrImageProcessorPil", {"size": {"height": 128, "width": 96}}, {}),
    # RF-DETR's own needs torchvision and inherits from this one.
    "rf-detr": ("DetrImageProcessorPil", {"size": {"height": 112, "width": 112}}, {}),
    "owl-vit": ("OwlViTImageProcessorPil", {"size": {"height": 96, "width": 96}}, {}),
    "owlv2": ("Owlv2ImageProcessorPil", {"size": {"height": 96, "width": 96}}, {"squares": True}),
}


@pytest.mark.parametrize("name", PROCESSORS)
@given(st.integers(40, 240), st.integers(40, 240))
@settings(max_examples=8, deadline=None)
def test_pixels_equal_those_of_the_processor(
    tmp_path_factory: pytest.TempPathFactory, name: str, height: int, width: int
) -> None:
    kind, arguments, own = PROCESSORS[name]
    processor = getattr(transformers, kind)(**arguments)
    folder = tmp_path_factory.mktemp("processor")
    processor.save_pretrained(folder)
    image = np.ascontiguousarray(render_scene(seed=2, width=256, height=256).pixels[:height, :width])
    expected = np.asarray(processor(image, return_tensors="np")["pixel_values"][0])
    usual = OPENAI if name.startswith("owl") else IMAGENET
    prepared = read_preprocessing(folder, usual, **own)(image)
    assert tuple(prepared.pixel_values.shape) == expected.shape
    assert np.abs(prepared.pixel_values.numpy() - expected).max() < 1e-4
    if not own.get("squares"):
        assert (prepared.height, prepared.width) == expected.shape[1:]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "has no preprocessor_config.json, which says how images are resized"),
        ("{", "is not a JSON file"),
        ("[]", "has no preprocessor_config.json"),
        ('{"size": {"max_height": 3}}', "is neither height and width nor shortest_edge"),
        ('{"size": {"height": 1e3, "width": 3}}', "is neither height and width"),
        ('{"size": 64, "do_center_crop": true}', "do_center_crop is not available"),
        ('{"size": 64, "do_resize": false}', "do_resize is false"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_preprocessing(tmp_path, IMAGENET)


def test_a_processor_of_images_and_text_is_read_too(tmp_path: Path) -> None:
    inner = {"size": {"height": 32, "width": 48}, "do_normalize": False, "do_rescale": False}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": inner}))
    prepared = read_preprocessing(tmp_path, IMAGENET)(np.full((10, 20, 3), 7, dtype=np.uint8))
    assert prepared.pixel_values.shape == (3, 32, 48)
    assert (prepared.pixel_values == 7).all()
