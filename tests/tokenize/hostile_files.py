"""Files nobody means well with, small and made here: what each decoder once tripped over."""

import io
import struct

import numpy as np
from PIL import Image

GRAY = np.arange(48, dtype=np.uint8).reshape(6, 8)


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    """A picture as a file of Pillow's format `kind`."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def tiff(width: int, height: int, bands: int = 1, bits: int = 8, kind: int = 1, planar: int = 1) -> bytes:
    """An uncompressed TIFF that announces this and holds one strip of at most a kilobyte."""
    pixels = bytes(min(width * height * bands * bits // 8, 1024))
    extra = struct.pack(f"<{bands}H", *[bits] * bands)
    at = 8 + len(pixels)
    one = bands == 1
    entries = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, bands, bits if one else at), (259, 3, 1, 1),
        (262, 3, 1, 2 if bands == 3 else 1), (273, 4, 1, 8),
        (277, 3, 1, bands), (278, 4, 1, height), (279, 4, 1, len(pixels)), (284, 3, 1, planar), (339, 3, 1, kind),
    ]  # fmt: skip
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    start = at + len(extra)
    return struct.pack("<2sHI", b"II", 42, start) + pixels + extra + directory + bytes(4)


def two_formats(side: int) -> bytes:
    """One file that is a TIFF of a single pixel, and to Pillow's IM plugin a picture of `side` x `side`."""
    head = b"II*\0OOOOx: y\r\nImage type: 0 1 image\r\nImage size (x*y): %d*%d\r\n" % (side, side)
    head += b"File size (no of images): 1\r\n\x1a"
    data = bytes((side + 7) // 8 * side)
    at = len(head) + len(data)
    entries = [(256, 4, 1), (257, 4, 1), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 200)]
    entries += [(277, 3, 1), (278, 4, 1), (279, 4, 1)]
    directory = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return head.replace(b"OOOO", struct.pack("<I", at)) + data + struct.pack("<H", len(entries)) + directory + bytes(4)


def huge_gif(width: int, height: int) -> bytes:
    """A GIF of a few bytes that announces that many pixels."""
    data = bytearray(encoded(Image.fromarray(GRAY), "GIF"))
    data[6:10] = struct.pack("<HH", width, height)
    return bytes(data)


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"

NOT_READABLE = {
    "p4": b"P4",
    "png of 18 bytes": bytes.fromhex("89504e470d0a1a0a00000000494844520000"),
    "tiff cut in its directory": tiff(8, 6)[:-100],
    "tiff of huge sides": tiff(2**31, 2**31),
    "tiff with a huge offset": b"II*\0" + struct.pack("<Q", 2**63)[:4] + b"\xff" * 40,
    "big tiff with a huge offset": b"II\x2b\0\x08\0\0\0" + b"\xff" * 40,
    "bmp of no depth": b"BM" + bytes(60),
    "gif cut": huge_gif(9, 9)[:11],
    "jpeg 2000 cut": bytes.fromhex("ff4fff51002f"),
    "webp of nothing": b"RIFF\x10\0\0\0WEBPVP8 \0\0\0\0",
    "postscript": POSTSCRIPT,
    "nothing": b"",
}

ODD_BUT_GOOD = {
    kind: encoded(Image.fromarray(GRAY), kind, exif=b"Exif\0\0MM\0*", **lossless)
    for kind, lossless in (("PNG", {}), ("WEBP", {"lossless": True}))
}
"""Pictures of GRAY with an EXIF block that is damaged."""
