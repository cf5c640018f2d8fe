"""The page: its parts, what they show, and what happens when they are used."""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import gradio
import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray

from vgtok.data.synthetic import LAYOUTS, SceneConfig, render_scene
from vgtok.defaults import DEFAULT_CANVAS
from vgtok.errors import VGTokError
from vgtok.serve import tiles
from vgtok.serve.limits import Limits, RefusedError, Turns
from vgtok.serve.service import Service, Settings
from vgtok.serve.uploads import Uploads
from vgtok.tokenize.scores import SCORES

SAMPLES = LAYOUTS
"""Names of the samples."""

_SEED = 7


@lru_cache(maxsize=len(SAMPLES))
def sample(name: str, width: int, height: int) -> NDArray[np.uint8]:
    """The sample of that name as (height, width, 3) uint8 RGB, read-only: every visitor gets the same array."""
    if name not in SAMPLES:
        raise RefusedError(400, f"sample: '{name}' is not one of {', '.join(SAMPLES)}")
    pixels = render_scene(_SEED, width, height, SceneConfig(layout=name)).pixels
    pixels.setflags(write=False)
    return pixels


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
            return sample(frame.rendered, *(DEFAULT_CANVAS if canvas == "native" else canvas))
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


_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]


def mount_page(
    app: FastAPI, service: Service, limits: Limits, uploads: Uploads, tokenizing: Turns, detecting: Turns
) -> None:
    """Put the page at / of an application."""
    theme = gradio.themes.Base(
        primary_hue="indigo", neutral_hue="slate", font=_FONTS, font_mono=["ui-monospace", "Consolas", "monospace"]
    )
    gradio.mount_gradio_app(
        app,
        build_page(service, limits, uploads, tokenizing, detecting),
        path="/",
        footer_links=[],
        run_history=False,
        max_file_size=limits.max_bytes,
        ssr_mode=False,
        mcp_server=False,
        show_error=False,
        enable_monitoring=False,
        theme=theme,
        css=(files("vgtok.serve") / "page.css").read_text(encoding="utf-8"),
    )


def build_page(
    service: Service, limits: Limits, uploads: Uploads, tokenizing: Turns, detecting: Turns
) -> gradio.Blocks:
    """Layout and events."""
    listeners = Listeners(service, limits, uploads, tokenizing, detecting)
    page = gradio.Blocks(title="VGTok", analytics_enabled=False, fill_width=True)
    # Else the framework takes it for a page under construction, and reads any file an event names.
    page.has_launched = True
    with page:
        gradio.HTML(tiles.heading(service.model))
        with gradio.Row():
            with gradio.Column(scale=0, min_width=270):
                frame = gradio.File(visible="hidden", elem_id="frame")
                upload = gradio.File(label="Your frame", height=128, elem_id="upload")
                rendered = gradio.Radio(list(SAMPLES), value=SAMPLES[0], label="or take a rendered one")
                # One range for both splitters: the framework fails on a value that is on its way when a range changes.
                least, wanted = min(LEAST_PER_CENT.values()), 100 * service.budget
                budget = gradio.Slider(
                    least, 100, wanted, step=1, label="Token budget, %", buttons=[], elem_id="budget"
                )
                rank = gradio.Slider(0, 0.95, Settings.rank, step=0.05, label="Gate rank", buttons=[], elem_id="rank")
                scorer = gradio.Dropdown(list(SCORES), value=Settings.scorer, label="Scorer", elem_id="scorer")
                splitter = gradio.Radio(
                    list(LEAST_PER_CENT), value=Settings.splitter, label="Splitter", elem_id="splitter"
                )
            with gradio.Column(scale=1, min_width=600):
                notice = gradio.HTML(visible=False, elem_id="notice", padding=False)
                with gradio.Row():
                    with gradio.Column(min_width=300):
                        tokens_caption = gradio.HTML(tiles.caption("Tokens"), padding=False, elem_id="tokens-caption")
                        tokens_picture = _picture("Tokens")
                        tokens_tiles = gradio.HTML(elem_id="tokens", padding=False)
                        tokens_file = gradio.DownloadButton("Download picture", size="sm", elem_id="tokens-file")
                    with gradio.Column(min_width=300):
                        found = _detections(service)
        controls: list[Any] = [frame, rendered, budget, rank, scorer, splitter]
        listen = partial(
            gradio.on,
            [page.load, *(control.change for control in controls)],
            inputs=controls,
            trigger_mode="always_last",
            concurrency_limit=None,
            api_visibility="private",
        )
        shown = [notice, tokens_caption, tokens_picture, tokens_tiles, tokens_file]
        listen(listeners.tokens, outputs=shown, show_progress="hidden")
        if found:
            listen(listeners.detections, outputs=found, show_progress="minimal", show_progress_on=found[1])
        # A frame comes from one place at a time: choosing the one lets the other go. What is dropped moves on to a
        # place out of sight, so that the next one can be dropped.
        upload.upload(None, js="(file) => [file, null, null]", inputs=upload, outputs=[frame, upload, rendered])
        rendered.input(None, js="() => null", outputs=frame)
        gradio.on(
            [splitter.input, budget.change],
            _fitted,
            inputs=[splitter, budget],
            outputs=[budget, rank],
            show_progress="hidden",
            trigger_mode="always_last",
            api_visibility="private",
        )
    # The bounded queue is `Turns`, shared with the endpoint; this one only holds what is on its way there.
    page.queue(max_size=4 * (tokenizing.places + detecting.places), api_open=False)
    return page


def _detections(service: Service) -> list[Any]:
    """The right side: caption, picture, tiles and two files to fetch; without a model one sentence and none of them."""
    caption = gradio.HTML(tiles.caption("Detections"), padding=False, elem_id="found-caption")
    if service.detector is None:
        gradio.HTML(tiles.hint(service.without), padding=False, elem_id="found")
        return []
    picture = _picture("Detections")
    figures = gradio.HTML(elem_id="found", padding=False)
    with gradio.Row():
        picture_file = gradio.DownloadButton("Download picture", size="sm", elem_id="found-file")
        coco_file = gradio.DownloadButton("Download COCO json", size="sm", elem_id="coco-file")
    return [caption, picture, figures, picture_file, coco_file]


def _picture(label: str) -> gradio.Image:
    return gradio.Image(
        label=label, show_label=False, interactive=False, buttons=["fullscreen"], elem_classes="frame", alt_text=label
    )


def _fitted(splitter: str, per_cent: float | None) -> tuple[Any, Any]:
    """The sliders as far as a splitter has use for them."""
    least = LEAST_PER_CENT[splitter]
    # Its value is left alone where it may stay: it can have moved on since.
    budget = gradio.skip() if per_cent is None or per_cent >= least else least
    return budget, gradio.Slider(interactive=splitter == "quadtree")
