"""Files of strangers: one error of the project's own, bounded memory, and no program is ever run."""

import io
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vgtok.data.dataset import IMAGE_SUFFIXES, image_size
from vgtok.errors import InputError
from vgtok.tokenize.canvas import header_size, read_image
from vgtok.tokenize.decode import FORMATS

from .hostile_files import GRAY, NOT_READABLE, ODD_BUT_GOOD, POSTSCRIPT, encoded, huge_gif, tiff, two_formats


@pytest.mark.parametrize("name", NOT_READABLE)
def test_what_decoders_trip_over_is_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(NOT_READABLE[name])
    with pytest.raises(InputError, match=r"bad.jpg: [^\n]+$"):
        read_image(tmp_path / "bad.jpg")
    with pytest.raises(InputError):
        read_image(NOT_READABLE[name])
    for size in (header_size, image_size):
        # Some announce a size before what is wrong with them.
        with suppress(InputError):
            size(tmp_path / "bad.jpg")


@pytest.mark.parametrize("kind", ODD_BUT_GOOD)
def test_a_damaged_exif_block_costs_the_orientation_only(kind: str) -> None:
    np.testing.assert_array_equal(read_image(ODD_BUT_GOOD[kind])[:, :, 0], GRAY)


def test_mutated_files_are_pixels_or_one_sentence() -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (17, 23, 3), dtype=np.uint8))
    orientation = Image.Exif()
    orientation[0x0112] = 6
    seeds = [encoded(picture, kind) for kind in FORMATS]
    seeds += [encoded(picture, kind, exif=orientation) for kind in ("JPEG", "PNG", "TIFF", "WEBP")]
    seeds += [encoded(picture.convert("L"), "TIFF", compression=kind) for kind in ("tiff_lzw", "tiff_deflate")]
    chance = random.Random(7)
    read = 0
    for _ in range(3000):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 2, 8))):
            at = chance.randrange(min(len(data), chance.choice((60, 400))))
            data[at : at + chance.choice((1, 1, 4))] = chance.choice((b"\0", b"\xff", b"\x7f\xff\xff\xff", b"", b"ab"))
        with suppress(InputError):
            read_image(bytes(data))
            read += 1
    assert 100 < read < 2900


@pytest.mark.parametrize("name", ["a\0b.jpg", "a\udcffb.jpg", "\ud800"])
def test_names_no_file_can_have(name: str) -> None:
    for read in (read_image, header_size, lambda path: image_size(Path(path))):
        with pytest.raises(InputError) as error:
            read(name)
        # As it reaches a terminal.
        str(error.value).encode()
        assert str(error.value).isprintable()


def test_pillow_modes_without_a_way_to_rgb() -> None:
    premultiplied = Image.merge("LA", (Image.new("L", (4, 3), 200), Image.new("L", (4, 3), 255))).convert("La")
    assert (read_image(premultiplied) == 200).all()
    closed = Image.open(io.BytesIO(encoded(Image.fromarray(GRAY), "PNG")))
    closed.close()
    with pytest.raises(InputError, match="PIL image"):
        read_image(closed)


@pytest.mark.parametrize(
    "tensor", [torch.zeros(3, 4, 4).to_sparse(), torch.zeros(3, 4, 4, device="meta"), torch.zeros(3, 4, 4).bfloat16()]
)
def test_tensors_without_an_array(tensor: torch.Tensor) -> None:
    with pytest.raises(InputError, match="tensor: "):
        read_image(tensor, value_range=(0, 1))


@pytest.mark.parametrize("value_range", [(0,), (0, 1, 2), "01a", 5, ("a", "b"), (0, 10**400)])
def test_ranges_that_are_not_two_numbers(value_range: object) -> None:
    with pytest.raises(InputError, match="value_range"):
        read_image(np.zeros((4, 4, 3)), value_range=value_range)  # type: ignore[arg-type]


def test_a_file_of_two_formats_is_decoded_as_what_was_measured(tmp_path: Path) -> None:
    data = two_formats(640)
    with Image.open(io.BytesIO(data)) as other:
        assert other.size == (640, 640), "the trick works on Pillow itself"
    (tmp_path / "x.tif").write_bytes(data)
    assert header_size(data) == header_size(tmp_path / "x.tif") == (1, 1)
    assert read_image(data).shape == read_image(tmp_path / "x.tif").shape == (1, 1, 3)


def test_no_program_is_run_for_postscript_called_jpg(tmp_path: Path) -> None:
    stub, ran = tmp_path / "gs", tmp_path / "ran"
    stub.write_text(f"#!/bin/sh\ntouch {ran}\n")
    stub.chmod(0o755)
    (tmp_path / "e.jpg").write_bytes(POSTSCRIPT)
    command = "from vgtok.cli.main import run; run()"
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", command, "tokenize", "e.jpg"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "e.jpg: not an image in a format that can be read" in done.stderr
    assert "Traceback" not in done.stderr
    assert not ran.exists()


