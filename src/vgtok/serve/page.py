"""The page: controls on the left, tokens and detections side by side; every event carries all it needs.

No state is kept between events or shared between visitors. Tokens and detections are two listeners on the same
controls: each runs once at a time per visitor and then once more for the last position, so tokens follow a slider
that is still moving while the detector works on.
"""

import json
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import gradio
from fastapi import FastAPI
from gradio.processing_utils import hash_bytes
from gradio.utils import get_upload_folder

from vgtok.errors import VGTokError
from vgtok.files import write_bytes
from vgtok.serve import tiles
from vgtok.serve.answer import Service, Settings
from vgtok.serve.limits import Limits, RefusedError
from vgtok.serve.samples import SAMPLES, sample
from vgtok.serve.turns import Turns
from vgtok.tokenize.canvas import DEFAULT_SIZE
from vgtok.tokenize.scores import SCORES

_LEAST_PER_CENT = {"quadtree": 7, "single_pass": 25}
"""The budget slider's left end: what each splitter reaches, rounded up."""

_KEPT_SECONDS = 3600
"""How long uploads and pictures of a visitor stay on disk."""

_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]


def mount_page(app: FastAPI, service: Service, limits: Limits, tokenizing: Turns, detecting: Turns) -> None:
    """Put the page at / of an application."""
    theme = gradio.themes.Base(
        primary_hue="indigo", neutral_hue="slate", font=_FONTS, font_mono=["ui-monospace", "Consolas", "monospace"]
    )
    gradio.mount_gradio_app(
        app,
        build_page(service, limits, tokenizing, detecting),
        path="/",
        footer_links=[],
        run_history=False,
        max_file_size=limits.max_bytes,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        theme=theme,
        css=(files("vgtok.serve") / "page.css").read_text(),
    )


