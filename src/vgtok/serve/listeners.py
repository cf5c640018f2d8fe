"""Event handlers of the page: values of its controls in, the contents of its parts out."""

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio
import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic import SceneConfig, render_scene
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import VGTokError
from vgtok.serve import figures
from vgtok.serve.controls import SAMPLES, Controls, ImageSource, linked_controls
from vgtok.serve.limits import Limits, RefusedError, WorkQueue
from vgtok.serve.service import DrawableAnswer, Service, Settings
from vgtok.serve.uploads import Uploads

if TYPE_CHECKING:
    from vgtok.detect.result import Result

_SEED = 7
_RESULTS_KEPT = 16
"""Results of the model kept for other thresholds; without their pixels, a few hundred boxes each."""


@lru_cache(maxsize=len(SAMPLES))
def sample(name: str, width: int, height: int) -> NDArray[np.uint8]:
    """Return the rendered image of that name, (height, width, 3) uint8 RGB; read-only, as all visitors share it."""
    if name not in SAMPLES:
        raise RefusedError(400, f"sample: '{name}' is not one of {', '.join(SAMPLES)}")
    pixels = render_scene(_SEED, width, height, SceneConfig(layout=name)).pixels
    pixels.setflags(write=False)
    return pixels


class Listeners:
    """Event handlers, one per side of the page; an upload and the values of `Controls` arrive in order.

    Guard has checked both, so that the framework need not: it would print what a stranger sends as a traceback.
    """

    def __init__(
        self, service: Service, limits: Limits, uploads: Uploads, tokenizing: WorkQueue, detecting: WorkQueue
    ) -> None:
        self.service, self.limits, self.uploads = service, limits, uploads
        self.tokenizing, self.detecting = tokenizing, detecting
        self._results: OrderedDict[tuple[ImageSource, Settings], Result] = OrderedDict()
        self._turns = count(1)

    def linked(self, request: gradio.Request) -> tuple[Any, ...]:
        """Return a new number, what is wrong with the address of the page, and the values of the controls it sets."""
        controls, faults = linked_controls(dict(request.query_params), self.service)
        notice = gradio.HTML("".join(map(figures.notice_html, faults)), visible=bool(faults))
        return next(self._turns), notice, *controls.values()

    async def tokens(self, upload: dict[str, str] | None, *values: Any) -> tuple[Any, ...]:
        """Return a new number, the error message if any, the image in use, then all parts of the tokens.

        The parts are caption, picture, figures and file. The number is what the detections wait for.
        """
        controls = Controls(*values)
        source = ImageSource.chosen(upload["path"] if upload else None, controls.image)

        def work() -> tuple[Any, ...]:
            drawn = self.service.tokenize(self.pixels(source), source.name, controls.settings)
            picture = self.uploads.keep(drawn.tokens_picture(), f"{source.stem}.tokens.jpg")
            image = drawn.answer.image
            origin = "your image" if source.path else "rendered"
            used = figures.in_use_html(image.name, f"{image.width} x {image.height}, {origin}", drawn.canvas.image)
            caption, tiles = figures.tokens_caption_html(drawn.answer), figures.tokens_html(drawn)
            return next(self._turns), gradio.HTML(visible=False), used, caption, picture, tiles, _download(picture)

        def failed(error: VGTokError) -> tuple[Any, ...]:
            notice = gradio.HTML(figures.notice_html(str(error)), visible=True)
            used = figures.in_use_html(source.name, "not shown, see the message")
            return next(self._turns), notice, used, figures.caption_html("Tokens"), None, "", _download(None)

        return await _run(self.tokenizing, work, failed)

    async def detections(self, upload: dict[str, str] | None, *values: Any) -> tuple[Any, ...]:
        """Return caption, picture and figures of the detections, the file of the picture and the COCO json."""
        controls = Controls(*values)
        source = ImageSource.chosen(upload["path"] if upload else None, controls.image)

        def work() -> tuple[Any, ...]:
            pixels = self.pixels(source)
            found = self._detected(pixels, source, controls.settings, controls.score_threshold)
            picture = self.uploads.keep(found.detections_picture(), f"{source.stem}.detections.jpg")
            rows = json.dumps([asdict(row) for row in found.answer.detections or ()]).encode()
            coco = self.uploads.keep(rows, f"{source.stem}.json")
            shown, dense = figures.picture_html(picture, "Detections"), None
            if controls.dense:
                whole = self._detected(pixels, source, Settings(budget=1.0), controls.score_threshold)
                other = self.uploads.keep(whole.detections_picture(), f"{source.stem}.dense.jpg")
                shown, dense = (
                    figures.comparison_html((other, _described(whole)), (picture, _described(found))),
                    whole.answer,
                )
            caption = figures.detections_caption_html(found.answer)
            tiles = figures.detections_html(found.answer, dense)
            return caption, shown, tiles, _download(picture), _download(coco)

        def failed(error: VGTokError) -> tuple[Any, ...]:
            # The tokens side already shows what is wrong with the image or the settings.
            own = isinstance(error, RefusedError) and error.status >= 500
            sentence = figures.notice_html(str(error)) if own else ""
            return figures.caption_html("Detections"), "", sentence, _download(None), _download(None)

        return await _run(self.detecting, work, failed)

    def _detected(
        self, pixels: NDArray[np.uint8], source: ImageSource, settings: Settings, threshold: float | None
    ) -> DrawableAnswer:
        """Return the detections of (H, W, 3) pixels; the model runs once for all thresholds."""
        key = (source, settings)
        # One event works at a time, so that nothing else changes the results meanwhile.
        if key not in self._results:
            self._results[key] = self.service.run(pixels, source.name, settings)
        self._results.move_to_end(key)
        if len(self._results) > _RESULTS_KEPT:
            self._results.popitem(last=False)
        return self.service.drawable(self._results[key], pixels, source.name, settings, threshold)

    def pixels(self, source: ImageSource) -> NDArray[np.uint8]:
        """Return (H, W, 3) uint8 pixels of the upload, else of the image rendered to fill the canvas."""
        if source.path is None:
            if source.rendered is None:
                raise RefusedError(400, "image: upload one, or choose a rendered one")
            canvas = self.service.canvas
            return sample(source.rendered, *(DEFAULT_CANVAS if canvas == "native" else canvas))
        # The middleware has checked it before; whatever way an event takes, no other file is ever opened.
        if not self.uploads.holds(source.path):
            raise RefusedError(403, "image: upload the file itself; no other file is read, by path or URL")
        try:
            self.limits.check_bytes(Path(source.path).stat().st_size, source.name)
            return self.limits.read(Path(source.path).read_bytes(), source.name)
        except OSError:
            raise RefusedError(400, f"{source.name}: upload expired (1 h); please upload it again") from None


async def _run(
    queue: WorkQueue, work: Callable[[], tuple[Any, ...]], failed: Callable[[VGTokError], tuple[Any, ...]]
) -> tuple[Any, ...]:
    """Return the result of `work` in the queue, or what `failed` shows instead."""
    try:
        with queue.place():
            return await queue.run(work)
    except VGTokError as error:
        return failed(error)


def _described(drawn: DrawableAnswer) -> str:
    tokens = drawn.answer.tokens
    return "dense" if tokens.kept == tokens.dense else f"{tokens.share:.0%} of the tokens"


def _download(path: str | None) -> Any:
    """Return a download button with its file, or disabled."""
    return gradio.DownloadButton(value=path, interactive=path is not None)
