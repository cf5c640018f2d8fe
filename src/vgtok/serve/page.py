"""The web page: its layout, its events, and the HTML of its figures; all text in it is escaped."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from html import escape
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
from vgtok.serve.limits import Limits, RefusedError, WorkQueue
from vgtok.serve.service import Answer, Service, Settings
from vgtok.serve.uploads import Uploads
from vgtok.show.overlay import COLORS
from vgtok.tokenize.scores import SCORES

SAMPLES = LAYOUTS
"""Names of the rendered images on offer."""

_SEED = 7


@lru_cache(maxsize=len(SAMPLES))
def sample(name: str, width: int, height: int) -> NDArray[np.uint8]:
    """Return the rendered image of that name, (height, width, 3) uint8 RGB; read-only, as all visitors share it."""
    if name not in SAMPLES:
        raise RefusedError(400, f"sample: '{name}' is not one of {', '.join(SAMPLES)}")
    pixels = render_scene(_SEED, width, height, SceneConfig(layout=name)).pixels
    pixels.setflags(write=False)
    return pixels


def heading_html(model: str | None) -> str:
    """Return the title, one line of instructions, and the name of the model."""
    named = f"<span class='model'>{escape(model)}</span>" if model else "<span class='model'>tokens only</span>"
    return (
        f"<header><h1>VGTok</h1><p>Read an image with fewer tokens: fine where there is detail, coarse elsewhere. "
        f"Upload an image, move the budget.</p>{named}</header>"
    )


def caption_html(text: str, about: str = "") -> str:
    """Return the caption of a picture: its title, and what it was made from."""
    return f"<p class='caption'>{escape(text)}<small>{escape(about)}</small></p>"


def tokens_caption_html(answer: Answer) -> str:
    """Return the caption of the tokens, with name and size of the image."""
    return caption_html("Tokens", f"{answer.image.name}, {answer.image.width} x {answer.image.height}")


def detections_caption_html(answer: Answer) -> str:
    """Return the caption of the detections, with their number of tokens: it may lag behind a moving slider."""
    return caption_html("Detections", f"from {answer.tokens.kept:,} tokens")


def notice_html(sentence: str) -> str:
    """Return an error message."""
    return f"<p class='notice' role='alert'>{escape(sentence)}</p>"


def hint_html(sentence: str) -> str:
    """Return a note that is not an error."""
    return f"<p class='hint'>{escape(sentence[:1].upper() + sentence[1:])}.</p>"


def tokens_html(answer: Answer) -> str:
    """Return the tokens kept, by size, and their cost."""
    count = answer.tokens
    figures = [
        ("tokens kept", f"{count.kept:,}", f"of {count.dense:,}"),
        ("share of dense", f"{count.share:.1%}", ""),
    ]
    if answer.gflops is not None:
        figures.append(("GFLOPs", _three_digits(answer.gflops.used), f"of {_three_digits(answer.gflops.dense)} dense"))
    figures.append(("tokenizer", f"{answer.ms.tokenizer:,.0f} ms", ""))
    legend = "".join(
        f"<span><i style='background:rgb{color}'></i>{size} px: <b>{count.sizes[str(size)]:,}</b></span>"
        for size, color in COLORS.items()
    )
    return f"{_tiles_html(figures)}<p class='legend'>{legend}</p>"


def detections_html(answer: Answer) -> str:
    """Return the number of detections and the time of the model."""
    assert answer.detections is not None
    return _tiles_html(
        [
            ("objects", f"{len(answer.detections):,}", ""),
            ("encoder", f"{answer.ms.encoder or 0:,.0f} ms", ""),
            ("head", f"{answer.ms.head or 0:,.0f} ms", ""),
        ]
    )


def _three_digits(value: float) -> str:
    """Return a number with three significant digits, or a large one without decimals."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _tiles_html(figures: list[tuple[str, str, str]]) -> str:
    cells = "".join(f"<dl><dt>{name}</dt><dd>{value}<small>{rest}</small></dd></dl>" for name, value, rest in figures)
    return f"<div class='tiles'>{cells}</div>"


LEAST_PER_CENT = {"quadtree": 7, "single_pass": 25}
"""Minimum of the budget slider: what each splitter reaches, rounded up."""


