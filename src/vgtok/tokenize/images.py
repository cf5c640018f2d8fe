"""Read an image from a path, bytes, PIL image, array or tensor as upright 8-bit RGB pixels.

Files, bytes and PIL images are turned by their EXIF orientation, so a path and `Image.open(path)` give the same pixels.
Whatever cannot be read raises an InputError that names it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.errors import InputError
from vgtok.tokenize.decode import ValueRange, array_pixels, check_memory, open_picture, picture_pixels, tensor_pixels

ImageLike = Any
"""str | Path | bytes | PIL.Image | (H, W[, C]) array | (C, H, W) torch tensor."""

_BYTES = "image bytes"


def read_image(image: ImageLike, value_range: ValueRange = None) -> NDArray[np.uint8]:
    """Return the image as (H, W, 3) uint8 RGB.

    `value_range` holds the (low, high) values that map to 0 and 255. Floats and integers other than 8 and 16 bits
    unsigned require it.
    """
    if isinstance(image, str | Path):
        with _opened(Path(image)) as file:
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
    with _opened(Path(image)) as file:
        return open_picture(file, _shown(image)).size


def _decoded(data: bytes, name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    picture = open_picture(BytesIO(data), name)
    check_memory(picture, len(data), name)
    return picture_pixels(picture, name, value_range)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
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
