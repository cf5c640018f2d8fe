"""What a TIFF holds that cannot be read: its bands and their depth in words, for the message about it."""

from typing import IO, Any

_BITS, _SAMPLES, _PLANAR, _SAMPLE_FORMAT = 258, 277, 284, 339
_KINDS = {1: "integers", 2: "signed integers", 3: "floats", 5: "complex integers", 6: "complex floats"}


def tiff_content(file: IO[bytes]) -> str | None:
    """For example '4 bands of 16-bit integers'; None where the first directory itself is damaged."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    try:
        file.seek(0)
        header = file.read(8)
        if header[2:4] in (b"\x2b\x00", b"\x00\x2b"):
            header += file.read(8)
        tags = ImageFileDirectory_v2(header)
        file.seek(tags.next)
        tags.load(file)
        bits = sorted(set(_numbers(tags.get(_BITS, 1))))
        bands = _numbers(tags.get(_SAMPLES, 1))[0]
        kinds = {_KINDS.get(kind, "values") for kind in _numbers(tags.get(_SAMPLE_FORMAT, 1))}
        if 256 not in tags or 257 not in tags:
            return None
    # Bytes of a stranger: nothing is known of what the directory's reader trips over.
    except Exception:
        return None
    depth = " and ".join(f"{count}-bit" for count in bits)
    apart = ", each stored apart" if bands > 1 and tags.get(_PLANAR) == 2 else ""
    return f"{bands} band{'' if bands == 1 else 's'} of {depth} {' and '.join(sorted(kinds))}{apart}"


def _numbers(value: Any) -> list[int]:
    return [int(part) for part in value] if isinstance(value, tuple) else [int(value)]
