"""Read an image and fit it on a canvas: resized, and padded to whole 64-px roots."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from numbers import Integral
from pathlib import Path
from typing import IO, Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import InputError
from vgtok.files import check_local
from vgtok.tokenize.decode import ValueRange, array_pixels, check_memory, open_picture, picture_pixels, tensor_pixels
from vgtok.tokenize.geometry import ROOT, Extent

ImageLike = Any
"""str | Path | bytes | PIL.Image | (H, W[, C]) array | (C, H, W) torch tensor."""

_BYTES = "image bytes"


def read_image(image: ImageLike, value_range: ValueRange = None) -> NDArray[np.uint8]:
    """Return the image as (H, W, 3) uint8 RGB.

    `value_range` holds the (low, high) values that map to 0 and 255. Floats and integers other than 8 and 16 bits
    unsigned require it.
    """
    if isinstance(image, str | Path):
        with _opened(image) as file:
            return _decoded(_content(file, Path(image)), _shown(image), value_range)
    if isinstance(image, bytes | bytearray | memoryview):
        return _decoded(bytes(image), _BYTES, value_range)
    if isinstance(image, Image.Image):
        return picture_pixels(image, "PIL image", value_range)
    if type(image).__module__.partition(".")[0] == "torch" and hasattr(image, "detach"):
        return tensor_pixels(image, value_range)
    if isinstance(image, np.ndarray):
        return array_pixels(image, "array", value_range)
    raise InputError(
        f"image: cannot read a {type(image).__name__}; give a path, bytes, a PIL image, "
        "an (H, W, 3) array or a (3, H, W) tensor"
    )


def header_size(image: str | Path | bytes) -> tuple[int, int]:
    """Return width and height from the header of an image file, without decoding it."""
    if isinstance(image, bytes):
        return open_picture(BytesIO(image), _BYTES).size
    with _opened(image) as file:
        return open_picture(file, _shown(image)).size


def _decoded(data: bytes, name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    picture = open_picture(BytesIO(data), name)
    check_memory(picture, len(data), name)
    return picture_pixels(picture, name, value_range)


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    try:
        file = Path(path).open("rb")  # noqa: SIM115  (closed below, outside of what is caught here)
    except FileNotFoundError:
        check_local(path)
        raise InputError(f"{_shown(path)}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{_shown(path)}: is a folder, not an image file") from None
    except OSError as error:
        raise InputError(f"{_shown(path)}: cannot be read ({error.strerror})") from None
    # A name with a NUL or a lone surrogate.
    except ValueError:
        raise InputError(f"{_shown(path)}: is no name a file can have") from None
    with file:
        yield file


def _content(file: IO[bytes], path: Path) -> bytes:
    try:
        data = file.read()
    except OSError as error:
        raise InputError(f"{_shown(path)}: cannot be read ({error.strerror})") from None
    except MemoryError:
        raise InputError(f"{_shown(path)}: there is not enough memory to read the file") from None
    if not data:
        raise InputError(f"{_shown(path)}: the file is empty")
    return data


def _shown(path: str | Path) -> str:
    """Return a path with unprintable characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(path))


CanvasSize = tuple[int, int] | Literal["native"]
"""(long side, short side) in pixels to fit inside, landscape or portrait, or 'native' for the image's own size."""

_MOST_PIXELS = 2**30
"""Largest canvas, 32768 x 32768 px: the size of the largest image that is read."""


