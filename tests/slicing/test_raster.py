"""Rasters of every layout give the pixels that were written; bad ones give one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import vgtok.slicing.raster as raster
from tests.slicing.rasters import NORTH_UP, TURNED, UTM33, as_bands, write_raster, write_vrt
from vgtok.data import render_scene
from vgtok.errors import InputError
from vgtok.slicing.frames import partition_frame
from vgtok.slicing.raster import open_raster
from vgtok.tokenize import Tokenizer

TOKENIZER = Tokenizer(budget=0.3, canvas="native")


@pytest.fixture(scope="module")
def scene() -> NDArray[np.uint8]:
    return render_scene(seed=5, width=500, height=330).pixels


def read(path: Path, **options: Any) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None]:
    with open_raster(path, **options) as frame:
        return frame.read(0, 0, frame.height, frame.width)


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"tiled": True, "blockxsize": 64, "blockysize": 64, "compress": "deflate"},
        {"blockysize": 3, "compress": "lzw"},
        {"interleave": "band", "BIGTIFF": "YES"},
        {"driver": "COG"},
        {"driver": "JP2OpenJPEG", "QUALITY": "100", "REVERSIBLE": "YES"},
    ],
    ids=str,
)
def test_every_layout_gives_the_pixels_and_their_tokens(
    tmp_path: Path, scene: NDArray[np.uint8], layout: dict[str, Any]
) -> None:
    suffix = ".jp2" if layout.get("driver") == "JP2OpenJPEG" else ".tif"
    path = write_raster(tmp_path / f"scene{suffix}", as_bands(scene), **layout)
    with open_raster(path) as frame:
        np.testing.assert_array_equal(frame.read(0, 0, 330, 500)[0], scene)
        np.testing.assert_array_equal(frame.read(70, 30, 100, 200)[0], scene[30:130, 70:270])
        assert frame.place is not None
        assert frame.place.transform == tuple(NORTH_UP)[:6]
        tokens = partition_frame(frame, TOKENIZER).tokens
    np.testing.assert_array_equal(tokens.boxes, TOKENIZER(scene).boxes)


def test_a_rotated_transform_is_kept(tmp_path: Path, scene: NDArray[np.uint8]) -> None:
    with open_raster(write_raster(tmp_path / "turned.tif", as_bands(scene), transform=TURNED)) as frame:
        assert frame.place is not None
        assert frame.place.transform == pytest.approx(tuple(TURNED)[:6])


def test_bands_of_sixteen_bits_by_number_and_range(tmp_path: Path) -> None:
    """A stated range maps its ends to 0 and 255; bands come in the order they are named."""
    random = np.random.default_rng(0)
    bands = random.integers(0, 4000, (4, 90, 120), dtype=np.uint16)
    path = write_raster(tmp_path / "four.tif", bands)
    pixels, data = read(path, bands=(4, 3, 2), value_range=(1000, 3000))
    assert data is None
    exact = np.clip((bands[[3, 2, 1]].astype(np.float64) - 1000) / 2000 * 255, 0, 255)
    np.testing.assert_allclose(np.moveaxis(pixels, -1, 0), exact, atol=0.501)
    assert (read(path, bands=(2,))[0] == read(path, bands=(2, 2, 2))[0]).all()


def test_percentiles_are_taken_per_band_and_without_nodata(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    bands = random.normal(0, 1, (3, 200, 210)).astype(np.float32) * np.array([1, 10, 100], np.float32)[:, None, None]
    bands[:, :80] = -9999
    path = write_raster(tmp_path / "float.tif", bands, nodata=-9999)
    pixels, data = read(path, percentiles=(5, 95))
    assert data is not None
    np.testing.assert_array_equal(data, np.arange(200)[:, None] >= np.full((1, 210), 80))
    assert (pixels[:80] == 0).all()
    for band in range(3):
        values = bands[band, 80:].astype(np.float64)
        low, high = np.percentile(values, (5, 95))
        exact = np.clip((values - low) / (high - low) * 255, 0, 255)
        np.testing.assert_allclose(pixels[80:, :, band], exact, atol=0.51)


def test_nan_holds_no_data_and_a_constant_band_is_black(tmp_path: Path) -> None:
    bands = np.full((1, 70, 70), 7.5, dtype=np.float32)
    bands[0, :30] = np.nan
    pixels, data = read(write_raster(tmp_path / "nan.tif", bands))
    assert data is not None
    assert data.sum() == 40 * 70
    assert (pixels == 0).all()


def test_a_color_with_a_zero_is_no_nodata(tmp_path: Path, scene: NDArray[np.uint8]) -> None:
    blue = as_bands(scene).copy()
    blue[:, 100:200, 100:200] = np.array([0, 0, 255])[:, None, None]
    blue[:, :50] = 0
    _, data = read(write_raster(tmp_path / "zero.tif", blue, nodata=0))
    assert data is not None
    assert data[100:200, 100:200].all()
    assert not data[:50].any()


def test_alpha_masks_and_is_no_color(tmp_path: Path, scene: NDArray[np.uint8]) -> None:
    alpha = np.zeros((1, *scene.shape[:2]), dtype=np.uint8)
    alpha[:, :, 192:] = 255
    bands = np.concatenate([as_bands(scene), alpha])
    path = write_raster(tmp_path / "alpha.tif", bands, photometric="RGB", ALPHA="YES")
    pixels, data = read(path)
    assert data is not None
    np.testing.assert_array_equal(data, alpha[0] > 0)
    np.testing.assert_array_equal(pixels[:, 192:], scene[:, 192:])
    with open_raster(path) as frame:
        tokens = partition_frame(frame, TOKENIZER).tokens
    tokens.validate()
    assert tokens.x.min() == 192
    assert abs(tokens.retained - 0.3) < 0.005


def test_the_coarse_look_uses_overviews(tmp_path: Path) -> None:
    import rasterio

    path = write_raster(tmp_path / "large.tif", np.full((1, 600, 5000), 10, np.uint8), tiled=True)
    with rasterio.open(path, "r+") as dataset:
        dataset.build_overviews([2, 4], rasterio.enums.Resampling.nearest)
    # Change the full resolution only: what the coarse look shows must come from the overviews.
    with rasterio.open(path, "r+") as dataset:
        dataset.write(np.full((1, 600, 5000), 200, np.uint8))
    with open_raster(path) as frame:
        assert frame.picture().shape == (246, 2048, 3)
        assert (frame.picture() == 10).all()
        assert (frame.read(0, 0, 10, 10)[0] == 200).all()


def test_without_georeference(tmp_path: Path, scene: NDArray[np.uint8]) -> None:
    with open_raster(write_raster(tmp_path / "plain.tif", as_bands(scene), crs=None, transform=None)) as frame:
        assert frame.place is None


@pytest.mark.parametrize(
    ("bands", "said"), [((5, 3, 2), "has no band 5; it has 4"), ((0,), "has no band 0"), ((1, 2), "one band or three")]
)
def test_wrong_bands(tmp_path: Path, bands: tuple[int, ...], said: str) -> None:
    path = write_raster(tmp_path / "four.tif", np.zeros((4, 20, 20), np.uint16))
    with pytest.raises(InputError, match=said), open_raster(path, bands=bands):
        pass


def test_truncated_all_nodata_complex_and_large_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_raster(tmp_path / "whole.tif", np.random.default_rng(0).integers(0, 255, (3, 600, 600), np.uint8))
    cut = tmp_path / "cut.tif"
    cut.write_bytes(whole.read_bytes()[:500_000])
    with pytest.raises(InputError, match=r"cut\.tif: the raster is damaged or cut short"), open_raster(cut) as frame:
        partition_frame(frame, TOKENIZER)
    empty = write_raster(tmp_path / "empty.tif", np.zeros((3, 90, 90), np.uint16), nodata=0)
    with pytest.raises(InputError, match="every pixel is nodata"), open_raster(empty) as frame:
        partition_frame(frame, TOKENIZER)
    wave = write_raster(tmp_path / "wave.tif", np.zeros((1, 9, 9), np.complex64))
    with pytest.raises(InputError, match="complex"), open_raster(wave):
        pass
    monkeypatch.setattr(raster, "_LARGEST_BLOCK", 600 * 3 - 1)
    strips = write_raster(tmp_path / "strips.tif", np.zeros((1, 9, 600), np.uint8), blockysize=3)
    with pytest.raises(InputError, match=r"blocks of 600 x 3 px.*TILED=YES"), open_raster(strips):
        pass


# What a VRT may name.


def test_a_vrt_over_files_beside_it(tmp_path: Path, scene: NDArray[np.uint8]) -> None:
    (tmp_path / "parts").mkdir()
    write_raster(tmp_path / "parts" / "scene.tif", as_bands(scene))
    head = f"<SRS>{UTM33}</SRS><GeoTransform>500000, 0.5, 0, 5800000, 0, -0.5</GeoTransform>"
    vrt = write_vrt(tmp_path / "mosaic.vrt", "parts/scene.tif", scene.shape[:2], head=head)
    with open_raster(vrt) as frame:
        np.testing.assert_array_equal(frame.read(0, 0, 330, 500)[0], scene)
        assert frame.place is not None
        assert frame.place.transform == tuple(NORTH_UP)[:6]
    outer = write_vrt(tmp_path / "outer.vrt", "mosaic.vrt", scene.shape[:2])
    np.testing.assert_array_equal(read(outer)[0], scene)


@pytest.mark.parametrize(
    ("source", "relative"),
    [
        ("../outside.tif", 1),
        ("{outside}", 0),
        ("{outside}", 1),
        ("link.tif", 1),
        ("missing.tif", 1),
        ("inside.tif", 0),
        ("/vsicurl/http://localhost:1/x.tif", 0),
        ("http://localhost:1/x.tif", 0),
        ("NETCDF:inside.tif:band", 1),
        ("&lt;VRTDataset/&gt;", 0),
        ("/vsizip/inside.tif", 0),
        ("", 1),
    ],
)
def test_a_vrt_reaches_nothing_outside_its_folder(
    tmp_path: Path, scene: NDArray[np.uint8], source: str, relative: int
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    outside = write_raster(tmp_path / "outside.tif", as_bands(scene))
    write_raster(folder / "inside.tif", as_bands(scene))
    (folder / "link.tif").symlink_to(outside)
    vrt = write_vrt(folder / "bad.vrt", source.format(outside=outside), scene.shape[:2], relative=relative)
    with pytest.raises(InputError, match="not a file in its own folder"), open_raster(vrt):
        pass


def test_a_vrt_runs_nothing_and_opens_no_other_formats(tmp_path: Path, scene: NDArray[np.uint8]) -> None:
    write_raster(tmp_path / "inside.tif", as_bands(scene))
    plain = write_vrt(tmp_path / "plain.vrt", "inside.tif", scene.shape[:2]).read_text(encoding="utf-8")
    changed = {
        "computed": plain.replace("<VRTRasterBand ", '<VRTRasterBand subClass="VRTDerivedRasterBand" ', 1),
        "warped": plain.replace("<VRTDataset ", '<VRTDataset subClass="VRTWarpedDataset" '),
        "code": plain.replace("</VRTRasterBand>", "<PixelFunctionCode>x</PixelFunctionCode></VRTRasterBand>", 1),
        "entity": f'<VRTDataset><!DOCTYPE x [<!ENTITY a "b">]>{plain.partition(">")[2]}',
        "overviews": plain.replace("</VRTDataset>", '<Metadata domain="OVERVIEWS"/></VRTDataset>'),
        "broken": plain[:-20],
    }
    for name, text in changed.items():
        path = tmp_path / f"{name}.vrt"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=f"{name}.vrt: "), open_raster(path):
            pass
    (tmp_path / "service.tif").write_text("<GDAL_WMS><Service name='TMS'/></GDAL_WMS>", encoding="utf-8")
    vrt = write_vrt(tmp_path / "service.vrt", "service.tif", scene.shape[:2])
    with pytest.raises(InputError, match=r"service\.tif: not a raster"), open_raster(vrt):
        pass
    loop = write_vrt(tmp_path / "loop.vrt", "loop.vrt", scene.shape[:2])
    with pytest.raises(InputError, match="name each other"), open_raster(loop):
        pass


def test_side_files_are_not_read(tmp_path: Path, scene: NDArray[np.uint8]) -> None:
    path = write_raster(tmp_path / "scene.tif", as_bands(scene), crs=None, transform=None)
    (tmp_path / "scene.tfw").write_text("0.5\n0\n0\n-0.5\n500000\n5800000\n", encoding="utf-8")
    (tmp_path / "scene.tif.aux.xml").write_text(
        f"<PAMDataset><SRS>{UTM33}</SRS><GeoTransform>1,1,0,1,0,-1</GeoTransform></PAMDataset>", encoding="utf-8"
    )
    with open_raster(path) as frame:
        assert frame.place is None
