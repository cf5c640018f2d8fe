"""lambda_min: against SciPy's eigenvalues of an independently built tensor, and on edges, corners and blobs."""

import numpy as np
import pytest
import scipy.ndimage

from vgtok.tokenize.geometry import CanvasPixels
from vgtok.tokenize.structure import (
    FULL_SIZE,
    HALF_SIZE,
    LUMA_BITS,
    PAPER_AUROC,
    Reading,
    lambda_min_cells,
    quantized_luma,
    smaller_eigenvalue,
    structure_tensor,
)


def reference(luma: np.ndarray, reading: Reading) -> np.ndarray:
    """Twice the smaller eigenvalue at every window, in double precision throughout, by SciPy and LAPACK."""
    smooth, slope = {3: ([1, 2, 1], [-1, 0, 1]), 5: ([1, 4, 6, 4, 1], [-1, -2, 0, 2, 1])}[reading.sobel]

    def gradient(axis: int) -> np.ndarray:
        rows = scipy.ndimage.correlate1d(luma.astype(float), smooth, 1 - axis, mode="nearest")
        return scipy.ndimage.correlate1d(rows, slope, axis, mode="nearest")

    def windowed(values: np.ndarray) -> np.ndarray:
        reach = reading.window // 2
        mode = "reflect" if reading.mirrored else "constant"
        padded = np.pad(values, reach + reading.stride, mode=mode)[reading.stride :, reading.stride :]
        windows = np.lib.stride_tricks.sliding_window_view(padded, (reading.window, reading.window))
        rows, columns = (-(-side // reading.stride) for side in values.shape)
        sums = windows[:: reading.stride, :: reading.stride][:rows, :columns].sum(axis=(2, 3))
        return sums / reading.stride**2

    x, y = gradient(1), gradient(0)
    tensor = np.stack([windowed(x * x), windowed(x * y), windowed(x * y), windowed(y * y)], -1)
    return 2 * np.linalg.eigvalsh(tensor.reshape(*tensor.shape[:2], 2, 2))[..., 0]


@pytest.mark.parametrize("reading", [HALF_SIZE, FULL_SIZE, PAPER_AUROC])
@pytest.mark.parametrize("shape", [(90, 70), (33, 128), (1, 1), (65, 3)])
def test_equals_eigenvalues_of_the_windowed_tensor(reading: Reading, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    luma = quantized_luma(rng.integers(0, 65281, shape, dtype=np.uint16), reading.shrink)
    xx, yy, xy = structure_tensor(luma, reading)
    measured = smaller_eigenvalue(xx, yy, xy)
    scale = max(1.0, float((xx + yy).max()))
    np.testing.assert_allclose(measured, reference(luma, reading), atol=2e-6 * scale)


def test_the_widest_block_sums_are_exact_in_a_float() -> None:
    hard = np.zeros((64, 64), dtype=np.int16)
    hard[:, ::4] = hard[:, 1::4] = 2**LUMA_BITS - 2
    xx, _, _ = structure_tensor(hard, HALF_SIZE)
    assert xx.dtype == np.float32
    assert xx.max() == 16 * 2040**2
    assert 4 * 2040**2 < 2**24


def test_half_size_is_the_rounded_mean_of_four_pixels_odd_edges_doubled() -> None:
    luma = np.random.default_rng(4).integers(0, 65281, (7, 9), dtype=np.uint16)
    half = quantized_luma(luma, 2)
    assert half.shape == (4, 5)
    even = np.pad(luma, ((0, 1), (0, 1)), mode="edge").astype(np.int64)
    sums = even[0::2, 0::2] + even[0::2, 1::2] + even[1::2, 0::2] + even[1::2, 1::2]
    np.testing.assert_array_equal(half, ((sums + 2) // 4) >> 7)


@pytest.mark.parametrize("reading", [HALF_SIZE, FULL_SIZE, PAPER_AUROC])
def test_a_straight_edge_has_none_a_corner_and_a_blob_have_much(reading: Reading) -> None:
    def largest(draw: object) -> float:
        image = np.full((192, 192, 3), 60, dtype=np.uint8)
        image[draw] = 200  # type: ignore[index]
        # Away from the border, where the frame's own end would be a second direction.
        return float(lambda_min_cells(CanvasPixels(image), reading)[4:8, 4:8].max())

    line, corner, blob = largest(np.s_[90:96, :]), largest(np.s_[96:, 96:]), largest(np.s_[92:100, 92:100])
    assert line <= 1e-3 * corner
    assert min(blob, corner) > 100 * line
    assert min(blob, corner) > 0
