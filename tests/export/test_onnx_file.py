"""What a detector can be exported for: its token count, and the sizes it refuses."""

from pathlib import Path

import numpy as np
import pytest

from tests.detect.small_models import ENCODER, small_detector
from vgtok.detect.detector import Detector
from vgtok.errors import InputError
from vgtok.export.onnx_file import _partition, export_onnx
from vgtok.tokenize.canvas import fit_canvas

PADDED = {**ENCODER, "grid_multiple": 2}


def test_a_graph_has_the_tokens_of_the_models_budget() -> None:
    canvas = fit_canvas(np.zeros((128, 192, 3), dtype=np.uint8), "native")
    assert len(_partition(canvas, None, 1.0)) == canvas.extent.dense
    assert len(_partition(canvas, None, 0.4)) == pytest.approx(0.4 * canvas.extent.dense, abs=2)


def test_a_model_that_pads_is_exported_for_sizes_that_need_none(tmp_path: Path) -> None:
    detector = Detector(small_detector(encoder_overrides=PADDED).model, canvas=(192, 112))
    with pytest.raises(InputError, match=r"size: this model pads images to a multiple of 32 px.*not 192 x 112"):
        export_onnx(detector, tmp_path / "model.onnx")
