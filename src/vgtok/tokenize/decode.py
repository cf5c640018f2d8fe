"""Decode image files, arrays and tensors to (H, W, 3) uint8 RGB, in bounded memory and from a fixed list of formats."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.errors import InputError, VGTokError

ValueRange = tuple[float, float] | None
"""(low, high): the values that map to 0 and 255."""


def tensor_pixels(tensor: Any, value_range: ValueRange) -> NDArray[np.uint8]:
    """Convert a (C, H, W) or (H, W) torch tensor to (H, W, 3) uint8."""
    try:
        pixels = tensor.detach().cpu().numpy()
    # Sparse, meta and quantized tensors and types numpy lacks fail with different errors.
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"tensor: cannot be read as an array ({reason}); give a dense uint8 one") from None
    if pixels.ndim == 3:
        if pixels.shape[0] not in (1, 3, 4):
            raise InputError(f"tensor: shape {pixels.shape} is not (C, H, W) with 1, 3 or 4 channels")
        pixels = np.moveaxis(pixels, 0, -1)
    return array_pixels(pixels, "tensor", value_range)


def array_pixels(pixels: NDArray[Any], name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    """Convert an (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) array to (H, W, 3) uint8."""
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
    """Convert an (H, W, C) array of any type to uint8."""
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
    """Return the error for pixels of a `kind` without a range of its own."""
    return InputError(
        f"{name}: {kind} pixels have no known range; convert a file to 8-bit RGB, or in Python say which values are "
        "black and white, e.g. value_range=(0.0, 1.0)"
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
"""Supported formats by Pillow's names, in the order they are tried."""

_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs")
"""Brands of HEIC files, which the optional package pillow-heif decodes."""

FREE_BYTES = 1_750_000_000
"""Memory that decoding any file may take; protects against small files that claim to be huge."""

BYTES_PER_BYTE = 256
"""Memory a larger file may take per byte of its own; real images of any size take less."""

