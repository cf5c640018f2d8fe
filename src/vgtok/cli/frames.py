"""How the commands read files: photos as they are, geo rasters in parts, large ones of either by windows.

Options and a file enter, a `Frame` leaves, with the canvas to fit it to or the windows to read it by.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.cli.options import image_size
from vgtok.errors import InputError
from vgtok.journal import Journal, is_number
from vgtok.slicing.frames import ArrayFrame, Frame
from vgtok.slicing.raster import PERCENTILES, RASTER_SUFFIXES, open_raster
from vgtok.slicing.windows import LARGEST_WHOLE, CanvasChoice, WindowFound, Windows, fitted_canvas, windows_for
from vgtok.tokenize.canvas import CanvasSize, header_size, read_image


@dataclass(frozen=True)
class Reading:
    """The options of reading: `canvas` None fits frames up to `windows_over` px a side and reads others by windows."""

    canvas: CanvasChoice | None = None
    windows_over: int = LARGEST_WHOLE
    bands: tuple[int, ...] | None = None
    value_range: tuple[float, float] | None = None
    percentiles: tuple[float, float] = PERCENTILES

    @classmethod
    def of(cls, canvas: str | None, windows_over: int, bands: str | None, value_range: str | None) -> "Reading":
        """Parse the options."""
        low, high, share = _ends(value_range)
        return cls(
            None if canvas is None else _canvas(canvas),
            windows_over,
            None if bands is None else _numbers(bands),
            None if share or value_range is None else (low, high),
            (low, high) if share else PERCENTILES,
        )

    def settings(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, as plain values for the settings of a run."""
        default = Reading()
        changed = {name: value for name, value in vars(self).items() if value != getattr(default, name)}
        return {name: vars(value) if isinstance(value, Windows) else value for name, value in changed.items()}

    def windows(self, frame: Frame, canvas: CanvasSize) -> Windows | None:
        """Return the windows to read a frame by, of the size of a model's canvas; None to fit it to a canvas."""
        return windows_for(self.canvas, canvas, (frame.height, frame.width), self.windows_over)

    def fitted(self, canvas: CanvasSize) -> CanvasSize:
        """Return the canvas for frames that are not read by windows: the one asked for, or that of the model."""
        return fitted_canvas(self.canvas, canvas)

    @contextmanager
    def opened(self, path: Path) -> Iterator[Frame]:
        """Open a file as a frame for the block."""
        suffix, asked = path.suffix.lower(), self.settings().keys() & {"bands", "value_range", "percentiles"}
        if suffix in RASTER_SUFFIXES and (asked or suffix == ".vrt" or self._is_geo(path)):
            with open_raster(
                path, bands=self.bands, value_range=self.value_range, percentiles=self.percentiles
            ) as raster:
                yield raster
        elif self.bands is not None:
            raise InputError(f"{path}: --bands is for geo rasters ({', '.join(sorted(RASTER_SUFFIXES))})")
        else:
            yield ArrayFrame(self._photo(path))

    def _photo(self, path: Path) -> NDArray[np.uint8]:
        """Read an image that is no raster, or cannot be read as one for lack of the extra."""
        try:
            return read_image(path, self.value_range)
        except InputError as error:
            if path.suffix.lower() in RASTER_SUFFIXES and find_spec("rasterio") is None:
                raise InputError(f"{error}; geo rasters need rasterio: pip install 'vgtok[geo]'") from None
            raise

    def _is_geo(self, path: Path) -> bool:
        """Whether a TIFF or JPEG 2000 is read as a raster: it has a place on the map, is large, or no plain photo."""
        if find_spec("rasterio") is None:
            return False
        try:
            # With a range, so that no percentiles are looked for.
            with open_raster(path, value_range=(0, 1)) as raster:
                large = max(raster.height, raster.width) > self.windows_over
                if raster.place is not None or large or raster.dataset.dtypes[0].startswith("float"):
                    return True
        except InputError:
            return False
        try:
            return 0 in header_size(path)
        except InputError:
            return True


class WindowLog(MutableMapping[int, WindowFound]):
    """The finished windows of one frame by number, kept in a file, so that an interrupted run goes on there."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.journal = Journal(path, settings, _is_window, restart=True)

    def __getitem__(self, number: int) -> WindowFound:
        entry = self.journal.entries[str(number)]
        return WindowFound(
            np.array(entry["boxes"], dtype=np.float64).reshape(-1, 4),
            np.array(entry["scores"], dtype=np.float32),
            np.array(entry["labels"], dtype=np.int64),
            *entry["ms"],
        )

    def __setitem__(self, number: int, found: WindowFound) -> None:
        lists = {name: getattr(found, name).tolist() for name in ("boxes", "scores", "labels")}
        self.journal.add(str(number), {**lists, "ms": [found.encoder, found.head]})

    def __delitem__(self, number: int) -> None:
        raise TypeError("finished windows stay")

    def __iter__(self) -> Iterator[int]:
        return map(int, self.journal.entries)

    def __len__(self) -> int:
        return len(self.journal.entries)

    def __contains__(self, number: object) -> bool:
        return str(number) in self.journal.entries

    def remove(self) -> None:
        """Remove the file, once the frame is finished."""
        self.journal.path.unlink(missing_ok=True)


def _is_window(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of the log is whole; a damaged one may lack any field."""
    boxes, scores, labels = (entry.get(name) for name in ("boxes", "scores", "labels"))
    return (
        isinstance(boxes, list)
        and isinstance(scores, list)
        and isinstance(labels, list)
        and len(boxes) == len(scores) == len(labels)
        and all(isinstance(box, list) and len(box) == 4 and all(map(is_number, box)) for box in boxes)
        and all(map(is_number, scores))
        and all(type(label) is int for label in labels)
        and isinstance(entry.get("ms"), list)
        and len(entry["ms"]) == 2
        and all(map(is_number, entry["ms"]))
        and entry["item"].isdecimal()
    )


def _canvas(text: str) -> CanvasChoice:
    """Parse --canvas: WIDTHxHEIGHT, native, windows or windows:WIDTHxHEIGHT."""
    name, colon, size = text.partition(":")
    if name == "windows":
        return Windows(*image_size(size)) if colon else "windows"
    return "native" if text == "native" else image_size(text)


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"--bands {text}: write one band or three, counted from 1, e.g. 4,3,2")
    return tuple(map(int, parts))


def _ends(text: str | None) -> tuple[float, float, bool]:
    """Return the two ends of --value-range, and whether they are percentiles."""
    if text is None:
        return (*PERCENTILES, False)
    parts: Sequence[str] = [part.strip() for part in text.split(",")]
    shares = [part.endswith("%") for part in parts]
    try:
        low, high = (float(part.removesuffix("%")) for part in parts)
    except ValueError:
        raise InputError(f"--value-range {text}: write LOW,HIGH, e.g. 0,3000, or percentiles, e.g. 2%,98%") from None
    if any(shares) != all(shares) or not low < high:
        raise InputError(f"--value-range {text}: write LOW,HIGH, e.g. 0,3000, or percentiles, e.g. 2%,98%")
    return low, high, all(shares)
