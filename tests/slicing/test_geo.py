"""Geo files name detections at their coordinates, which other software reads back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.slicing.rasters import NORTH_UP, TURNED, rasterio
from vgtok.slicing.geo import geo_fields, outlines, write_geojson, write_geopackage
from vgtok.slicing.raster import Georeference

pyogrio = pytest.importorskip("pyogrio", reason="needs pyogrio, from vgtok[geo]")

UTM33 = rasterio.crs.CRS.from_epsg(32633).to_wkt()
UTM34 = rasterio.crs.CRS.from_epsg(32634).to_wkt()


def entry(item: str, place: Georeference | None, *boxes: tuple[float, float, float, float]) -> dict[str, Any]:
    objects = [{"name": "car", "label": 3, "score": 0.5, "category_id": 4, "bbox": list(box)} for box in boxes]
    return {"item": item, "objects": objects, **({} if place is None else {"geo": as_read(geo_fields(place))})}


def as_read(value: Any) -> Any:
    """As it comes back from a journal."""
    return json.loads(json.dumps(value))


def place(transform: Any = NORTH_UP, crs: str = UTM33) -> Georeference:
    return Georeference(crs, tuple(transform)[:6])


def area(ring: np.ndarray[Any, Any]) -> float:
    """Twice the signed area of a closed ring, positive if it runs counterclockwise."""
    x, y = ring.T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum())


@pytest.mark.parametrize(
    "transform", [NORTH_UP, TURNED, rasterio.Affine(0.5, 0, 0, 0, 0.5, 0)], ids=["up", "turned", "down"]
)
def test_outlines_are_where_the_transform_puts_the_corners(transform: Any) -> None:
    boxes = np.array([[10.0, 20.0, 30.0, 60.0]])
    ring = outlines(boxes, place(transform))[0]
    corners = {(x, y) for x in (10.0, 30.0) for y in (20.0, 60.0)}
    expected = {tuple(np.round(transform @ corner, 6)) for corner in corners}
    assert {tuple(np.round(point, 6)) for point in ring.tolist()} == expected
    assert ring[0].tolist() == ring[-1].tolist()
    assert area(ring - ring[0]) == pytest.approx(2 * 20 * 40 * abs(transform.determinant))


def test_geojson_is_in_wgs_84_and_keeps_the_properties(tmp_path: Path) -> None:
    # Zone 33 has its meridian, 15 degrees east, at 500 km; 5 800 km north is near 52.35 degrees.
    target = tmp_path / "found.geojson"
    write_geojson(target, [entry("a.tif", place(), (0, 0, 20, 40)), entry("b.jpg", None, (0, 0, 9, 9))])
    about, _, shapes, values = pyogrio.raw.read(target)
    assert about["crs"] == "EPSG:4326"
    assert len(shapes) == 1
    assert dict(zip(about["fields"], (value[0] for value in values), strict=True)) == {
        "image": "a.tif", "name": "car", "label": 3, "score": 0.5, "x": 0, "y": 0, "width": 20, "height": 40,
    }  # fmt: skip
    feature = json.loads(target.read_text(encoding="utf-8"))["features"][0]
    ring = np.array(feature["geometry"]["coordinates"][0])
    assert area(ring - ring[0]) > 0
    west, south, east, north = *ring.min(axis=0), *ring.max(axis=0)
    assert west == pytest.approx(15.0, abs=1e-9)
    assert 52.3 < south < north < 52.4
    # 10 m across and 20 m down; a degree of latitude is 111.27 km here.
    assert (north - south) * 111_270 == pytest.approx(20, rel=0.01)
    assert (east - west) * 111_320 * np.cos(np.radians(north)) == pytest.approx(10, rel=0.01)


def test_a_geopackage_keeps_each_coordinate_system(tmp_path: Path) -> None:
    target = tmp_path / "found.gpkg"
    records = [
        entry("a.tif", place(), (0, 0, 20, 40), (100, 100, 10, 10)),
        entry("b.tif", place(TURNED, UTM34), (0, 0, 2, 4)),
        entry("c.tif", place(TURNED), (5, 5, 2, 4)),
        entry("d.jpg", None, (0, 0, 9, 9)),
    ]
    write_geopackage(target, records)
    assert sorted(name for name, _ in pyogrio.list_layers(target).tolist()) == ["detections", "detections_2"]
    about, _, shapes, values = pyogrio.raw.read(target, layer="detections")
    assert about["crs"] == "EPSG:32633"
    assert values[about["fields"].tolist().index("image")].tolist() == ["a.tif", "a.tif", "c.tif"]
    ring = np.frombuffer(shapes[0], dtype="<f8", offset=13).reshape(5, 2)
    np.testing.assert_allclose([*ring.min(axis=0), *ring.max(axis=0)], [500_000, 5_799_980, 500_010, 5_800_000])
    assert pyogrio.read_info(target, layer="detections_2")["crs"] == "EPSG:32634"
    # Written anew, not added to.
    write_geopackage(target, records[:1])
    assert pyogrio.list_layers(target)[:, 0].tolist() == ["detections"]


def test_nothing_found_gives_valid_files(tmp_path: Path) -> None:
    write_geojson(tmp_path / "found.geojson", [entry("a.tif", place())])
    assert json.loads((tmp_path / "found.geojson").read_text())["features"] == []
    write_geopackage(tmp_path / "found.gpkg", [entry("a.tif", place())])
    assert pyogrio.read_info(tmp_path / "found.gpkg")["features"] == 0
