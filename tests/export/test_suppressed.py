"""What the runtime without torch keeps is what the heads keep; what a graph cannot be exported for is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.detect.small_models import ENCODER, small_detector
from tests.detect.test_atss import SIZE, head, maps
from vgtok.detect.detector import Detector
from vgtok.errors import InputError
from vgtok.export.description import Description
from vgtok.export.onnx_file import _partition, export_onnx
from vgtok.export.runtime import suppressed
from vgtok.tokenize.canvas import fit_canvas

PADDED = {**ENCODER, "grid_multiple": 2}


def described(suppression: str) -> Description:
    encoder = small_detector(encoder_overrides=PADDED).model.encoder.config
    plain = Description("small", ("car",), 128, 96, 48, False, encoder, (), "atss", "")
    return replace(plain, atss_suppression=suppression)


@pytest.mark.parametrize("suppression", ["hard", "soft"])
def test_the_atss_head_keeps_the_same_without_torch(suppression: str) -> None:
    found = head(suppression)
    with torch.inference_mode():
        candidates = found.candidates(maps())
        boxes, scores, labels = found.predict(maps(), SIZE, 1000)
    description = described(suppression)
    kept = suppressed(tuple(part.numpy() for part in candidates), description, SIZE, 1000)  # type: ignore[arg-type]
    assert kept[2].tolist() == labels.tolist()
    np.testing.assert_allclose(kept[1], scores.numpy(), rtol=1e-5)
    np.testing.assert_allclose(kept[0], boxes.numpy(), rtol=1e-5)


def test_a_file_says_how_its_boxes_are_thinned_out_and_an_old_one_need_not() -> None:
    properties = described("soft").to_properties()
    assert Description.from_properties(properties, "a.onnx") == described("soft")
    del properties["atss_suppression"]
    assert Description.from_properties(properties, "a.onnx").atss_suppression == "hard"


def test_a_graph_has_the_tokens_of_the_models_budget() -> None:
    canvas = fit_canvas(np.zeros((128, 192, 3), dtype=np.uint8), "native")
    assert len(_partition(canvas, None, 1.0)) == canvas.extent.dense
    assert len(_partition(canvas, None, 0.4)) == pytest.approx(0.4 * canvas.extent.dense, abs=2)


def test_a_model_that_pads_is_exported_for_sizes_that_need_none(tmp_path: Path) -> None:
    detector = Detector(small_detector(encoder_overrides=PADDED).model, canvas=(192, 112))
    with pytest.raises(InputError, match=r"size: this model pads images to a multiple of 32 px.*not 192 x 112"):
        export_onnx(detector, tmp_path / "model.onnx")
