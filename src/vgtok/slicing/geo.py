"""Detections on the map: boxes in pixels of georeferenced rasters to GeoJSON and GeoPackage.

GeoJSON is in WGS 84, as its standard asks. A GeoPackage keeps the coordinate system of the raster, with one layer for
each system. Needs rasterio and pyogrio, from `vgtok[geo]`.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError, VGTokError
from vgtok.files import replacing
from vgtok.slicing.raster import Georeference

FIELDS = ("image", "name", "label", "score", "x", "y", "width", "height")
"""Properties of a feature: the image, class, score, and the box in pixels."""

Record = Mapping[str, Any]
"""An image called `item` with its `objects`, whose `bbox` is x y width height in pixels, and its `geo`."""

_DIGITS = 8
"""Decimals of degrees in GeoJSON: about a millimeter."""


def check_geo_packages() -> None:
    """Raise VGTokError unless the packages that write geo files are installed."""
    try:
        import pyogrio
        import rasterio
    except ImportError as error:
        raise VGTokError(f"geo files: {error.name} is not installed; pip install 'vgtok[geo]'") from None
    del pyogrio, rasterio


def geo_fields(place: Georeference) -> dict[str, Any]:
    """Return a georeference as plain values, which `georeference` reads again."""
    return asdict(place)


def georeference(entry: Record) -> Georeference | None:
    """Return the georeference of a record; None without one."""
    found = entry.get("geo")
    if not isinstance(found, dict):
        return None
    crs, transform = found.get("crs"), found.get("transform")
    if not (isinstance(crs, str) and isinstance(transform, list) and len(transform) == 6):
        return None
    a, b, c, d, e, f = map(float, transform)
    return Georeference(crs, (a, b, c, d, e, f))


def outlines(boxes: NDArray[np.float64], place: Georeference) -> NDArray[np.float64]:
    """Return the closed rings (N, 5, 2) of (N, 4) x0 y0 x1 y1 boxes in the raster's coordinate system.

    Rings run counterclockwise, also where the transform mirrors or turns the raster.
    """
    a, b, c, d, e, f = place.transform
    # Corners in pixels, (N, 5): counterclockwise if y points down, as the transform of most rasters makes it.
    x, y = boxes[:, [0, 0, 2, 2, 0]], boxes[:, [1, 3, 3, 1, 1]]
    rings = np.stack([a * x + b * y + c, d * x + e * y + f], axis=-1)
    return np.asarray(rings if a * e - b * d < 0 else rings[:, ::-1])


def to_wgs84(rings: NDArray[np.float64], crs: str, name: str) -> NDArray[np.float64]:
    """Return (N, 5, 2) rings as longitude and latitude."""
    from rasterio.crs import CRS
    from rasterio.errors import RasterioError
    from rasterio.warp import transform

    if not len(rings):
        return rings
    try:
        longitude, latitude = transform(CRS.from_wkt(crs), "EPSG:4326", *rings.reshape(-1, 2).T.tolist())
    except RasterioError as error:
        raise InputError(f"{name}: its coordinates cannot be converted to WGS 84 ({error})") from None
    return np.stack([longitude, latitude], axis=-1).reshape(rings.shape)


def write_geojson(path: Path, records: Iterable[Record]) -> None:
    """Write the detections of all georeferenced records as one GeoJSON file in WGS 84 (RFC 7946)."""
    with replacing(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write('{"type": "FeatureCollection", "features": [')
        separator = "\n"
        for entry, place, boxes in _placed(records):
            rings = to_wgs84(outlines(boxes, place), place.crs, entry["item"])
            for found, ring in zip(entry["objects"], rings, strict=True):
                # Beyond the edge of what a projection can show.
                if not np.isfinite(ring).all():
                    continue
                geometry = {"type": "Polygon", "coordinates": [np.round(ring, _DIGITS).tolist()]}
                values = dict(zip(FIELDS, _properties(entry, found), strict=True))
                file.write(separator + json.dumps({"type": "Feature", "geometry": geometry, "properties": values}))
                separator = ",\n"
        file.write("\n]}\n")


def write_geopackage(path: Path, records: Iterable[Record]) -> None:
    """Write the detections of all georeferenced records in the coordinate systems of their rasters.

    Rasters of one system share a layer: `detections`, and for each further system `detections_2`, ... Without any
    georeferenced record there is no file.
    """
    from pyogrio.raw import write

    layers: dict[str, tuple[list[bytes], list[tuple[Any, ...]]]] = {}
    for entry, place, boxes in _placed(records):
        shapes, rows = layers.setdefault(place.crs, ([], []))
        shapes.extend(map(_polygon, outlines(boxes, place)))
        rows.extend(_properties(entry, found) for found in entry["objects"])
    if not layers:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as draft:
        # pyogrio chooses by the ending and refuses a file that is there but empty.
        work = draft.with_name(f"{draft.name}.gpkg")
        try:
            for number, (crs, (shapes, rows)) in enumerate(layers.items(), start=1):
                write(
                    str(work),
                    geometry=np.array(shapes, dtype=object),
                    field_data=_columns(rows),
                    fields=list(FIELDS),
                    layer="detections" if number == 1 else f"detections_{number}",
                    driver="GPKG",
                    geometry_type="Polygon",
                    crs=crs,
                    append=number > 1,
                )
            work.replace(draft)
        finally:
            work.unlink(missing_ok=True)


def _placed(records: Iterable[Record]) -> Iterator[tuple[Record, Georeference, NDArray[np.float64]]]:
    """Yield the georeferenced records, with their boxes as (N, 4) corners."""
    for entry in records:
        place = georeference(entry)
        if place is not None:
            boxes = np.array([found["bbox"] for found in entry["objects"]], dtype=np.float64).reshape(-1, 4)
            boxes[:, 2:] += boxes[:, :2]
            yield entry, place, boxes


def _properties(entry: Record, found: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry["item"], found["name"], found["label"], found["score"], *found["bbox"]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[NDArray[Any]]:
    """Return one array per field, of its type also where there are no rows."""
    kinds: tuple[Any, ...] = (object, object, np.int64, *[np.float64] * 5)
    return [np.array([row[place] for row in rows], dtype=kind) for place, kind in enumerate(kinds)]


def _polygon(ring: NDArray[np.float64]) -> bytes:
    """Return a ring (5, 2) as well-known binary: little-endian, a polygon of one ring."""
    return struct.pack("<BIII", 1, 3, 1, len(ring)) + ring.astype("<f8").tobytes()