@dataclass(frozen=True)
class Canvas:
    """An image resized and padded for the tokenizer.

    `pixels` is (H, W, 3) uint8 RGB with H and W multiples of 64; the image fills its top-left `height` x `width`,
    the rest is padding. `source_height` and `source_width` are the size of the original image. `counted` padding is
    read as if it were image.
    """

    pixels: NDArray[np.uint8]
    height: int
    width: int
    source_height: int
    source_width: int
    counted: bool = False

    @cached_property
    def extent(self) -> Extent:
        """The area that is read, in pixels, cells and roots."""
        return Extent(*self.image.shape[:2])

    @property
    def image(self) -> NDArray[np.uint8]:
        """The pixels that are read, an (h, w, 3) view: without padding unless it is counted."""
        return self.pixels if self.counted else self.pixels[: self.height, : self.width]

    @property
    def source_size(self) -> tuple[int, int]:
        """Height and width of what is read, in source pixels: beyond the image where padding counts."""
        rows, columns = self.image.shape[:2]
        return round(rows * self.source_height / self.height), round(columns * self.source_width / self.width)

    def to_source(self, boxes: NDArray[np.generic]) -> NDArray[np.float64]:
        """Map (N, 4) x0 y0 x1 y1 boxes on the canvas to image coordinates, clipped to the image."""
        return to_source(boxes, (self.height, self.width), (self.source_height, self.source_width))

    def from_source(self, boxes: NDArray[np.generic]) -> NDArray[np.float64]:
        """Map (N, 4) x0 y0 x1 y1 boxes in image coordinates to the canvas."""
        ratio = np.array([self.width / self.source_width, self.height / self.source_height] * 2)
        return np.asarray(np.asarray(boxes, dtype=np.float64).reshape(-1, 4) * ratio)


def to_source(
    boxes: NDArray[np.generic], canvas_size: tuple[int, int], source_size: tuple[int, int]
) -> NDArray[np.float64]:
    """Map (N, 4) canvas boxes to image coordinates; both sizes are (height, width) without padding."""
    (height, width), (source_height, source_width) = canvas_size, source_size
    limits = np.array([width, height, width, height], dtype=np.float64)
    source_limits = np.array([source_width, source_height] * 2, dtype=np.float64)
    clipped = np.minimum(np.maximum(np.asarray(boxes, dtype=np.float64).reshape(-1, 4), 0.0), limits)
    # Multiply before dividing: the far edge then lands on the far edge without a rounding error.
    return clipped * source_limits / limits


def check_size(size: CanvasSize) -> None:
    """Raise InputError unless `size` is a canvas size that fits into memory."""
    if isinstance(size, str) and size == "native":
        return
    # Accept numpy integers too, but not bool, which is an int by inheritance only.
    if not (
        isinstance(size, tuple)
        and len(size) == 2
        and all(isinstance(side, Integral) and not isinstance(side, bool) and side > 0 for side in size)
    ):
        raise InputError(f"canvas: {size!r} is neither (long side, short side) in whole pixels nor 'native'")
    if size[0] * size[1] > _MOST_PIXELS:
        raise InputError(f"canvas: {size[0]} x {size[1]} px is more than {_MOST_PIXELS} pixels; choose a smaller one")


def fitted_size(height: int, width: int, size: CanvasSize) -> tuple[int, int]:
    """Return height and width of an image fitted to `size`, keeping its aspect ratio and orientation."""
    check_size(size)
    if size == "native":
        return height, width
    long_side, short_side = max(size), min(size)
    scale = min(long_side / max(height, width), short_side / min(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def fit_canvas(image: NDArray[np.uint8], size: CanvasSize = DEFAULT_CANVAS) -> Canvas:
    """Resize an (H, W, 3) uint8 RGB image to fit `size` and pad it to whole 64-px roots."""
    source_height, source_width = image.shape[:2]
    height, width = fitted_size(source_height, source_width, size)
    if (height, width) != (source_height, source_width):
        # Bilinear as in the paper; below half size it would skip pixels, so average areas instead.
        shrinks = 2 * height < source_height and 2 * width < source_width
        method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        image = np.asarray(cv2.resize(image, (width, height), interpolation=method), dtype=np.uint8)
    extent = Extent(height, width)
    padded = (extent.root_rows * ROOT, extent.root_columns * ROOT)
    if padded == (height, width):
        pixels = np.ascontiguousarray(image)
    else:
        pixels = np.zeros((*padded, 3), dtype=np.uint8)
        pixels[:height, :width] = image
    return Canvas(pixels, height, width, source_height, source_width)


def reflect_padding(canvas: Canvas) -> Canvas:
    """Fill the padding with the mirrored image and count it, as the paper's figure of the method does."""
    below, right = (
        whole - side for whole, side in zip(canvas.pixels.shape, (canvas.height, canvas.width), strict=False)
    )
    if not below and not right:
        return canvas
    pixels = np.pad(canvas.image, ((0, below), (0, right), (0, 0)), mode="reflect")
    return replace(canvas, pixels=pixels, counted=True)
