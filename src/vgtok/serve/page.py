"""The page's layout: controls on the left, tokens and detections side by side, and which control moves what.

Tokens and detections are two listeners on the same controls: each runs once at a time per visitor and then once more
for the last position, so tokens follow a slider that is still moving while the detector works on.
"""

from functools import partial
from importlib.resources import files
from typing import Any

import gradio
from fastapi import FastAPI

from vgtok.serve import tiles
from vgtok.serve.answer import Service, Settings
from vgtok.serve.limits import Limits
from vgtok.serve.listeners import LEAST_PER_CENT, Listeners
from vgtok.serve.samples import SAMPLES
from vgtok.serve.turns import Turns
from vgtok.serve.uploads import Uploads
from vgtok.tokenize.scores import SCORES

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
