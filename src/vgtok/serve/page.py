"""The web page: its layout, and which event calls which listener."""

from dataclasses import fields
from functools import partial
from importlib.resources import files
from typing import Any

import gradio
from fastapi import FastAPI

from vgtok.serve.controls import (
    COPY_SCRIPT,
    FIT_SCRIPT,
    LEAST_PER_CENT,
    LINK_SCRIPT,
    SAMPLES,
    YOUR_IMAGE,
    Controls,
    default_controls,
)
from vgtok.serve.figures import caption_html, heading_html, hint_html
from vgtok.serve.limits import Limits, WorkQueue
from vgtok.serve.listeners import Listeners
from vgtok.serve.service import Service
from vgtok.serve.uploads import Uploads
from vgtok.tokenize.scores import SCORES

_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]

_OF_TOKENS = ("image", "per_cent", "rank", "scorer", "splitter")
"""Controls that change the tokens, and with them the detections."""

_OF_DETECTIONS = ("score_threshold", "dense")
"""Controls that change what is shown of the detections only."""


def mount_page(
    app: FastAPI, service: Service, limits: Limits, uploads: Uploads, tokenizing: WorkQueue, detecting: WorkQueue
) -> dict[int, int]:
    """Mount the page at / of an application; return how many values each event sends that it answers."""
    theme = gradio.themes.Base(
        primary_hue="indigo", neutral_hue="slate", font=_FONTS, font_mono=["ui-monospace", "Consolas", "monospace"]
    )
    page = build_page(service, limits, uploads, tokenizing, detecting)
    gradio.mount_gradio_app(
        app,
        page,
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
    return {number: len(event.inputs) for number, event in page.fns.items() if event.fn is not None}


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
                opened, read = gradio.Number(visible="hidden"), gradio.Number(visible="hidden")
                in_use = gradio.HTML(elem_id="in-use", padding=False)
                upload = gradio.File(label="Upload an image", show_label=False, height=132, elem_id="upload")
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
        gradio.on([value.change for value in values], None, js=LINK_SCRIPT, inputs=values)
        fitted = [controls["splitter"], controls["per_cent"]]
        gradio.on(
            [value.change for value in fitted],
            None,
            js=FIT_SCRIPT,
            inputs=fitted,
            outputs=[controls["per_cent"], controls["rank"]],
        )
        # An upload becomes the image in use and moves to a hidden field, so that the next one can be dropped.
        upload.upload(
            None,
            js=f"(file) => [file, null, {YOUR_IMAGE!r}]",
            inputs=upload,
            outputs=[frame, upload, controls["image"]],
        )
        link.click(None, js=COPY_SCRIPT)
        # Each event is one request and its answer, without the framework's queue: `WorkQueue` is the bounded one.
        request: dict[str, Any] = {"queue": False, "preprocess": False, "api_visibility": "private"}
        listening: dict[str, Any] = {**request, "inputs": [frame, *values], "trigger_mode": "always_last"}
        # The address of the page sets the controls before anything is read.
        page.load(listeners.linked, outputs=[opened, link_notice, *values], show_progress="hidden", **request)
        # No change calls two listeners: the framework repeats a change whose listener had to wait with all of its
        # listeners, so that two of them would make each other wait and repeat forever. Hence `read`, which changes
        # with the tokens.
        changes = [opened.change, frame.change, *(controls[name].change for name in _OF_TOKENS)]
        gradio.on(
            changes, listeners.tokens, outputs=[read, notice, in_use, *tokens], show_progress="hidden", **listening
        )
        if found:
            changes = [read.change, *(controls[name].change for name in _OF_DETECTIONS)]
            progress: dict[str, Any] = {"show_progress": "minimal", "show_progress_on": found[1]}
            gradio.on(changes, listeners.detections, outputs=found, **progress, **listening)
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