_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes per pixel in Pillow by mode; 4 in all others."""

_WORKING = {
    "PNG": 0,
    "BMP": 0,
    "PPM": 0,
    "GIF": 1,
    "JPEG": 8,
    "MPO": 8,
    "AVIF": 8,
    "WEBP": 12,
    "HEIF": 8,
    "JPEG2000": 21,
}
"""Further bytes per pixel while a format is decoded, as measured; 4 in all others."""

_RUN_LENGTHS = 64
"""The same for a run-length encoded BMP; Python decodes it, so this bounds time rather than memory."""

_STRIP_PIXELS = 2**22
_ORIENTATION = 0x0112

# A view of the upright (H, W, 3) image with rows and columns as stored, by EXIF orientation.
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
    """Open the image in a file without decoding it; its pixels are read from `file` later.

    Pillow's `Image.open` limits pixels by a process-wide variable that belongs to the caller, so this calls the plugin
    of the format directly; `check_memory` limits memory instead.
    """
    with _as_input_errors(name):
        file.seek(0)
        start = file.read(16)
        if start[4:8] == b"ftyp" and start[8:12] in _HEIC:
            return _heic(file, name)
        for kind in FORMATS:
            try:
                import_module(f"PIL.{_PLUGINS[kind]}")
                factory, accepts = Image.OPEN[kind]
            # This Pillow is older than the format or was built without it.
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
                    f"{name}: a TIFF of {content}, which is not read ({_reason(error)}); convert it to 8-bit RGB, or "
                    "in Python give three of its bands as an (H, W, 3) array with value_range"
                ) from None
    raise InputError(f"{name}: not an image in a format that can be read (JPEG, PNG, TIFF, WebP, ...)")


def _heic(file: IO[bytes], name: str) -> Image.Image:
    """Open a HEIC file by the class of the plugin itself: registering it would change Pillow for the caller."""
    try:
        from pillow_heif import HeifImageFile
    except ImportError:
        raise InputError(f"{name}: HEIC needs pillow-heif; pip install 'vgtok[heif]', or convert it to JPEG") from None
    file.seek(0)
    picture: Image.Image = HeifImageFile(file, "")  # type: ignore[no-untyped-call]
    return picture


def formats_claiming(file: IO[bytes]) -> tuple[str, ...]:
    """Return every format of Pillow, supported here or not, whose reader takes the file for its own.

    Readers with a signature are asked for it. Those without have to read the header; none decodes pixels.
    """
    Image.init()
    file.seek(0)
    start = file.read(16)
    return tuple(
        kind
        for kind, (factory, accepts) in sorted(Image.OPEN.items())
        if (_reads_header(factory, file) if accepts is None else accepts(start) is True)
    )


def _reads_header(factory: Callable[..., Image.Image], file: IO[bytes]) -> bool:
    file.seek(0)
    try:
        factory(file, "")
    # Untrusted bytes: a reader that refuses them may raise anything.
    except Exception:
        return False
    return True


def check_memory(picture: Image.Image, file_bytes: int, name: str) -> None:
    """Raise InputError if decoding takes more memory than a file of `file_bytes` may."""
    needed, allowed = _decoding_bytes(picture), max(FREE_BYTES, BYTES_PER_BYTE * file_bytes)
    if needed > allowed:
        raise InputError(
            f"{name}: {picture.width} x {picture.height} pixels take {needed / 1e9:.1f} GB to decode, more than the "
            f"{allowed / 1e9:.2f} GB a file of {file_bytes:,} bytes may; cut it into tiles"
        )


def picture_pixels(picture: Image.Image, name: str, value_range: ValueRange = None) -> NDArray[np.uint8]:
    """Decode to (H, W, 3) uint8 RGB, turned by the EXIF orientation."""
    with _as_input_errors(name):
        size = picture.size
        if 0 in size:
            raise InputError(f"{name}: has no pixels ({size[0]} x {size[1]})")
        if picture.mode == "F" and value_range is None:
            raise without_range(name, "1 band of 32-bit float")
        if picture.format == "TIFF" and getattr(picture, "tile", None):
            # Pillow would apply its process-wide limit here.
            picture.im = Image.core.new(  # type: ignore[attr-defined]
                picture.mode, getattr(picture, "_tile_size", size)
            )
        picture.load()
        if picture.size != size:
            raise InputError(f"{name}: announces {size} pixels and holds {picture.size}")
        return _turned(picture, name, value_range)


def _decoding_bytes(picture: Image.Image) -> int:
    """Estimate the memory from the first decoded byte to the RGB array, from the header alone."""
    pixels = picture.width * picture.height
    working = _WORKING.get(picture.format or "", 4)
    if picture.format == "TIFF":
        # Tiles may be larger than the image.
        tags = picture.tag_v2  # type: ignore[attr-defined]
        pixels = max(pixels, int(tags.get(322, 0)) * int(tags.get(323, 0)))
    elif picture.format == "BMP" and picture.info.get("compression") in (1, 2):
        working = _RUN_LENGTHS
    return pixels * (_STORED.get(picture.mode, 4) + working + 3)


def _turned(picture: Image.Image, name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    """Convert a loaded image strip by strip, so that a large one is never copied as a whole."""
    orientation = _orientation(picture)
    width, height = picture.size
    sideways = orientation in (5, 6, 7, 8)
    upright = np.empty((width, height, 3) if sideways else (height, width, 3), dtype=np.uint8)
    stored = _AS_STORED[orientation](upright) if orientation in _AS_STORED else upright
    # Older versions of Pillow open 16-bit gray as 32-bit integers; accept those whose values fit 16 bits.
    short = picture.mode == "I" and value_range is None and _fits_16_bits(picture)
    rows = max(1, _STRIP_PIXELS // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        strip = picture if rows >= height else picture.crop((0, top, width, bottom))
        stored[top:bottom] = _strip_pixels(strip, short, name, value_range)
    return upright


def _strip_pixels(strip: Image.Image, short: bool, name: str, value_range: ValueRange) -> NDArray[np.uint8]:
    """Convert a strip to (h, W, 3) uint8; `short` marks 32-bit integers that hold 16-bit values."""
    if strip.mode in ("I", "F") or strip.mode.startswith("I;16"):
        deep = np.asarray(strip)
        return array_pixels(deep.astype(np.uint16) if short or deep.dtype.itemsize == 2 else deep, name, value_range)
    if strip.mode == "La":
        strip = strip.convert("LA")
    if strip.mode in ("RGBA", "LA", "PA", "RGBa") or "transparency" in strip.info:
        # Transparent pixels carry arbitrary colors; over black a hole in a mosaic is flat and costs no tokens.
        colored = strip.convert("RGBA")
        strip = Image.alpha_composite(Image.new("RGBA", colored.size, (0, 0, 0, 255)), colored)
    return np.asarray(strip.convert("RGB"))


def _fits_16_bits(picture: Image.Image) -> bool:
    low, high = picture.getextrema()
    return bool(low >= 0 and high <= np.iinfo(np.uint16).max)  # type: ignore[operator]  # one band: two numbers


def _orientation(picture: Image.Image) -> int:
    """Return the EXIF orientation, or 1 if the EXIF data is damaged."""
    try:
        return int(picture.getexif().get(_ORIENTATION, 1))
    except Exception:
        return 1


@contextmanager
def _as_input_errors(name: str) -> Iterator[None]:
    """Turn whatever a decoder raises on damaged or hostile bytes into one InputError about the file."""
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
    """Describe the content, e.g. '4 bands of 16-bit integers'; None if the first directory is damaged."""
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
    # Untrusted bytes: the reader of the directory may raise anything.
    except Exception:
        return None
    depth = " and ".join(f"{count}-bit" for count in bits)
    apart = ", each stored apart" if bands > 1 and tags.get(_PLANAR) == 2 else ""
    return f"{bands} band{'' if bands == 1 else 's'} of {depth} {' and '.join(sorted(kinds))}{apart}"


def _numbers(value: Any) -> list[int]:
    return [int(part) for part in value] if isinstance(value, tuple) else [int(value)]