class Listeners:
    """Event handlers, one per side of the page; the controls' values arrive in the order of `_request`."""

    def __init__(
        self, service: Service, limits: Limits, uploads: Uploads, tokenizing: WorkQueue, detecting: WorkQueue
    ) -> None:
        self.service, self.limits, self.uploads = service, limits, uploads
        self.tokenizing, self.detecting = tokenizing, detecting

    async def tokens(self, *controls: Any) -> tuple[Any, ...]:
        """Return the error message if any, then caption, picture, tiles and file of the tokens."""
        source, settings = _request(*controls)

        def work() -> tuple[Any, ...]:
            drawn = self.service.tokenize(self._pixels(source), source.name, settings)
            picture = self.uploads.keep(drawn.tokens_picture(), f"{source.stem}.tokens.jpg")
            caption, figures = tokens_caption_html(drawn.answer), tokens_html(drawn.answer)
            return gradio.HTML(visible=False), caption, picture, figures, _download(picture)

        def failed(error: VGTokError) -> tuple[Any, ...]:
            notice = gradio.HTML(notice_html(str(error)), visible=True)
            return notice, caption_html("Tokens"), None, "", _download(None)

        return await _run(self.tokenizing, work, failed)

    async def detections(self, *controls: Any) -> tuple[Any, ...]:
        """Return caption, picture and tiles of the detections, the file of the picture and the COCO json."""
        source, settings = _request(*controls)

        def work() -> tuple[Any, ...]:
            drawn = self.service.detect(self._pixels(source), source.name, settings)
            picture = self.uploads.keep(drawn.detections_picture(), f"{source.stem}.detections.jpg")
            rows = json.dumps([asdict(row) for row in drawn.answer.detections or ()]).encode()
            caption, figures = detections_caption_html(drawn.answer), detections_html(drawn.answer)
            coco = self.uploads.keep(rows, f"{source.stem}.json")
            return caption, picture, figures, _download(picture), _download(coco)

        def failed(error: VGTokError) -> tuple[Any, ...]:
            # The tokens side already shows what is wrong with the image or the settings.
            own = isinstance(error, RefusedError) and error.status >= 500
            sentence = notice_html(str(error)) if own else ""
            return caption_html("Detections"), None, sentence, _download(None), _download(None)

        return await _run(self.detecting, work, failed)

    def _pixels(self, source: "_ImageSource") -> NDArray[np.uint8]:
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


@dataclass(frozen=True)
class _ImageSource:
    """Where the pixels of one event come from: an upload, else a rendered image."""

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
) -> tuple[_ImageSource, Settings]:
    """Return what the controls ask for; an empty number field counts as the default."""
    # The slider follows the splitter, but an event may arrive before it has.
    budget = Settings.budget if per_cent is None else max(per_cent, LEAST_PER_CENT[splitter]) / 100
    settings = Settings(budget, Settings.rank if rank is None else rank, scorer, splitter)
    return _ImageSource(path, rendered), settings


def _download(path: str | None) -> Any:
    """Return a download button with its file, or disabled."""
    return gradio.DownloadButton(value=path, interactive=path is not None)


_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]


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
            with gradio.Column(scale=0, min_width=270):
                frame = gradio.File(visible="hidden", elem_id="frame")
                upload = gradio.File(label="Your image", height=128, elem_id="upload")
                rendered = gradio.Radio(list(SAMPLES), value=SAMPLES[0], label="or choose a rendered one")
                # One range for both splitters: the framework fails on a value in transit when a range changes.
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
                        tokens_caption = gradio.HTML(caption_html("Tokens"), padding=False, elem_id="tokens-caption")
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
        # An image comes from one source at a time: choosing one clears the other. An upload moves to a hidden field,
        # so that the next one can be dropped.
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
    # The bounded queue is `WorkQueue`, shared with the endpoint; this one only holds events on their way there.
    page.queue(max_size=4 * (tokenizing.places + detecting.places), api_open=False)
    return page


def _detections(service: Service) -> list[Any]:
    """Build the right side: caption, picture, tiles and two downloads; without a model only a note."""
    caption = gradio.HTML(caption_html("Detections"), padding=False, elem_id="found-caption")
    if service.detector is None:
        gradio.HTML(hint_html(service.without), padding=False, elem_id="found")
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
    """Return the sliders within the range of a splitter."""
    least = LEAST_PER_CENT[splitter]
    # A valid value is left alone: it may have changed since.
    budget = gradio.skip() if per_cent is None or per_cent >= least else least
    return budget, gradio.Slider(interactive=splitter == "quadtree")
