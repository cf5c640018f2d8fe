"""Fine cover equals counting small squares."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vgtok import Tokenizer
from vgtok.study.cover import fine_cover

boxes_strategy = st.lists(
    st.tuples(st.floats(0, 190), st.floats(0, 120), st.floats(0.5, 60), st.floats(0.5, 60)), min_size=1, max_size=5
)


@given(boxes_strategy, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_fine_cover_equals_counting_small_squares(sizes: list[tuple[float, ...]], seed: int) -> None:
    boxes = np.array([(round(x), round(y), round(x) + -(-w // 1), round(y) + -(-h // 1)) for x, y, w, h in sizes])
    boxes = np.minimum(boxes, [200, 150, 200, 150])
    boxes = boxes[(boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])]
    image = np.random.default_rng(seed).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    tokens = Tokenizer(percentile=60, canvas="native")(image)
    fine = np.zeros((150, 200))
    for x0, y0, x1, y1 in tokens.boxes[tokens.sizes == 16]:
        fine[y0:y1, x0:x1] = 1
    expected = [fine[int(y0) : int(y1), int(x0) : int(x1)].mean() for x0, y0, x1, y1 in boxes]
    np.testing.assert_allclose(fine_cover(tokens, boxes.astype(np.float64)), expected, atol=1e-9)
