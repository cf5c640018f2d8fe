"""Which images were taken one after another: what is kept apart for validation must not have a neighbor in training."""

import re
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

_FRAME_NUMBER = re.compile(r"[-_. ]*\d+$")


def sequence_of(image: Path) -> str:
    """The folder and name an image shares with its neighbors: up to the first underscore, or without its number.

    >>> sequence_of(Path("images/0000002_00005_d_0000014.jpg")), sequence_of(Path("flight-0012.png"))
    ('images/0000002', 'flight')
    """
    name, underscore, _ = image.stem.partition("_")
    return (image.parent / (name if underscore else _FRAME_NUMBER.sub("", image.stem))).as_posix()


def kept_apart(images: Sequence[Path], count: int) -> list[int]:
    """At least `count` of the images in whole sequences, none longer than a quarter of that; the same ones every time.

    Where all sequences are longer, the shortest are taken.
    """
    members: dict[str, list[int]] = {}
    for index, image in enumerate(images):
        members.setdefault(sequence_of(image), []).append(index)
    # In an order that has nothing to do with names, long sequences last.
    order = sorted(members, key=lambda name: (max(len(members[name]), count // 4), crc32(name.encode())))
    apart: list[int] = []
    for name in order:
        if len(apart) >= count:
            break
        apart += members[name]
    return sorted(apart)
