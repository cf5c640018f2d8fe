"""Anything a caller calls an image (path, bytes, PIL, array, tensor) to 8-bit RGB pixels, upright.

A file, bytes or PIL image is turned the way its EXIF orientation says, so a path and `Image.open(path)` give
the same pixels. Deeper than 8 bits is scaled by a range: 16-bit integers have one, floats must state theirs.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from vgtok.errors import InputError

MAX_PIXELS = 2**30
"""Largest frame that is decoded: a 32768 x 32768 one. Beyond it a file is taken for a decompression bomb."""

ImageLike = Any
"""str | Path | bytes | PIL.Image | (H, W[, C]) array | (C, H, W) torch tensor."""

_UNREADABLE = "{}: not an image in a format that can be read (JPEG, PNG, TIFF, WebP, ...)"

_pillow_limit = threading.Lock()


def read_image(image: ImageLike, value_range: tuple[float, float] | None = None) -> NDArray[np.uint8]:
    """Return the image as (H, W, 3) uint8 RGB.

    `value_range` is the (low, high) that map to 0 and 255; floats need it, integers of other widths may have it.
    """
    if isinstance(image, str | Path):
        return _read_file(Path(image), value_range)
    if isinstance(image, bytes | bytearray | memoryview):
        return _decode(bytes(image), "image bytes", value_range)
    if isinstance(image, Image.Image):
        return _from_pillow(image, "PIL image", value_range)
    if type(image).__module__.partition(".")[0] == "torch":
        return _from_channels_first(image.detach().cpu().numpy(), value_range)
    if isinstance(image, np.ndarray):
        return _from_array(image, "array", value_range)
    raise InputError(
        f"image: cannot read a {type(image).__name__}; give a path, bytes, a PIL image, "
        "an (H, W, 3) array or a (3, H, W) tensor"
    )


def header_size(data: bytes, formats: tuple[str, ...]) -> tuple[int, int]:
    """Width and height an image file of one of Pillow's `formats` announces; nothing is decoded."""
    try:
        with _large_frames_allowed(), Image.open(BytesIO(data), formats=formats) as picture:
            return picture.size
    except UnidentifiedImageError:
        raise InputError(_UNREADABLE.format("image bytes")) from None
    except (OSError, SyntaxError, EOFError, ValueError) as error:
        raise InputError(f"image bytes: the image is damaged or cut short ({error})") from None


def _read_file(path: Path, value_range: tuple[float, float] | None) -> NDArray[np.uint8]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not an image file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if not data:
        raise InputError(f"{path}: the file is empty")
    return _decode(data, str(path), value_range)


def _decode(data: bytes, name: str, value_range: tuple[float, float] | None) -> NDArray[np.uint8]:
    try:
        with _large_frames_allowed(), Image.open(BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise InputError(f"{name}: {picture.width} x {picture.height} is more than {MAX_PIXELS} pixels")
            picture.load()
            return _from_pillow(picture, name, value_range)
    except UnidentifiedImageError:
        raise InputError(_UNREADABLE.format(name)) from None
    except (OSError, SyntaxError, EOFError, MemoryError) as error:
        raise InputError(f"{name}: the image is damaged or cut short ({error})") from None


@contextmanager
def _large_frames_allowed() -> Iterator[None]:
    """Lift Pillow's own limit (a process-wide variable) while a file is opened; MAX_PIXELS stands instead."""
    with _pillow_limit, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _from_pillow(picture: Image.Image, name: str, value_range: tuple[float, float] | None) -> NDArray[np.uint8]:
    upright = ImageOps.exif_transpose(picture)
    if upright.width == 0 or upright.height == 0:
        raise InputError(f"{name}: has no pixels ({upright.width} x {upright.height})")
    if upright.mode.startswith("I;16"):
        return _from_array(np.asarray(upright, dtype=np.uint16), name, value_range)
    if upright.mode == "I":
        values = np.asarray(upright)
        # Older Pillow opens 16-bit greys as 32-bit integers: only those that fit are taken for such a file.
        fits = value_range is None and values.min() >= 0 and values.max() <= np.iinfo(np.uint16).max
        return _from_array(values.astype(np.uint16) if fits else values, name, value_range)
    if upright.mode == "F":
        return _from_array(np.asarray(upright), name, value_range)
    if upright.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in upright.info:
        # Transparent pixels carry arbitrary colours; over black a hole in a mosaic is flat and costs no tokens.
        coloured = upright.convert("RGBA")
        black = Image.new("RGBA", coloured.size, (0, 0, 0, 255))
        upright = Image.alpha_composite(black, coloured)
    return np.ascontiguousarray(np.asarray(upright.convert("RGB")))


def _from_channels_first(pixels: NDArray[Any], value_range: tuple[float, float] | None) -> NDArray[np.uint8]:
    if pixels.ndim == 3:
        if pixels.shape[0] not in (1, 3, 4):
            raise InputError(f"tensor: shape {pixels.shape} is not (C, H, W) with 1, 3 or 4 channels")
        pixels = np.moveaxis(pixels, 0, -1)
    return _from_array(pixels, "tensor", value_range)


def _from_array(pixels: NDArray[Any], name: str, value_range: tuple[float, float] | None) -> NDArray[np.uint8]:
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


def _to_8_bit(pixels: NDArray[Any], name: str, value_range: tuple[float, float] | None) -> NDArray[np.uint8]:
    if value_range is None:
        if pixels.dtype == np.uint8:
            return pixels
        if pixels.dtype == np.bool_:
            return pixels.astype(np.uint8) * np.uint8(255)
        if pixels.dtype == np.uint16:
            return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
        raise InputError(
            f"{name}: {pixels.dtype} pixels have no known range; "
            "say which values are black and white, e.g. value_range=(0.0, 1.0)"
        )
    low, high = value_range
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(f"value_range: {value_range} is not (low, high) with low < high")
    if not np.issubdtype(pixels.dtype, np.number):
        raise InputError(f"{name}: {pixels.dtype} pixels are not numbers")
    values = pixels.astype(np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{name}: contains NaN or infinite pixels; replace them first")
    return np.clip(np.rint((values - low) * (255.0 / (high - low))), 0, 255).astype(np.uint8)
