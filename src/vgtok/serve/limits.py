"""What may be uploaded: bytes of a stranger in, 8-bit RGB pixels out, or one sentence that says why not.

Size and pixels are checked from the header, before anything is decoded; only picture formats that are plain data are
opened, none that runs a program.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError, VGTokError
from vgtok.tokenize.images import header_size, read_image

FORMATS = ("JPEG", "PNG", "TIFF", "WEBP", "BMP", "JPEG2000")
"""What uploads are read as, by Pillow's names."""


class RefusedError(VGTokError):
    """A request that gets no answer: one sentence for the user and the HTTP status it goes with."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """The most a single upload may bring."""

    megabytes: int = 64
    megapixels: int = 100

    def __post_init__(self) -> None:
        for name in ("megabytes", "megapixels"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)} is not 1 or more")

    @property
    def max_bytes(self) -> int:
        """Bytes of an upload."""
        return self.megabytes * 2**20

    def check_bytes(self, count: int, name: str) -> None:
        """Refuse an upload that has, or says it has, more bytes than allowed."""
        if count > self.max_bytes:
            raise RefusedError(413, f"{name}: larger than the {self.megabytes} MB allowed here")

    def read(self, data: bytes, name: str) -> NDArray[np.uint8]:
        """Decode an upload to (H, W, 3) uint8 RGB, upright."""
        self.check_bytes(len(data), name)
        if not data:
            raise RefusedError(400, f"{name}: the file is empty")
        try:
            width, height = header_size(data, FORMATS)
        except InputError as error:
            raise RefusedError(415, _renamed(error, name)) from None
        if width * height > self.megapixels * 10**6:
            raise RefusedError(
                413, f"{name}: {width} x {height} pixels are more than the {self.megapixels} megapixels allowed here"
            )
        try:
            return read_image(data)
        except InputError as error:
            raise RefusedError(400, _renamed(error, name)) from None
        # On hostile bytes decoders raise whatever they trip over.
        except Exception as error:
            raise RefusedError(400, f"{name}: the image is damaged ({type(error).__name__})") from None


def _renamed(error: InputError, name: str) -> str:
    """The sentence of `error` about the file as its sender calls it."""
    return f"{name}: {str(error).removeprefix('image bytes: ')}"
