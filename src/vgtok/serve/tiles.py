"""Figures of an answer as small HTML tiles, and the page's heading and notices; all text is escaped."""

from html import escape

from vgtok.serve.answer import Answer
from vgtok.show.overlay import COLOURS


def heading(model: str | None) -> str:
    """Title, what to do in one line, and the model that answers."""
    named = f"<span class='model'>{escape(model)}</span>" if model else "<span class='model'>tokens only</span>"
    return (
        f"<header><h1>VGTok</h1><p>Read a frame with fewer tokens: fine where something is, coarse where nothing is. "
        f"Drop a frame, move the budget.</p>{named}</header>"
    )


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
        figures.append(("GFLOPs", f"{answer.gflops.used:,.0f}", f"of {answer.gflops.dense:,.0f} dense"))
    figures.append(("tokenizer", f"{answer.ms.tokenizer:,.0f} ms", ""))
    legend = "".join(
        f"<span><i style='background:rgb{colour}'></i>{size} px <b>{count.sizes[str(size)]:,}</b></span>"
        for size, colour in COLOURS.items()
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


def _tiles(figures: list[tuple[str, str, str]]) -> str:
    cells = "".join(f"<dl><dt>{name}</dt><dd>{value}<small>{rest}</small></dd></dl>" for name, value, rest in figures)
    return f"<div class='tiles'>{cells}</div>"
