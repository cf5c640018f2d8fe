"""Decode image files and arrays to 8-bit RGB pixels, in bounded memory, through one list of plain-data formats."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.errors import InputError, VGTokError

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


# Image files, decoded by Pillow.

_PLUGINS = {
    "JPEG": "JpegImagePlugin",
    "PNG": "PngImagePlugin",
    "TIFF": "TiffImagePlugin",
    "WEBP": "WebPImagePlugin",
    "BMP": "BmpImagePlugin",
    "JPEG2000": "Jpeg2KImagePlugin",
    "GIF": "GifImagePlugin",
    "AVIF": "AvifImagePlugin",
    "PPM": "PpmImagePlugin",
}

FORMATS = tuple(_PLUGINS)
"""Every format that is read, by Pillow's names, in the order they are tried."""

FREE_BYTES = 1_750_000_000
"""Memory the decoding of any file may take; keeps a small file that claims to be huge from filling the machine."""

BYTES_PER_BYTE = 256
"""A larger file may take this many bytes for each of its own: honest frames of any size, well compressed, take less."""

_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes a pixel takes in Pillow by mode; 4 in every other."""

_WORKING = {"PNG": 0, "BMP": 0, "PPM": 0, "GIF": 1, "JPEG": 8, "MPO": 8, "AVIF": 8, "WEBP": 12, "JPEG2000": 21}
"""Bytes a pixel takes on top while its format is decoded, as measured; 4 in every other."""

_RUN_LENGTHS = 64
"""The same for run lengths in a BMP: Python decodes them, so this bounds the time rather than the memory."""

_STRIP_PIXELS = 2**22
_ORIENTATION = 0x0112

# A view of the upright (H, W, 3) frame with rows and columns as they are stored, by EXIF orientation.
_AS_STORED: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: upright.swapaxes(0, 1)[::-1, ::-1],
    8: lambda upright: np.rot90(upright, -1),
}


def open_picture(file: IO[bytes], name: str) -> Image.Image:
    """The picture in a file, its size known and nothing decoded; it reads on from `file` when its pixels are needed.

    Pillow's own `Image.open` guards pixels by a variable of the whole process, which is the caller's, so the format's
    plugin is called directly; `picture_pixels` bounds memory instead.
    """
    with _as_input_errors(name):
        file.seek(0)
        start = file.read(16)
        for kind in FORMATS:
            try:
                import_module(f"PIL.{_PLUGINS[kind]}")
                factory, accepts = Image.OPEN[kind]
            # A Pillow that is older than the format or was built without it.
            except (ImportError, KeyError):
                continue
            if accepts is None or accepts(start) is not True:
                continue
            file.seek(0)
            try:
                return factory(file, "")
            except Exception as error:
                content = tiff_content(file) if kind == "TIFF" else None
                if content is None:
                    raise
                raise InputError(
                    f"{name}: a TIFF of {content}, which is not read ({_reason(error)}); give grey, or RGB of 8 or 16 "
                    "bits, e.g. three of its bands as an (H, W, 3) array with value_range"
                ) from None
    raise InputError(f"{name}: not an image in a format that can be read (JPEG, PNG, TIFF, WebP, ...)")


def check_memory(picture: Image.Image, file_bytes: int, name: str) -> None:
    """Refuse a picture whose decoding takes more memory than a file of `file_bytes` may."""
    needed, allowed = _decoding_bytes(picture), max(FREE_BYTES, BYTES_PER_BYTE * file_bytes)
    if needed > allowed:
        raise InputError(
            f"{name}: {picture.width} x {picture.height} pixels take {needed / 1e9:.1f} GB to decode, more than the "
            f"{allowed / 1e9:.2f} GB a file of {file_bytes:,} bytes may; cut it into tiles"
        )


def picture_pixels(picture: Image.Image, name: str, value_range: ValueRange = None) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 RGB of a picture, turned the way its EXIF says."""
    with _as_input_errors(name):
        size = picture.size
        if 0 in size:
            raise InputError(f"{name}: has no pixels ({size[0]} x {size[1]})")
        if picture.mode == "F" and value_range is None:
            raise without_range(name, "float32")
        if picture.format == "TIFF" and getattr(picture, "tile", None):
            # Pillow would hold the frame against its process-wide limit here.
            picture.im = Image.core.new(  # type: ignore[attr-defined]
                picture.mode, getattr(picture, "_tile_size", size)
            )
        picture.load()
        if picture.size != size:
            raise InputError(f"{name}: announces {size} pixels and holds {picture.size}")
        return _turned(picture, name, value_range)


