"""Read geo rasters by windows: GeoTIFF, COG, VRT and JPEG 2000 to frames of 8-bit RGB, with what holds no data.

A file and the choice of bands and values enter, a `RasterFrame` leaves. Needs rasterio, from `vgtok[geo]`. Nothing but
the file is read: no files beside it, nothing from a network, and of a VRT only files in its own folder and below.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError, VGTokError
from vgtok.slicing.frames import Region
from vgtok.slicing.raster_files import check_raster_file

RASTER_SUFFIXES = frozenset({".tif", ".tiff", ".vrt", ".jp2", ".j2k"})
"""Endings of files that may be rasters; those of a VRT are rasters in any case."""

PERCENTILES = (2.0, 98.0)
"""Percentiles of each band that become black and white where no range is given and values are not 8-bit."""

_COARSE_SIDE = 2048
"""Longest side of the coarse look at a raster: for its percentiles, and to draw on."""

_LARGEST_BLOCK = 2**28
"""Most bytes of one strip or tile, which is decoded as a whole."""

_OPTIONS = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".nothing-from-a-network",
    "GDAL_VRT_ENABLE_PYTHON": "NO",
    "GDAL_CACHEMAX": 256,
}
"""No side files, no network, no code in files, and megabytes of blocks kept in memory."""


@dataclass(frozen=True)
class Georeference:
    """Where pixels lie: the coordinate system `crs` as WKT, and `transform` a b c d e f.

    Pixel corner (column, row) lies at x = a column + b row + c, y = d column + e row + f.
    """

    crs: str
    transform: tuple[float, float, float, float, float, float]


@dataclass(frozen=True, eq=False)
class RasterFrame:
    """An open raster as a frame; `place` is None if the file has no georeference.

    `low` and `high` (B,) are the values of each band of `bands` that become black and white; None keeps 8-bit values.
    """

    name: str
    dataset: Any
    bands: tuple[int, ...]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    place: Georeference | None

    @property
    def height(self) -> int:
        """Pixels down."""
        return int(self.dataset.height)

    @property
    def width(self) -> int:
        """Pixels across."""
        return int(self.dataset.width)

    def read(self, x: int, y: int, height: int, width: int) -> Region:
        """Return the pixels of a part and which hold data."""
        return self._shown(*_values(self, (x, y, height, width), (height, width)))

    def picture(self) -> NDArray[np.uint8]:
        """Return the whole raster at most 2048 px a side, from its overviews if it has some."""
        size = coarse_size(self.height, self.width)
        return self._shown(*_values(self, (0, 0, self.height, self.width), size))[0]

    def _shown(self, values: NDArray[Any], data: NDArray[np.bool_] | None) -> Region:
        """Convert (B, h, w) values to (h, w, 3) uint8, black where there is no data."""
        if self.low is None or self.high is None:
            planes = [np.ascontiguousarray(plane) for plane in values]
        else:
            ends = zip(values, self.low.tolist(), self.high.tolist(), strict=True)
            # NaN is no data, and black is set below.
            planes = [_scaled(np.nan_to_num(plane, copy=False), low, high) for plane, low, high in ends]
        pixels = cv2.merge(planes if len(planes) == 3 else planes * 3)
        if data is not None:
            pixels[~data] = 0
        return np.asarray(pixels, dtype=np.uint8), data


@contextmanager
def open_raster(
    path: str | Path,
    *,
    bands: Sequence[int] | None = None,
    value_range: tuple[float, float] | None = None,
    percentiles: tuple[float, float] = PERCENTILES,
) -> Iterator[RasterFrame]:
    """Open a raster file for the block.

    `bands` are one or three numbers from 1 [default: those marked red, green and blue, else the first three or the only
    one]. `value_range` is the (low, high) that become black and white in all bands; without, 8-bit values stay as they
    are and others are stretched between `percentiles` of each band.
    """
    rasterio = _rasterio()
    path, name = Path(path), str(path)
    driver = check_raster_file(path)
    with rasterio.Env(**_OPTIONS), _opened(rasterio, path, driver) as dataset:
        _check_content(dataset, name)
        frame = RasterFrame(name, dataset, _chosen_bands(dataset, bands, name), None, None, _place(dataset))
        if value_range is not None:
            low, high = _stated(value_range, len(frame.bands))
            frame = replace(frame, low=low, high=high)
        elif any(dataset.dtypes[band - 1] != "uint8" for band in frame.bands):
            low, high = _ends(frame, percentiles)
            frame = replace(frame, low=low, high=high)
        yield frame


def coarse_size(height: int, width: int) -> tuple[int, int]:
    """Return (height, width) of the coarse look at a raster."""
    scale = min(1.0, _COARSE_SIDE / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def _rasterio() -> Any:
    try:
        import rasterio
        import rasterio.errors
        import rasterio.windows
    except ImportError:
        raise VGTokError("geo rasters: rasterio is not installed; pip install 'vgtok[geo]'") from None
    return rasterio


@contextmanager
def _opened(rasterio: Any, path: Path, driver: str) -> Iterator[Any]:
    # A raster without georeference is read like any other.
    with _as_input_errors(str(path)), warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        dataset = rasterio.open(path, driver=driver)
    with dataset:
        yield dataset


@contextmanager
def _as_input_errors(name: str) -> Iterator[None]:
    """Turn errors of the reader into one sentence about the file."""
    from rasterio.errors import RasterioError, RasterioIOError

    try:
        yield
    except (RasterioError, RasterioIOError) as error:
        reason = str(error.__cause__ or error).partition("\n")[0].replace(str(Path(name).absolute()), name)
        raise InputError(f"{name}: the raster is damaged or cut short ({reason})") from None


def _check_content(dataset: Any, name: str) -> None:
    from rasterio.enums import ColorInterp

    if dataset.count == 0 or not (dataset.height and dataset.width):
        raise InputError(f"{name}: holds no bands or no pixels")
    if ColorInterp.palette in dataset.colorinterp:
        raise InputError(f"{name}: holds palette colors; convert it to RGB, e.g. gdal_translate -expand rgb")
    for (rows, columns), kind in zip(dataset.block_shapes, dataset.dtypes, strict=True):
        if kind.startswith("complex"):
            raise InputError(f"{name}: holds complex numbers; convert it to real ones")
        if rows * columns * np.dtype(kind).itemsize > _LARGEST_BLOCK:
            raise InputError(
                f"{name}: is stored in blocks of {columns} x {rows} px, which are read as a whole; convert it with "
                "gdal_translate -co TILED=YES"
            )


def _chosen_bands(dataset: Any, asked: Sequence[int] | None, name: str) -> tuple[int, ...]:
    from rasterio.enums import ColorInterp

    if asked is not None:
        if len(asked) not in (1, 3) or not all(isinstance(band, int) for band in asked):
            raise InputError(f"bands: {', '.join(map(str, asked))} is not one band or three, e.g. 4,3,2")
        wrong = [band for band in asked if not 1 <= band <= dataset.count]
        if wrong:
            raise InputError(f"{name}: has no band {wrong[0]}; it has {dataset.count}, counted from 1")
        return tuple(asked)
    meaning = list(dataset.colorinterp)
    colors = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)
    if all(color in meaning for color in colors):
        return tuple(meaning.index(color) + 1 for color in colors)
    usable = [band for band in range(1, dataset.count + 1) if meaning[band - 1] != ColorInterp.alpha]
    return tuple(usable[:3]) if len(usable) >= 3 else tuple(usable[:1] or [1])


def _place(dataset: Any) -> Georeference | None:
    if dataset.crs is None or dataset.transform.is_identity:
        return None
    a, b, c, d, e, f = (float(value) for value in dataset.transform[:6])
    return Georeference(dataset.crs.to_wkt(), (a, b, c, d, e, f))


def _values(
    frame: RasterFrame, part: tuple[int, int, int, int], size: tuple[int, int]
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return (B, h, w) values of a part x y height width, reduced to `size`, and which (h, w) hold data."""
    from rasterio.enums import MaskFlags
    from rasterio.windows import Window

    x, y, height, width = part
    window = Window(x, y, width, height)
    shape = (len(frame.bands), *size)
    with _as_input_errors(frame.name):
        values = frame.dataset.read(frame.bands, window=window, out_shape=shape)
        data = None
        if any(MaskFlags.all_valid not in frame.dataset.mask_flag_enums[band - 1] for band in frame.bands):
            # Black in one band alone may be a color: a pixel has no data if no band has.
            data = frame.dataset.read_masks(frame.bands, window=window, out_shape=shape).any(axis=0)
    if values.dtype.kind == "f":
        finite = np.isfinite(values).all(axis=0)
        data = finite if data is None else data & finite
    return values, None if data is None or data.all() else data


def _scaled(plane: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    scaled = (plane.astype(np.float32) - np.float32(low)) * np.float32(255.0 / (high - low))
    return np.asarray(np.clip(np.rint(scaled), 0, 255).astype(np.uint8))


def _stated(value_range: tuple[float, float], bands: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = (float(end) for end in value_range)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(f"value_range: {value_range} is not (low, high) with low < high")
    return np.full(bands, low), np.full(bands, high)


def _ends(frame: RasterFrame, percentiles: tuple[float, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the percentiles of each band over the coarse look, (B,) and (B,)."""
    if not 0 <= percentiles[0] < percentiles[1] <= 100:
        raise InputError(f"percentiles: {percentiles} is not (low, high) from 0 to 100 with low < high")
    size = coarse_size(frame.height, frame.width)
    values, data = _values(frame, (0, 0, frame.height, frame.width), size)
    if data is not None:
        if not data.any():
            # The coarse look skips pixels; what it missed is found when the raster is read.
            return np.zeros(len(values)), np.ones(len(values))
        values = values[:, data]
    low, high = np.percentile(values.reshape(len(values), -1).astype(np.float64), percentiles, axis=1)
    return low, np.where(high > low, high, low + 1.0)
