"""Rasters for the tests: any number of bands, types and layouts, georeferenced by default in UTM zone 33 north."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

rasterio = pytest.importorskip("rasterio", reason="needs rasterio, from vgtok[geo]")
Affine = rasterio.Affine

UTM33 = "EPSG:32633"
NORTH_UP = Affine(0.5, 0, 500_000, 0, -0.5, 5_800_000)
TURNED = Affine.translation(500_000, 5_800_000) @ Affine.rotation(30) @ Affine.scale(0.5, -0.5)


def write_raster(path: Path, bands: NDArray[Any], **profile: Any) -> Path:
    """Write (B, H, W) bands as a GeoTIFF, or in the format of `driver`."""
    # Rasters without a place are written on purpose.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        _write(path, bands, profile)
    return path


def _write(path: Path, bands: NDArray[Any], profile: dict[str, Any]) -> None:
    count, height, width = bands.shape
    settings = {"driver": "GTiff", "crs": UTM33, "transform": NORTH_UP, **profile}
    with rasterio.open(path, "w", count=count, height=height, width=width, dtype=bands.dtype, **settings) as dataset:
        dataset.write(bands)


def as_bands(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(H, W, 3) to (3, H, W)."""
    return np.ascontiguousarray(np.moveaxis(pixels, -1, 0))


VRT = """<VRTDataset rasterXSize="{width}" rasterYSize="{height}">{head}
{bands}</VRTDataset>"""

VRT_BAND = """<VRTRasterBand dataType="Byte" band="{band}">
<SimpleSource><SourceFilename relativeToVRT="{relative}">{source}</SourceFilename><SourceBand>{band}</SourceBand>
<SrcRect xOff="0" yOff="0" xSize="{width}" ySize="{height}"/>
<DstRect xOff="0" yOff="0" xSize="{width}" ySize="{height}"/>
</SimpleSource></VRTRasterBand>
"""


def write_vrt(path: Path, source: str, size: tuple[int, int], *, relative: int = 1, head: str = "") -> Path:
    """Write a VRT over three bands of one file."""
    height, width = size
    filled = {"width": width, "height": height}
    bands = "".join(VRT_BAND.format(band=b, source=source, relative=relative, **filled) for b in (1, 2, 3))
    path.write_text(VRT.format(head=head, bands=bands, **filled), encoding="utf-8")
    return path
