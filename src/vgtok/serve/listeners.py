"""What the page does when a control moves: all controls in, what each part of the page shows out.

Every event carries everything it needs; nothing is kept from one to the next or shared between visitors.
"""

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gradio
import numpy as np
from gradio.processing_utils import hash_bytes
from gradio.utils import get_upload_folder
from numpy.typing import NDArray

from vgtok.errors import VGTokError
from vgtok.files import write_bytes
from vgtok.serve import tiles
from vgtok.serve.answer import Service, Settings
from vgtok.serve.limits import Limits, RefusedError
from vgtok.serve.samples import sample
from vgtok.serve.turns import Turns
from vgtok.tokenize.canvas import DEFAULT_SIZE, CanvasSize

LEAST_PER_CENT = {"quadtree": 7, "single_pass": 25}
"""The least the budget slider goes to: what each splitter reaches, rounded up."""


class Listeners:
    """One method per side of the page; the values of all controls come in the order `_request` has them."""

    def __init__(self, service: Service, limits: Limits, tokenizing: Turns, detecting: Turns) -> None:
        self.service, self.limits, self.tokenizing, self.detecting = service, limits, tokenizing, detecting

    async def tokens(self, *controls: Any) -> tuple[Any, ...]:
        """The one sentence where something is wrong, then caption, picture, tiles and file of the tokens."""
        frame, settings = _request(*controls)

        def work() -> tuple[Any, ...]:
            _sweep()
            reading = self.service.tokenize(frame.pixels(self.limits, self.service.canvas), frame.name, settings)
            picture = _kept(reading.tokens_picture(), f"{frame.stem}.tokens.jpg")
            caption, figures = tiles.tokens_caption(reading.answer), tiles.tokens(reading.answer)
            return gradio.HTML(visible=False), caption, picture, figures, _download(picture)

        try:
            with self.tokenizing.place():
                return await self.tokenizing.run(work)
        except VGTokError as error:
            notice = gradio.HTML(tiles.notice(str(error)), visible=True)
            return notice, tiles.caption("Tokens"), None, "", _download(None)

    async def detections(self, *controls: Any) -> tuple[Any, ...]:
        """Caption, picture and tiles of the detections, the picture's file and the COCO json."""
        frame, settings = _request(*controls)

        def work() -> tuple[Any, ...]:
            reading = self.service.detect(frame.pixels(self.limits, self.service.canvas), frame.name, settings)
            picture = _kept(reading.detections_picture(), f"{frame.stem}.detections.jpg")
            rows = json.dumps([asdict(row) for row in reading.answer.detections or ()]).encode()
            caption, figures = tiles.found_caption(reading.answer), tiles.found(reading.answer)
            return caption, picture, figures, _download(picture), _download(_kept(rows, f"{frame.stem}.json"))

        try:
            with self.detecting.place():
                return await self.detecting.run(work)
        except VGTokError as error:
            # What is wrong with the frame or the settings the other side says already.
            own = isinstance(error, RefusedError) and error.status >= 500
            sentence = tiles.notice(str(error)) if own else ""
            return tiles.caption("Detections"), None, sentence, _download(None), _download(None)


@dataclass(frozen=True)
class _Frame:
    """Where the pixels of one event come from: an upload, else a rendered frame."""

    path: str | None
    rendered: str | None

    @property
    def name(self) -> str:
        return Path(self.path).name if self.path else f"{self.rendered}.png"

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    def pixels(self, limits: Limits, canvas: CanvasSize) -> NDArray[np.uint8]:
        """(H, W, 3) uint8 of the upload, else of the frame rendered to fill the canvas."""
        if self.path is None:
            if self.rendered is None:
                raise RefusedError(400, "frame: drop one, or take a rendered one")
            return sample(self.rendered, *(DEFAULT_SIZE if canvas == "native" else canvas))
        try:
            limits.check_bytes(Path(self.path).stat().st_size, self.name)
            return limits.read(Path(self.path).read_bytes(), self.name)
        except OSError:
            raise RefusedError(400, f"{self.name}: it was kept for an hour and is gone; drop it again") from None


def _request(
    path: str | None, rendered: str | None, per_cent: float | None, rank: float | None, scorer: str, splitter: str
) -> tuple[_Frame, Settings]:
    """What the controls ask for; a number that was wiped out to be typed anew counts as the default until it is."""
    # The slider follows the splitter, but an event may come in before it has.
    budget = Settings.budget if per_cent is None else max(per_cent, LEAST_PER_CENT[splitter]) / 100
    settings = Settings(budget, Settings.rank if rank is None else rank, scorer, splitter)
    return _Frame(path, rendered), settings


def _sweep() -> None:
    """Delete the empty files the framework leaves at every event; those a minute old are no upload that just began."""
    for path in Path(get_upload_folder()).glob("tmp*"):
        with suppress(OSError):
            status = path.stat()
            if status.st_size == 0 and time.time() - status.st_mtime > 60:
                path.unlink()


def _kept(data: bytes, name: str) -> str:
    """Write a file for a visitor to fetch; it lies where the framework would copy it, and goes when its time is up."""
    path = Path(get_upload_folder()) / hash_bytes(data) / name
    # Whole or not at all: two visitors may get the same picture at the same moment.
    write_bytes(path, data)
    return str(path)


def _download(path: str | None) -> Any:
    """A download button with its file, or greyed out."""
    return gradio.DownloadButton(value=path, interactive=path is not None)
