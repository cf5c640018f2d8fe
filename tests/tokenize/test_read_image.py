"""Reading: every kind of image in, upright 8-bit RGB out; every kind of bad input one clear line."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vgtok.errors import InputError
from vgtok.tokenize.canvas import read_image

GRADIENT = np.stack(np.broadcast_arrays(*np.ogrid[0:40, 0:60], 7), axis=-1).astype(np.uint8)


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def test_path_bytes_pillow_array_and_tensor_agree(tmp_path: Path) -> None:
    picture = Image.fromarray(GRADIENT)
    picture.save(tmp_path / "image.png")
    tensor = torch.from_numpy(GRADIENT).permute(2, 0, 1)
    sources = (tmp_path / "image.png", str(tmp_path / "image.png"), encoded(picture, "PNG"), picture, GRADIENT, tensor)
    for source in sources:
        np.testing.assert_array_equal(read_image(source), GRADIENT)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_turns_files_and_pillow_images_alike(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(GRADIENT), "PNG", exif=exif)
    upright = read_image(data)
    turned = {1: GRADIENT, 2: GRADIENT[:, ::-1], 3: GRADIENT[::-1, ::-1], 4: GRADIENT[::-1]}
    turned |= {5: GRADIENT.swapaxes(0, 1), 6: np.rot90(GRADIENT, -1), 8: np.rot90(GRADIENT, 1)}
    turned |= {7: GRADIENT[::-1, ::-1].swapaxes(0, 1)}
    np.testing.assert_array_equal(upright, turned[orientation])
    np.testing.assert_array_equal(read_image(Image.open(io.BytesIO(data))), upright)


def test_gray_palette_cmyk_and_one_bit() -> None:
    gray = GRADIENT[:, :, 0]
    assert (read_image(encoded(Image.fromarray(gray), "PNG")) == gray[:, :, None]).all()
    assert (read_image(gray) == gray[:, :, None]).all()
    palette = Image.fromarray(GRADIENT).quantize(256)
    np.testing.assert_array_equal(read_image(encoded(palette, "PNG")), np.asarray(palette.convert("RGB")))
    red = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert read_image(encoded(red, "TIFF"))[0, 0].tolist() == [255, 0, 0]
    assert read_image(Image.new("1", (3, 2), 1)).tolist() == [[[255] * 3] * 3] * 2


def test_transparent_pixels_read_as_black() -> None:
    picture = Image.new("RGBA", (4, 4), (250, 10, 10, 0))
    picture.putpixel((0, 0), (250, 10, 10, 255))
    for pixels in (read_image(encoded(picture, "PNG")), read_image(np.asarray(picture))):
        assert pixels[0, 0].tolist() == [250, 10, 10]
        assert pixels[1:].max() == 0


def test_sixteen_bits_scale_to_eight() -> None:
    deep = (np.arange(256, dtype=np.uint32) * 257).astype(np.uint16).reshape(16, 16)
    np.testing.assert_array_equal(read_image(deep)[:, :, 0], np.arange(256).reshape(16, 16))
    np.testing.assert_array_equal(read_image(encoded(Image.fromarray(deep), "PNG"))[:, :, 1], read_image(deep)[:, :, 1])
    narrow = read_image(np.array([[0, 4095]], dtype=np.uint16), value_range=(0, 4095))
    assert narrow[0, :, 0].tolist() == [0, 255]


def test_floats_are_read_by_their_stated_range() -> None:
    values = np.array([[0.0, 0.5, 1.0, 2.0, -1.0]], dtype=np.float32)
    assert read_image(values, value_range=(0.0, 1.0))[0, :, 0].tolist() == [0, 128, 255, 255, 0]
    tensor = torch.rand(3, 5, 7)
    assert read_image(tensor, value_range=(0.0, 1.0)).shape == (5, 7, 3)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 3)), "float64 pixels have no known range.*value_range"),
        (np.zeros((4, 4), dtype=np.int32), "int32 pixels have no known range"),
        (np.zeros((0, 4, 3), dtype=np.uint8), "has no pixels"),
        (np.zeros((4, 4, 5), dtype=np.uint8), "shape"),
        (np.zeros(7, dtype=np.uint8), "shape"),
        (torch.zeros(7, 4, 4, dtype=torch.uint8), "tensor: shape"),
        (b"hello", "not an image"),
        (42, "cannot read a int"),
        ("nowhere/at/all.jpg", "no such file"),
        ("https://example.com/a.jpg", "^https://example.com/a.jpg: is an address, and nothing is fetched"),
        ("C:/nowhere/a.jpg", "no such file"),
    ],
)
def test_bad_input_is_named(image: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_image(image)


def test_not_a_number_and_bad_ranges_are_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        read_image(np.full((4, 4), np.nan), value_range=(0, 1))
    with pytest.raises(InputError, match="value_range"):
        read_image(np.zeros((4, 4)), value_range=(1, 1))


def test_bad_files_name_the_file(tmp_path: Path) -> None:
    jpeg = encoded(Image.effect_noise((300, 200), 80).convert("RGB"), "JPEG")
    for name, data, message in (
        ("empty.jpg", b"", "is empty"),
        ("cut.jpg", jpeg[: len(jpeg) // 2], "damaged or cut short"),
        ("text.jpg", b"these are words", "not an image"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=f"{name}.*{message}"):
            read_image(tmp_path / name)
    with pytest.raises(InputError, match="is a folder"):
        read_image(tmp_path)


def test_frames_beyond_pillows_own_limit_are_read() -> None:
    huge = Image.new("1", (20000, 20000))
    assert read_image(encoded(huge, "PNG")).shape == (20000, 20000, 3)
    assert Image.MAX_IMAGE_PIXELS is not None
