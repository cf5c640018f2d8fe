"""Windows over the canvas share its partition and place what they find in the image."""

import numpy as np

from tests.detect.small_models import small_detector
from vgtok.slicing.windows import Windows
from vgtok.study.seams import ByWindows
from vgtok.tokenize.tokenizer import Tokenizer


def test_one_window_over_the_canvas_finds_what_the_whole_shows() -> None:
    detector = small_detector()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    canvas = (192, 128)
    whole = detector(pixels, tokenizer=Tokenizer(budget=0.4, canvas=canvas), score_threshold=0.0, head="query")
    found = ByWindows(Windows(256, 256), canvas)(detector, pixels, 500, "query")
    assert found.retained == whole.tokens.retained
    # Float32 as stored; both are in pixels of the image, of which the canvas is twice the size.
    np.testing.assert_allclose(found.boxes, whole.boxes[:500], atol=1e-3)
    assert len(ByWindows(Windows(256, 256), canvas)(detector, pixels, 3, "query").boxes) <= 3