def _decoding_bytes(picture: Image.Image) -> int:
    """Memory from the first byte decoded to the finished RGB array, from what the header says."""
    pixels = picture.width * picture.height
    working = _WORKING.get(picture.format or "", 4)
    if picture.format == "TIFF":
        # Its tiles may be larger than itself.
        tags = picture.tag_v2  # type: ignore[attr-defined]
        pixels = max(pixels, int(tags.get(322, 0)) * int(tags.get(323, 0)))
    elif picture.format == "BMP" and picture.info.get("compression") in (1, 2):
        working = _RUN_LENGTHS
    return pixels * (_STORED.get(picture.mode, 4) + working + 3)


def _turned(picture: Image.Image, name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    """The loaded picture strip by strip, so that no second copy of a large one is ever made."""
    orientation = _orientation(picture)
    width, height = picture.size
    sideways = orientation in (5, 6, 7, 8)
    upright = np.empty((width, height, 3) if sideways else (height, width, 3), dtype=np.uint8)
    stored = _AS_STORED[orientation](upright) if orientation in _AS_STORED else upright
    # Older Pillow opens 16-bit greys as 32-bit integers: only those that fit are taken for such a file.
    short = picture.mode == "I" and value_range is None and _fits_16_bits(picture)
    rows = max(1, _STRIP_PIXELS // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        strip = picture if rows >= height else picture.crop((0, top, width, bottom))
        stored[top:bottom] = _strip_pixels(strip, short, name, value_range)
    return upright


def _strip_pixels(strip: Image.Image, short: bool, name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    """(h, W, 3) uint8 of a part of a picture; `short` says that its 32-bit integers are 16-bit ones."""
    if strip.mode in ("I", "F") or strip.mode.startswith("I;16"):
        deep = np.asarray(strip)
        return array_pixels(deep.astype(np.uint16) if short or deep.dtype.itemsize == 2 else deep, name, value_range)
    if strip.mode == "La":
        strip = strip.convert("LA")
    if strip.mode in ("RGBA", "LA", "PA", "RGBa") or "transparency" in strip.info:
        # Transparent pixels carry arbitrary colours; over black a hole in a mosaic is flat and costs no tokens.
        colored = strip.convert("RGBA")
        strip = Image.alpha_composite(Image.new("RGBA", colored.size, (0, 0, 0, 255)), colored)
    return np.asarray(strip.convert("RGB"))


def _fits_16_bits(picture: Image.Image) -> bool:
    low, high = picture.getextrema()
    return bool(low >= 0 and high <= np.iinfo(np.uint16).max)  # type: ignore[operator]  # one band: two numbers


def _orientation(picture: Image.Image) -> int:
    """The EXIF orientation; a picture whose EXIF is damaged is taken as it is stored."""
    try:
        return int(picture.getexif().get(_ORIENTATION, 1))
    except Exception:
        return 1


@contextmanager
def _as_input_errors(name: str) -> Iterator[None]:
    """On hostile bytes decoders raise whatever they trip over; it leaves here as one sentence about the file."""
    try:
        yield
    except VGTokError:
        raise
    except MemoryError:
        raise InputError(f"{name}: there is not enough memory to decode it") from None
    except Image.DecompressionBombError:
        raise InputError(f"{name}: holds more pixels than are decoded from a file of its format") from None
    except Exception as error:
        raise InputError(f"{name}: the image is damaged or cut short ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


# What a TIFF that Pillow cannot read holds, for the error message.

_BITS, _SAMPLES, _PLANAR, _SAMPLE_FORMAT = 258, 277, 284, 339
_KINDS = {1: "integers", 2: "signed integers", 3: "floats", 5: "complex integers", 6: "complex floats"}


def tiff_content(file: IO[bytes]) -> str | None:
    """For example '4 bands of 16-bit integers'; None where the first directory itself is damaged."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    try:
        file.seek(0)
        header = file.read(8)
        if header[2:4] in (b"\x2b\x00", b"\x00\x2b"):
            header += file.read(8)
        tags = ImageFileDirectory_v2(header)
        file.seek(tags.next)
        tags.load(file)
        bits = sorted(set(_numbers(tags.get(_BITS, 1))))
        bands = _numbers(tags.get(_SAMPLES, 1))[0]
        kinds = {_KINDS.get(kind, "values") for kind in _numbers(tags.get(_SAMPLE_FORMAT, 1))}
        if 256 not in tags or 257 not in tags:
            return None
    # Bytes of a stranger: nothing is known of what the directory's reader trips over.
    except Exception:
        return None
    depth = " and ".join(f"{count}-bit" for count in bits)
    apart = ", each stored apart" if bands > 1 and tags.get(_PLANAR) == 2 else ""
    return f"{bands} band{'' if bands == 1 else 's'} of {depth} {' and '.join(sorted(kinds))}{apart}"


def _numbers(value: Any) -> list[int]:
    return [int(part) for part in value] if isinstance(value, tuple) else [int(value)]
