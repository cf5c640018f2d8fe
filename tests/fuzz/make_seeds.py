"""Write the image seeds anew: `python -m tests.fuzz.make_seeds`. Small pictures in every format people have, and some
nobody should be able to make the library open."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
from PIL import Image

FOLDER = Path(__file__).parent / "seeds"


def main() -> None:
    """Encode one picture of 24 x 20 px, each way."""
    pillow_heif.register_heif_opener()
    pixels = np.random.default_rng(0).integers(0, 256, (5, 6, 4), dtype=np.uint8).repeat(4, axis=0).repeat(4, axis=1)
    rgba = Image.fromarray(pixels)
    rgb = rgba.convert("RGB")
    deep = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257)
    turned = Image.Exif()
    turned[0x0112] = 6
    variants: dict[str, tuple[Image.Image, str, dict[str, Any]]] = {
        "rgb.jpg": (rgb, "JPEG", {}),
        "progressive.jpg": (rgb, "JPEG", {"progressive": True}),
        "grey.jpg": (rgb.convert("L"), "JPEG", {}),
        "cmyk.jpg": (rgb.convert("CMYK"), "JPEG", {}),
        "exif.jpg": (rgb, "JPEG", {"exif": turned}),
        "rgb.png": (rgb, "PNG", {}),
        "rgba.png": (rgba, "PNG", {}),
        "palette.png": (rgb.quantize(16), "PNG", {"transparency": 3}),
        "bits.png": (rgb.convert("1"), "PNG", {}),
        "deep.png": (deep, "PNG", {}),
        "exif.png": (rgb, "PNG", {"exif": turned}),
        "raw.tif": (rgb, "TIFF", {}),
        "lzw.tif": (rgb, "TIFF", {"compression": "tiff_lzw"}),
        "deflate.tif": (rgb, "TIFF", {"compression": "tiff_adobe_deflate"}),
        "jpeg.tif": (rgb, "TIFF", {"compression": "jpeg"}),
        "deep.tif": (deep, "TIFF", {}),
        "float.tif": (Image.fromarray(pixels[:, :, 0].astype(np.float32)), "TIFF", {}),
        "lossy.webp": (rgba, "WEBP", {}),
        "lossless.webp": (rgba, "WEBP", {"lossless": True}),
        "rgb.bmp": (rgb, "BMP", {}),
        "palette.gif": (rgb.quantize(16), "GIF", {}),
        "moving.gif": (rgb.quantize(16), "GIF", {"save_all": True, "append_images": [rgb.quantize(4)]}),
        "rgb.ppm": (rgb, "PPM", {}),
        "bits.pbm": (rgb.convert("1"), "PPM", {}),
        "rgb.jp2": (rgb, "JPEG2000", {}),
        "rgb.j2k": (rgb, "JPEG2000", {"no_jp2": True}),
        "rgb.avif": (rgb, "AVIF", {}),
        "alpha.avif": (rgba, "AVIF", {"quality": 100}),
        "rgb.heic": (rgb, "HEIF", {}),
        "exif.heic": (rgba, "HEIF", {"exif": turned}),
        "rgb.ico": (rgb, "ICO", {"sizes": [(16, 16)]}),
        "rgb.pcx": (rgb, "PCX", {}),
        "rgb.tga": (rgb, "TGA", {"compression": "tga_rle"}),
        "rgb.sgi": (rgb, "SGI", {}),
        "rgb.im": (rgb, "IM", {}),
        "rgb.dds": (rgb, "DDS", {}),
        "rgb.eps": (rgb, "EPS", {}),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, (picture, kind, options) in variants.items():
        buffer = io.BytesIO()
        picture.save(buffer, kind, **options)
        (FOLDER / name).write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main()
