"""The HTML of the page: captions, figures, legends and the comparison of two pictures; all text in it is escaped."""

import base64
import io
from html import escape
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vgtok.serve.service import Answer, DrawableAnswer
from vgtok.show.boxes import class_color
from vgtok.show.overlay import COLORS
from vgtok.tokenize.tokens import Tokens

_THUMBNAIL = (160, 96)


def heading_html(model: str | None) -> str:
    """Return the title, one line of instructions, and the name of the model."""
    named = f"<span class='model'>{escape(model)}</span>" if model else "<span class='model'>tokens only</span>"
    return (
        f"<header><h1>VGTok</h1><p>Read an image with fewer tokens: fine where there is detail, coarse elsewhere. "
        f"Upload an image, move the budget.</p>{named}</header>"
    )


def caption_html(text: str, about: str = "") -> str:
    """Return the caption of a picture: its title, and what it was made from."""
    return f"<h2 class='caption'>{escape(text)}<small>{escape(about)}</small></h2>"


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


def in_use_html(name: str, about: str, pixels: NDArray[np.uint8] | None = None) -> str:
    """Return the card of the image in use: its name, what it is, and a thumbnail of its (H, W, 3) pixels."""
    thumbnail = ""
    if pixels is not None:
        small = Image.fromarray(pixels)
        small.thumbnail(_THUMBNAIL)
        thumbnail = f"<img src='{_data_address(small, 'JPEG')}' alt=''>"
    return (
        f"<div class='in-use'>{thumbnail}<p><small>In use</small><b>{escape(name)}</b>"
        f"<small>{escape(about)}</small></p></div>"
    )


def tokens_html(drawn: DrawableAnswer) -> str:
    """Return the tokens kept and their cost, then how much of the image each size reads, and where."""
    count, gflops = drawn.answer.tokens, drawn.answer.gflops
    figures = [
        ("tokens kept", f"{count.kept:,}", f"of {count.dense:,}"),
        ("share of dense", f"{count.share:.1%}", ""),
    ]
    if gflops is not None:
        figures.append(("GFLOPs", _three_digits(gflops.used), f"of {_three_digits(gflops.dense)} dense"))
    figures.append(("tokenizer", f"{drawn.answer.ms.tokenizer:,.0f} ms", ""))
    return f"{_figures_html(figures)}{_map_html(drawn.tokens)}"


def _map_html(tokens: Tokens) -> str:
    """Return a map of the token sizes, and the share of the image that each size covers."""
    sizes = tokens.cell_sizes()
    colors = np.zeros((*sizes.shape, 3), dtype=np.uint8)
    bar, rows = "", ""
    for size, count in tokens.counts().items():
        covered = sizes == size
        colors[covered] = COLORS[size]
        share, color = float(covered.mean()), f"rgb{COLORS[size]}"
        bar += f"<i style='width:{100 * share:.2f}%;background:{color}'></i>"
        covers = f"<small>{share:.0%} of the image</small>"
        rows += f"<li><i style='background:{color}'></i>{size} px: <b>{count:,}</b> {covers}</li>"
    picture = _data_address(Image.fromarray(colors), "PNG")
    fine = float((sizes == min(COLORS)).mean())
    return (
        f"<div class='map'><img src='{picture}' alt='Map of the token sizes: {fine:.0%} of the image is read finely'>"
        f"<div><p>Read finely: <b>{fine:.0%}</b> of the image</p><div class='bar' aria-hidden='true'>{bar}</div>"
        f"<ul class='legend'>{rows}</ul></div></div>"
    )


def detections_html(answer: Answer, dense: Answer | None = None) -> str:
    """Return the number of objects, the time of the model and the classes found; with `dense`, its figures beside."""

    def beside(value: str) -> str:
        return f"dense {value}" if dense else ""

    counts = _class_counts(answer)
    every = _class_counts(dense) if dense else {}
    times = answer.ms, (dense or answer).ms
    figures = [
        ("objects", f"{sum(counts.values()):,}", beside(f"{sum(every.values()):,}")),
        ("encoder", _ms(times[0].encoder), beside(_ms(times[1].encoder))),
        ("head", _ms(times[0].head), beside(_ms(times[1].head))),
    ]
    names = [category.name for category in answer.categories or ()]
    classes = "".join(
        f"<li><i style='background:rgb{class_color(name)}'></i>{escape(name)} <b>{counts.get(name, 0):,}</b> "
        f"<small>{beside(f'{every.get(name, 0):,}')}</small></li>"
        for name in names
        if name in counts or name in every
    )
    return f"{_figures_html(figures)}<ul class='legend classes'>{classes}</ul>"


def _class_counts(answer: Answer) -> dict[str, int]:
    """Return the number of detections by class name, of the classes that were found."""
    names = {category.id: category.name for category in answer.categories or ()}
    found = [names[row.category_id] for row in answer.detections or ()]
    return {name: found.count(name) for name in sorted(set(found))}


def picture_html(path: str, about: str) -> str:
    """Return a picture that can fill the screen."""
    return _frame_html(f"<img src='{_file_address(path)}' alt='{escape(about, quote=True)}'>")


def comparison_html(left: tuple[str, str], right: tuple[str, str]) -> str:
    """Return two pictures, each a path and a description, one over the other with a movable line between them.

    The line is an ordinary range input over the whole picture, so that mouse, finger and arrow keys move it.
    """
    pictures = "".join(
        f"<img class='{side}' src='{_file_address(path)}' alt='{escape(about, quote=True)}'>"
        f"<span class='{side}' aria-hidden='true'>{escape(about)}</span>"
        for side, (path, about) in (("left", left), ("right", right))
    )
    described = escape(f"Line between {left[1]} and {right[1]}, in per cent from the left", quote=True)
    return _frame_html(
        f"{pictures}<i class='line'></i><input type='range' min='0' max='100' value='50' step='1' "
        f"aria-label='{described}' oninput=\"this.parentNode.style.setProperty('--cut', this.value + '%')\">"
    )


def _frame_html(content: str) -> str:
    full = "const f = this.parentNode; document.fullscreenElement ? document.exitFullscreen() : f.requestFullscreen()"
    return (
        f"<figure class='comparison'>{content}"
        f"<button type='button' aria-label='Full screen' title='Full screen' onclick=\"{full}\">"
        "<svg viewBox='0 0 16 16' aria-hidden='true'><path d='M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4'/></svg>"
        "</button></figure>"
    )


def _file_address(path: str) -> str:
    """Return where the page finds a file of the upload folder; relative, for servers behind a proxy."""
    return escape(f"gradio_api/file={quote(path)}", quote=True)


def _data_address(picture: Image.Image, kind: str) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _ms(spent: float | None) -> str:
    return f"{spent or 0:,.0f} ms"


def _three_digits(value: float) -> str:
    """Return a number with three significant digits, or a large one without decimals."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _figures_html(figures: list[tuple[str, str, str]]) -> str:
    cells = "".join(f"<dl><dt>{name}</dt><dd>{value}<small>{rest}</small></dd></dl>" for name, value, rest in figures)
    return f"<div class='tiles'>{cells}</div>"
