"""What the page does when a control moves: all controls in, what each part of the page shows out.

Every event carries everything it needs; nothing is kept from one to the next or shared between visitors.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gradio
import numpy as np
from numpy.typing import NDArray

from vgtok.errors import VGTokError
from vgtok.serve import tiles
from vgtok.serve.answer import Service, Settings
from vgtok.serve.limits import Limits, RefusedError
from vgtok.serve.samples import sample
from vgtok.serve.turns import Turns
from vgtok.serve.uploads import Uploads
from vgtok.tokenize.canvas import DEFAULT_SIZE

LEAST_PER_CENT = {"quadtree": 7, "single_pass": 25}
"""The least the budget slider goes to: what each splitter reaches, rounded up."""


class Listeners:
    """One method per side of the page; the values of all controls come in the order `_request` has them."""

    def __init__(self, service: Service, limits: Limits, uploads: Uploads, tokenizing: Turns, detecting: Turns) -> None:
        self.service, self.limits, self.uploads = service, limits, uploads
        self.tokenizing, self.detecting = tokenizing, detecting

    async def tokens(self, *controls: Any) -> tuple[Any, ...]:
        """The one sentence where something is wrong, then caption, picture, tiles and file of the tokens."""
        frame, settings = _request(*controls)

        def work() -> tuple[Any, ...]:
            reading = self.service.tokenize(self._pixels(frame), frame.name, settings)
            picture = self.uploads.keep(reading.tokens_picture(), f"{frame.stem}.tokens.jpg")
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
            reading = self.service.detect(self._pixels(frame), frame.name, settings)
            picture = self.uploads.keep(reading.detections_picture(), f"{frame.stem}.detections.jpg")
            rows = json.dumps([asdict(row) for row in reading.answer.detections or ()]).encode()
            caption, figures = tiles.found_caption(reading.answer), tiles.found(reading.answer)
            coco = self.uploads.keep(rows, f"{frame.stem}.json")
            return caption, picture, figures, _download(picture), _download(coco)

        try:
            with self.detecting.place():
                return await self.detecting.run(work)
        except VGTokError as error:
            # What is wrong with the frame or the settings the other side says already.
            own = isinstance(error, RefusedError) and error.status >= 500
            sentence = tiles.notice(str(error)) if own else ""
            return tiles.caption("Detections"), None, sentence, _download(None), _download(None)

    def _pixels(self, frame: "_Frame") -> NDArray[np.uint8]:
        """(H, W, 3) uint8 of the upload, else of the frame rendered to fill the canvas."""
        if frame.path is None:
            if frame.rendered is None:
                raise RefusedError(400, "frame: drop one, or take a rendered one")
            canvas = self.service.canvas
            return sample(frame.rendered, *(DEFAULT_SIZE if canvas == "native" else canvas))
        # The guard has looked at it before; whatever way an event takes, no other file is ever opened.
        if not self.uploads.holds(frame.path):
            raise RefusedError(403, "frame: send the file itself; no other file is read, by path or by address")
        try:
            self.limits.check_bytes(Path(frame.path).stat().st_size, frame.name)
            return self.limits.read(Path(frame.path).read_bytes(), frame.name)
        except OSError:
            raise RefusedError(400, f"{frame.name}: it was kept for an hour and is gone; drop it again") from None


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


def _request(
    path: str | None, rendered: str | None, per_cent: float | None, rank: float | None, scorer: str, splitter: str
) -> tuple[_Frame, Settings]:
    """What the controls ask for; a number that was wiped out to be typed anew counts as the default until it is."""
    # The slider follows the splitter, but an event may come in before it has.
    budget = Settings.budget if per_cent is None else max(per_cent, LEAST_PER_CENT[splitter]) / 100
    settings = Settings(budget, Settings.rank if rank is None else rank, scorer, splitter)
    return _Frame(path, rendered), settings


def _download(path: str | None) -> Any:
    """A download button with its file, or greyed out."""
    return gradio.DownloadButton(value=path, interactive=path is not None)
