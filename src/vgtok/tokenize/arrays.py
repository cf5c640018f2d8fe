"""Pixels in memory, (H, W[, C]) of any depth, to (H, W, 3) 8-bit RGB.

Deeper than 8 bits is scaled by a range: 16-bit integers have one, floats must state theirs. Alpha is laid over black.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError

ValueRange = tuple[float, float] | None
"""The (low, high) that map to 0 and 255."""


def tensor_pixels(tensor: Any, value_range: ValueRange) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 of a torch tensor, (C, H, W) or (H, W)."""
    try:
        pixels = tensor.detach().cpu().numpy()
    # Sparse, meta and quantized tensors and those of types numpy lacks each fail in a way of their own.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"tensor: cannot be read as an array ({reason}); give a dense uint8 one") from None
    if pixels.ndim == 3:
        if pixels.shape[0] not in (1, 3, 4):
            raise InputError(f"tensor: shape {pixels.shape} is not (C, H, W) with 1, 3 or 4 channels")
        pixels = np.moveaxis(pixels, 0, -1)
    return array_pixels(pixels, "tensor", value_range)


def array_pixels(pixels: NDArray[Any], name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 of an (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) array."""
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise InputError(f"{name}: shape {pixels.shape} is not (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)")
    if pixels.shape[0] == 0 or pixels.shape[1] == 0:
        raise InputError(f"{name}: has no pixels (shape {pixels.shape})")
    narrow = _to_8_bit(pixels, name, value_range)
    if narrow.shape[2] == 4:
        opaque = narrow[:, :, 3:].astype(np.uint16)
        narrow = ((narrow[:, :, :3] * opaque + 127) // 255).astype(np.uint8)
    if narrow.shape[2] == 1:
        narrow = np.repeat(narrow, 3, axis=2)
    return np.ascontiguousarray(narrow)


def _to_8_bit(pixels: NDArray[Any], name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    """(H, W, C) of any type to uint8."""
    if value_range is None:
        if pixels.dtype == np.uint8:
            return pixels
        if pixels.dtype == np.bool_:
            return pixels.astype(np.uint8) * np.uint8(255)
        if pixels.dtype == np.uint16:
            return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
        raise without_range(name, str(pixels.dtype))
    low, high = _checked_range(value_range)
    if not (np.issubdtype(pixels.dtype, np.integer) or np.issubdtype(pixels.dtype, np.floating)):
        raise InputError(f"{name}: {pixels.dtype} pixels are not real numbers")
    values = pixels.astype(np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{name}: contains NaN or infinite pixels; replace them first")
    return np.clip(np.rint((values - low) * (255.0 / (high - low))), 0, 255).astype(np.uint8)


def without_range(name: str, kind: str) -> InputError:
    """What is said of pixels of a `kind` that has no range of its own."""
    return InputError(
        f"{name}: {kind} pixels have no known range; say which values are black and white, e.g. value_range=(0.0, 1.0)"
    )


def _checked_range(value_range: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in value_range)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"value_range: {value_range!r} is not two numbers (low, high)") from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(f"value_range: {value_range} is not (low, high) with low < high")
    return low, high