def build_page(service: Service, limits: Limits, tokenizing: Turns, detecting: Turns) -> gradio.Blocks:
    """Layout and events."""
    answers = _Answers(service, limits, tokenizing, detecting)
    with gradio.Blocks(
        title="VGTok", analytics_enabled=False, fill_width=True, delete_cache=(_KEPT_SECONDS // 4, _KEPT_SECONDS)
    ) as page:
        gradio.HTML(tiles.heading(service.model))
        with gradio.Row():
            with gradio.Column(scale=0, min_width=300):
                upload = gradio.File(label="Drop a frame", height=132, elem_id="upload")
                rendered = gradio.Radio(list(SAMPLES), value=SAMPLES[0], label="or take a rendered one")
                least = _LEAST_PER_CENT[Settings.splitter]
                budget = gradio.Slider(
                    least, 100, 100 * Settings.budget, step=1, label="Token budget, % of dense", elem_id="budget"
                )
                rank = gradio.Slider(0, 0.95, Settings.rank, step=0.05, label="Gate rank", elem_id="rank")
                scorer = gradio.Dropdown(list(SCORES), value=Settings.scorer, label="Scorer", elem_id="scorer")
                splitter = gradio.Radio(
                    list(_LEAST_PER_CENT), value=Settings.splitter, label="Splitter", elem_id="splitter"
                )
            with gradio.Column(scale=1, min_width=600):
                notice = gradio.HTML(elem_id="notice", padding=False)
                with gradio.Row():
                    with gradio.Column(min_width=300):
                        tokens_picture = _picture("Tokens")
                        tokens_tiles = gradio.HTML(elem_id="tokens", padding=False)
                        tokens_file = gradio.DownloadButton("Picture", size="sm", elem_id="tokens-file")
                    with gradio.Column(min_width=300):
                        found_picture = _picture("Detections")
                        found_tiles = gradio.HTML(elem_id="found", padding=False)
                        with gradio.Row():
                            found_file = gradio.DownloadButton("Picture", size="sm", elem_id="found-file")
                            coco_file = gradio.DownloadButton("COCO json", size="sm", elem_id="coco-file")
        controls: list[Any] = [upload, rendered, budget, rank, scorer, splitter]
        triggers = [page.load, *(control.change for control in controls)]
        listen = partial(
            gradio.on, triggers, inputs=controls, trigger_mode="always_last", api_visibility="private",
            concurrency_limit=None,
        )  # fmt: skip
        listen(answers.tokens, outputs=[notice, tokens_picture, tokens_tiles, tokens_file], show_progress="hidden")
        listen(
            answers.detections,
            outputs=[found_picture, found_tiles, found_file, coco_file],
            show_progress="minimal",
            show_progress_on=[found_picture],
        )
        # A frame comes from one place at a time: choosing the one lets the other go.
        upload.upload(None, js="() => null", outputs=rendered)
        upload.clear(None, js=f"() => {SAMPLES[0]!r}", outputs=rendered)
        rendered.input(None, js="() => null", outputs=upload)
        splitter.input(_fitted, inputs=[splitter, budget], outputs=[budget, rank], api_visibility="private")
    # The bounded queue is `Turns`, shared with the endpoint; this one only holds what is on its way there.
    page.queue(max_size=4 * (tokenizing.places + detecting.places), api_open=False)
    return page


def _picture(label: str) -> gradio.Image:
    return gradio.Image(label=label, interactive=False, buttons=["fullscreen"], elem_classes="frame")


def _fitted(splitter: str, per_cent: float) -> tuple[Any, Any]:
    """The sliders as far as a splitter has use for them."""
    least = _LEAST_PER_CENT[splitter]
    budget = gradio.Slider(minimum=least, value=max(least, per_cent))
    return budget, gradio.Slider(interactive=splitter == "quadtree")


@dataclass(frozen=True)
class _Frame:
    """Where the pixels of one event come from."""

    path: str | None
    rendered: str | None

    @property
    def name(self) -> str:
        return Path(self.path).name if self.path else f"{self.rendered}.png"

    def pixels(self, limits: Limits) -> Any:
        """(H, W, 3) uint8 of the upload, else of the rendered frame."""
        if self.path is None:
            if self.rendered is None:
                raise RefusedError(400, "frame: drop one, or take a rendered one")
            return sample(self.rendered, *DEFAULT_SIZE)
        try:
            limits.check_bytes(Path(self.path).stat().st_size, self.name)
            return limits.read(Path(self.path).read_bytes(), self.name)
        except OSError:
            raise RefusedError(400, f"{self.name}: it was kept for an hour and is gone; drop it again") from None


class _Answers:
    """The two listeners; what they return goes to the outputs in order."""

    def __init__(self, service: Service, limits: Limits, tokenizing: Turns, detecting: Turns) -> None:
        self.service, self.limits, self.tokenizing, self.detecting = service, limits, tokenizing, detecting

    async def tokens(
        self, path: str | None, rendered: str | None, per_cent: float, rank: float, scorer: str, splitter: str
    ) -> tuple[Any, ...]:
        """The one sentence where something is wrong, the tokens' picture, their tiles, the picture's file."""
        frame, settings = _Frame(path, rendered), Settings(per_cent / 100, rank, scorer, splitter)

        def work() -> tuple[Any, ...]:
            reading = self.service.tokenize(frame.pixels(self.limits), frame.name, settings)
            picture = _kept(reading.tokens_picture(), f"{Path(frame.name).stem}.tokens.jpg")
            return "", picture, tiles.tokens(reading.answer), _download(picture)

        try:
            return await self.tokenizing.run(work)
        except VGTokError as error:
            return tiles.notice(str(error)), None, "", _download(None)

    async def detections(
        self, path: str | None, rendered: str | None, per_cent: float, rank: float, scorer: str, splitter: str
    ) -> tuple[Any, ...]:
        """The detections' picture, their tiles, the picture's file and the COCO json."""
        if self.service.detector is None:
            return None, tiles.hint(self.service.without), _download(None), _download(None)
        frame, settings = _Frame(path, rendered), Settings(per_cent / 100, rank, scorer, splitter)

        def work() -> tuple[Any, ...]:
            reading = self.service.detect(frame.pixels(self.limits), frame.name, settings)
            stem = Path(frame.name).stem
            picture = _kept(reading.detections_picture(), f"{stem}.detections.jpg")
            rows = json.dumps([asdict(row) for row in reading.answer.detections or ()]).encode()
            return picture, tiles.found(reading.answer), _download(picture), _download(_kept(rows, f"{stem}.json"))

        try:
            return await self.detecting.run(work)
        except VGTokError as error:
            # What is wrong with the frame or the settings the other listener says already.
            own = isinstance(error, RefusedError) and error.status >= 500
            return None, tiles.notice(str(error)) if own else "", _download(None), _download(None)


def _kept(data: bytes, name: str) -> str:
    """Write a file for a visitor to fetch; it lies where the framework would copy it, and goes when its time is up."""
    path = Path(get_upload_folder()) / hash_bytes(data) / name
    # Whole or not at all: two visitors may get the same picture at the same moment.
    write_bytes(path, data)
    return str(path)


def _download(path: str | None) -> Any:
    """A download button with its file, or greyed out."""
    return gradio.DownloadButton(value=path, interactive=path is not None)