@pytest.mark.parametrize(
    ("data", "size"),
    [(huge_gif(32768, 32768), "32768 x 32768"), (tiff(24, 16_842_752, bands=3), "24 x 16842752")],
)
def test_a_small_file_cannot_fill_the_memory(data: bytes, size: str) -> None:
    before = time.perf_counter()
    with pytest.raises(InputError, match=rf"image bytes: {size} pixels take \d+\.\d GB to decode"):
        read_image(data)
    assert time.perf_counter() - before < 1


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process as Linux does")
def test_too_little_memory_is_called_that(tmp_path: Path) -> None:
    Image.new("RGB", (9000, 9000)).save(tmp_path / "frame.png")
    program = """
import resource
from vgtok.errors import InputError
from vgtok.tokenize.canvas import read_image
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200_000_000,) * 2)
try:
    read_image("frame.png")
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "frame.png: there is not enough memory to decode it\n", done.stderr


def test_pillows_own_limit_stands_for_others_and_reads_run_side_by_side() -> None:
    large = encoded(Image.new("1", (14000, 14000)), "PNG")
    small = encoded(Image.fromarray(GRAY), "PNG")
    reading = threading.Thread(target=read_image, args=(large,))
    reading.start()
    during = 0
    while reading.is_alive():
        assert Image.MAX_IMAGE_PIXELS is not None
        read_image(small)
        during += reading.is_alive()
    assert during > 3, "one frame does not wait for another"


@pytest.mark.filterwarnings("error::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_large_frames_are_read_without_a_warning(kind: str) -> None:
    assert read_image(encoded(Image.new("L", (10000, 9000), 3), kind)).shape == (9000, 10000, 3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"bands": 4, "bits": 16}, "a TIFF of 4 bands of 16-bit integers, which is not read"),
        ({"bands": 5, "planar": 2}, "a TIFF of 5 bands of 8-bit integers, each stored apart, which is not read"),
        ({"bands": 3, "bits": 32, "kind": 3}, "a TIFF of 3 bands of 32-bit floats, which is not read"),
        ({"bands": 1, "bits": 64, "kind": 3}, "a TIFF of 1 band of 64-bit floats, which is not read"),
        (
            {"bands": 1, "bits": 32, "kind": 3},
            "1 band of 32-bit float pixels have no known range; convert a file to 8-bit RGB",
        ),
    ],
)
def test_aerial_tiffs_that_are_not_read_are_described(content: dict[str, int], words: str, tmp_path: Path) -> None:
    (tmp_path / "scene.tif").write_bytes(tiff(8, 6, **content))
    with pytest.raises(InputError) as error:
        read_image(tmp_path / "scene.tif")
    assert f"scene.tif: {words}" in str(error.value)


def _heic(size: tuple[int, int] = (48, 64), **options: object) -> tuple[bytes, np.ndarray]:
    """A HEIC file without loss, and its pixels; the encoder is used directly, as Pillow must not know the format."""
    pillow_heif = pytest.importorskip("pillow_heif")
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    made = pillow_heif.from_bytes("RGB", size[::-1], pixels.tobytes())
    buffer = io.BytesIO()
    made.save(buffer, quality=-1, chroma=444, matrix_coefficients=0, **options)
    return buffer.getvalue(), pixels


def test_heic_is_read_and_pillow_is_left_as_it_was(tmp_path: Path) -> None:
    data, pixels = _heic()
    (tmp_path / "a.heic").write_bytes(data)
    np.testing.assert_array_equal(read_image(tmp_path / "a.heic"), pixels)
    assert header_size(data) == (64, 48)
    assert "HEIF" not in Image.OPEN


def test_heic_is_turned_upright_once() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    data, pixels = _heic(exif=turned.tobytes())
    # The encoder moves the orientation to the container, where the decoder applies it.
    np.testing.assert_array_equal(read_image(data), np.rot90(pixels, -1))


def test_a_heic_file_cut_short_is_one_sentence() -> None:
    data, _ = _heic()
    for end in range(12, len(data) - 1, len(data) // 40):
        with pytest.raises(InputError, match=r"image bytes: [^\n]+$"):
            read_image(data[:end])


def test_heic_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(InputError, match=r"pip install 'vgtok\[heif\]'"):
        read_image(b"\0\0\0\x18ftypheic" + bytes(20))


@pytest.mark.parametrize(
    ("kind", "suffix"), [("AVIF", ".avif"), ("GIF", ".gif"), ("JPEG2000", ".jp2"), ("BMP", ".bmp")]
)
def test_formats_of_folders_are_read_by_name(kind: str, suffix: str, tmp_path: Path) -> None:
    Image.fromarray(np.full((20, 24, 3), 120, dtype=np.uint8)).save(tmp_path / f"a{suffix}", kind)
    assert suffix in IMAGE_SUFFIXES
    assert np.abs(read_image(tmp_path / f"a{suffix}").astype(int) - 120).max() < 4
