"""Which files the reader of rasters may open: a file enters, the name of the one driver that may read it leaves.

GDAL reads some 150 formats, some of which name further files, addresses or code. Here the first bytes of a file choose
among five, and a VRT, which names other files, may name only files in its own folder and below.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from vgtok.errors import InputError
from vgtok.files import check_local

_SIGNATURES = {
    b"II*\0": "GTiff",
    b"MM\0*": "GTiff",
    b"II+\0": "GTiff",
    b"MM\0+": "GTiff",
    b"\0\0\0\x0cjP  ": "JP2OpenJPEG",
    b"\xff\x4f\xff\x51": "JP2OpenJPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"<VRTDataset": "VRT",
}

_LARGEST_VRT = 64 * 2**20
_DEEPEST = 4
"""VRTs inside VRTs; more are a loop."""

_SOURCES = frozenset({"SimpleSource", "ComplexSource"})
_REFUSED = frozenset(
    {
        "GDALWarpOptions",
        "Group",
        "Input",
        "OpenOptions",
        "OutputBands",
        "PansharpeningOptions",
        "PixelFunctionCode",
        "PixelFunctionType",
        "ProcessingSteps",
        "SourceDataset",
    }
)
"""Parts of a VRT that compute, warp, or open files in ways other than by name."""


def check_raster_file(path: Path) -> str:
    """Return the driver for a file; raise InputError if it is no raster, or a VRT that reaches beyond its folder."""
    return _checked(path, str(path), path.absolute().parent, 0)


def _checked(path: Path, shown: str, folder: Path, depth: int) -> str:
    try:
        with path.open("rb") as file:
            start = file.read(16).lstrip(b"\xef\xbb\xbf \t\r\n")
    except (OSError, ValueError) as error:
        check_local(path)
        raise InputError(f"{shown}: cannot be read ({getattr(error, 'strerror', None) or 'no such file'})") from None
    driver = next((name for signature, name in _SIGNATURES.items() if start.startswith(signature)), None)
    if driver is None:
        raise InputError(f"{shown}: not a raster that can be read (GeoTIFF, COG, VRT, JPEG 2000)")
    if driver == "VRT":
        if depth == _DEEPEST:
            raise InputError(f"{shown}: VRTs name each other more than {_DEEPEST} deep")
        for source in _sources(path, shown):
            name = source.relative_to(folder) if source.is_relative_to(folder) else source
            _checked(_inside(source, shown, folder), f"{shown}: source {name}", folder, depth + 1)
    return driver


def _inside(source: Path, shown: str, folder: Path) -> Path:
    """Return the file a VRT names, which must lie in `folder` or below, links followed."""
    try:
        within = source.is_file() and source.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        within = False
    # What GDAL takes for an address, a subdataset or a document rather than a name.
    if not within or any(sign in str(source) for sign in (":", "<", "/vsi")):
        raise InputError(
            f"{shown}: names '{source}', which is not a file in its own folder or below; only those are read"
        )
    return source


def _sources(path: Path, shown: str) -> Iterator[Path]:
    """Yield the files a VRT names."""
    if path.stat().st_size > _LARGEST_VRT:
        raise InputError(f"{shown}: a VRT of more than {_LARGEST_VRT >> 20} MB is not read")
    text = path.read_bytes()
    if b"<!" in text.replace(b"<!--", b"").replace(b"<![CDATA[", b""):
        raise InputError(f"{shown}: declares entities, which no VRT needs; it is not read")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, RecursionError, ValueError) as error:
        raise InputError(f"{shown}: not a VRT ({error})") from None
    for element in root.iter():
        computed = element.get("subClass") is not None or element.get("domain") == "OVERVIEWS"
        is_source = element.tag.endswith("Source") and element.tag not in _SOURCES
        if computed or is_source or element.tag in _REFUSED:
            kind = element.get("subClass") or element.tag
            raise InputError(
                f"{shown}: a VRT with '{kind}' is not read; only plain mosaics are. Convert it to a GeoTIFF"
            )
        if element.tag == "SourceFilename":
            # Without the attribute a name counts from wherever the command was started.
            folder = path.absolute().parent if element.get("relativeToVRT") == "1" else Path("/")
            yield folder / (element.text or "").strip()
