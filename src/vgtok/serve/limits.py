"""What may be uploaded: bytes of a stranger in, 8-bit RGB pixels out, or one sentence that says why not.

Size and pixels are checked from the header, before anything is decoded, and what was measured is what is decoded.
"""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from vgtok.errors import InputError, VGTokError
from vgtok.tokenize.decode import check_memory, open_picture, picture_pixels


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
            picture = open_picture(BytesIO(data), name)
        except InputError as error:
            raise RefusedError(415, str(error)) from None
        width, height = picture.size
        if width * height > self.megapixels * 10**6:
            raise RefusedError(
                413, f"{name}: {width} x {height} pixels are more than the {self.megapixels} megapixels allowed here"
            )
        try:
            check_memory(picture, len(data), name)
            return picture_pixels(picture, name)
        except InputError as error:
            raise RefusedError(400, str(error)) from None
