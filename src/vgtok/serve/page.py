"""The web page: its layout, and which event calls which listener."""

from dataclasses import fields
from functools import partial
from importlib.resources import files
from typing import Any

import gradio
from fastapi import FastAPI

from vgtok.serve.controls import (
    COPY_SCRIPT,
    LEAST_PER_CENT,
    LINK_SCRIPT,
    SAMPLES,
    YOUR_IMAGE,
    Controls,
    default_controls,
)
from vgtok.serve.figures import caption_html, heading_html, hint_html
from vgtok.serve.limits import Limits, WorkQueue
from vgtok.serve.listeners import Listeners, fitted
from vgtok.serve.service import Service
from vgtok.serve.uploads import Uploads
from vgtok.tokenize.scores import SCORES

_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]

_OF_TOKENS = ("image", "per_cent", "rank", "scorer", "splitter")
"""Controls that change the tokens; the others change what is shown of the detections."""


def mount_page(
    app: FastAPI, service: Service, limits: Limits, uploads: Uploads, tokenizing: WorkQueue, detecting: WorkQueue
) -> None:
    """Mount the page at / of an application."""
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
    service: Service, limits: Limits, uploads: Uploads, tokenizing: WorkQueue, detecting: WorkQueue
) -> gradio.Blocks:
    """Build the layout and connect its events."""
    listeners = Listeners(service, limits, uploads, tokenizing, detecting)
    page = gradio.Blocks(title="VGTok", analytics_enabled=False, fill_width=True)
    # Otherwise the framework takes it for a page under construction, and reads any file an event names.
    page.has_launched = True
    with page:
        gradio.HTML(heading_html(service.model))
        with gradio.Row():
            with gradio.Column(scale=0, min_width=270, elem_classes="controls"):
                frame = gradio.File(visible="hidden", elem_id="frame")
                in_use = gradio.HTML(elem_id="in-use", padding=False)
                upload = gradio.File(label="Upload an image", show_label=False, height=112, elem_id="upload")
                controls = _controls(service)
                link = gradio.Button("Copy link to these settings", size="sm", elem_id="link")
            with gradio.Column(scale=1, min_width=280):
                link_notice = gradio.HTML(visible=False, elem_id="link-notice", padding=False)
                notice = gradio.HTML(visible=False, elem_id="notice", padding=False)
                with gradio.Row():
                    with gradio.Column(min_width=280):
                        tokens = _tokens()
                    with gradio.Column(min_width=280):
                        found = _detections(service)
        values = [controls[field.name] for field in fields(Controls)]
        # The address of the page sets the controls before anything is read.
        opened = page.load(
            listeners.linked, outputs=[link_notice, *values], show_progress="hidden", api_visibility="private"
        )
        listening = {"inputs": [frame, *values], "trigger_mode": "always_last", "concurrency_limit": None}

        def listen(names: tuple[str, ...], listener: Any, **outputs: Any) -> None:
            """Call a listener once the page has opened, and when the image or one of the controls changes."""
            opened.then(listener, **listening, **outputs, api_visibility="private")
            changes = [frame.change, *(controls[name].change for name in names)]
            gradio.on(changes, listener, **listening, **outputs, api_visibility="private")

        listen(_OF_TOKENS, listeners.tokens, outputs=[notice, in_use, *tokens], show_progress="hidden")
        if found:
            names = tuple(controls)
            listen(names, listeners.detections, outputs=found, show_progress="minimal", show_progress_on=found[1])
        # An upload becomes the image in use and moves to a hidden field, so that the next one can be dropped.
        upload.upload(
            None,
            js=f"(file) => [file, null, {YOUR_IMAGE!r}]",
            inputs=upload,
            outputs=[frame, upload, controls["image"]],
        )
        gradio.on([value.change for value in values], None, js=LINK_SCRIPT, inputs=values)
        link.click(None, js=COPY_SCRIPT)
        gradio.on(
            [controls["splitter"].change, controls["per_cent"].change],
            fitted,
            inputs=[controls["splitter"], controls["per_cent"]],
            outputs=[controls["per_cent"], controls["rank"]],
            show_progress="hidden",
            trigger_mode="always_last",
            api_visibility="private",
        )
    # The bounded queue is `WorkQueue`, shared with the endpoint; this one only holds events on their way there.
    page.queue(max_size=4 * (tokenizing.places + detecting.places), api_open=False)
    return page


def _controls(service: Service) -> dict[str, Any]:
    """Build a control per field of `Controls`."""
    default = default_controls(service)
    slider = partial(gradio.Slider, buttons=[])
    # One range for both splitters: the framework fails on a value in transit when a range changes.
    least = min(LEAST_PER_CENT.values())
    detects = service.detector is not None
    return {
        "image": gradio.Radio([*SAMPLES, YOUR_IMAGE], value=default.image, label="Image in use", elem_id="image"),
        "per_cent": slider(least, 100, default.per_cent, step=1, label="Token budget, %", elem_id="budget"),
        "score_threshold": slider(
            0, 1, default.score_threshold, step=0.05, label="Minimum score", elem_id="threshold", visible=detects
        ),
        "dense": gradio.Checkbox(default.dense, label="Compare with dense", elem_id="dense", visible=detects),
        "rank": slider(0, 0.95, default.rank, step=0.05, label="Gate rank", elem_id="rank"),
        "scorer": gradio.Dropdown(list(SCORES), value=default.scorer, label="Scorer", elem_id="scorer"),
        "splitter": gradio.Radio(list(LEAST_PER_CENT), value=default.splitter, label="Splitter", elem_id="splitter"),
    }


def _tokens() -> list[Any]:
    """Build the left side: caption, picture, figures and a download."""
    return [
        gradio.HTML(caption_html("Tokens"), padding=False, elem_id="tokens-caption"),
        gradio.Image(
            label="Tokens", show_label=False, interactive=False, buttons=["fullscreen"], elem_classes="frame",
            alt_text="Tokens",
        ),
        gradio.HTML(elem_id="tokens", padding=False),
        gradio.DownloadButton("Download picture", size="sm", elem_id="tokens-file"),
    ]  # fmt: skip


def _detections(service: Service) -> list[Any]:
    """Build the right side: caption, picture, figures and two downloads; without a model only a note."""
    caption = gradio.HTML(caption_html("Detections"), padding=False, elem_id="found-caption")
    if service.detector is None:
        gradio.HTML(hint_html(service.without), padding=False, elem_id="found")
        return []
    picture = gradio.HTML(elem_id="found-picture", padding=False)
    figures = gradio.HTML(elem_id="found", padding=False)
    with gradio.Row():
        picture_file = gradio.DownloadButton("Download picture", size="sm", elem_id="found-file", min_width=120)
        coco_file = gradio.DownloadButton("Download COCO json", size="sm", elem_id="coco-file", min_width=120)
    return [caption, picture, figures, picture_file, coco_file]
