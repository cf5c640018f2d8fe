"""Figures of an answer as small HTML tiles, and the page's heading and notices; all text is escaped."""

from html import escape

from vgtok.serve.service import Answer
from vgtok.show.overlay import COLORS


def heading(model: str | None) -> str:
    """Title, what to do in one line, and the model that answers."""
    named = f"<span class='model'>{escape(model)}</span>" if model else "<span class='model'>tokens only</span>"
    return (
        f"<header><h1>VGTok</h1><p>Read a frame with fewer tokens: fine where something is, coarse where nothing is. "
        f"Drop a frame, move the budget.</p>{named}</header>"
    )


def caption(text: str, about: str = "") -> str:
    """What stands over a picture: its title, and what it was made from."""
    return f"<p class='caption'>{escape(text)}<small>{escape(about)}</small></p>"


def tokens_caption(answer: Answer) -> str:
    """The frame that is shown."""
    return caption("Tokens", f"{answer.image.name}, {answer.image.width} x {answer.image.height}")


def found_caption(answer: Answer) -> str:
    """The tokens these detections come from: they may lag behind a slider that is moving."""
    return caption("Detections", f"from {answer.tokens.kept:,} tokens")


def notice(sentence: str) -> str:
    """The one sentence that says what is wrong."""
    return f"<p class='notice' role='alert'>{escape(sentence)}</p>"


def hint(sentence: str) -> str:
    """A sentence about something that is not wrong."""
    return f"<p class='hint'>{escape(sentence[:1].upper() + sentence[1:])}.</p>"


def tokens(answer: Answer) -> str:
    """Tokens kept, by size, and what they cost."""
    count = answer.tokens
    figures = [
        ("tokens kept", f"{count.kept:,}", f"of {count.dense:,}"),
        ("share of dense", f"{count.share:.1%}", ""),
    ]
    if answer.gflops is not None:
        figures.append(("GFLOPs", _rounded(answer.gflops.used), f"of {_rounded(answer.gflops.dense)} dense"))
    figures.append(("tokenizer", f"{answer.ms.tokenizer:,.0f} ms", ""))
    legend = "".join(
        f"<span><i style='background:rgb{color}'></i>{size} px: <b>{count.sizes[str(size)]:,}</b></span>"
        for size, color in COLORS.items()
    )
    return f"{_tiles(figures)}<p class='legend'>{legend}</p>"


def found(answer: Answer) -> str:
    """Detections and the time the model took."""
    assert answer.detections is not None
    return _tiles(
        [
            ("objects", f"{len(answer.detections):,}", ""),
            ("encoder", f"{answer.ms.encoder or 0:,.0f} ms", ""),
            ("head", f"{answer.ms.head or 0:,.0f} ms", ""),
        ]
    )


def _rounded(value: float) -> str:
    """Three digits, or all of a whole number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _tiles(figures: list[tuple[str, str, str]]) -> str:
    cells = "".join(f"<dl><dt>{name}</dt><dd>{value}<small>{rest}</small></dd></dl>" for name, value, rest in figures)
    return f"<div class='tiles'>{cells}</div>"
