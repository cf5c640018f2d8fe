"""The model card of a saved detector: its config.json in, the README.md the hub shows out."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from vgtok.detect.config import DetectorConfig
from vgtok.detect.detector import DEFAULT_BUDGET
from vgtok.detect.model import CoDetr

_TAGS = ("vgtok", "co-detr", "object-detection", "small-object-detection", "aerial-imagery")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")


def model_card(document: Mapping[str, Any], name: str) -> str:
    """Markdown with the hub's front matter for the config.json of a detector that loads by `name`."""
    config = DetectorConfig.from_dict(document["config"])
    budget = document.get("budget", DEFAULT_BUDGET)
    sections = [
        _front_matter(str(document["licence"])),
        f"# {name.rpartition('/')[2]}",
        f"A Co-DETR object detector that reads each frame at the token budget you name: {config.classes} classes, "
        f"encoder {config.encoder}, packed 16, 32 and 64 px tokens.",
        "## Use it",
        "```sh\npip install 'vgtok[detect]'\n```",
        f"```python\nimport vgtok\n\ndetector = vgtok.load({json.dumps(name)})\n"
        f'result = detector("frame.jpg", budget={budget:.2f})   # .boxes .scores .names\n'
        'result.plot().save("found.png")\n```',
        "## What it is",
        _table([{"property": key, "value": value} for key, value in _properties(config, document).items()]),
        "## Classes",
        ", ".join(config.names),
    ]
    if document.get("evaluations"):
        sections += ["## What was measured", _table(document["evaluations"])]
    sections += ["## Licence", str(document["licence"]) or "Not stated; ask whoever trained it before you rely on it."]
    return "\n\n".join(sections) + "\n"


def _front_matter(licence: str) -> str:
    # The hub knows licences by identifier; a sentence is none, and stands at the end of the card.
    known = licence.lower() if _IDENTIFIER.fullmatch(licence) else "other" if licence else "unknown"
    tags = "\n".join(f"- {tag}" for tag in _TAGS)
    lines = ["library_name: vgtok", "pipeline_tag: object-detection", f"license: {known}", f"tags:\n{tags}"]
    return "\n".join(["---", *lines, "---"])


def _properties(config: DetectorConfig, document: Mapping[str, Any]) -> dict[str, str]:
    with torch.device("meta"):
        parts = CoDetr(config).parts()
    preprocessing = document["preprocessing"]
    canvas = preprocessing["canvas"]
    sizes = ", ".join(f"{part.replace('_', ' ')} {count / 1e6:.2f}M" for part, count in parts.items() if count)
    return {
        "parameters": f"{sum(parts.values()) / 1e6:.2f}M ({sizes})",
        "queries": str(config.queries),
        "head that predicts": str(document.get("head", "query")),
        "strides": ", ".join(map(str, config.strides)),
        "auxiliary heads": ", ".join(config.auxiliary) or "none, for inference only",
        "canvas": "the image's own size" if canvas == "native" else f"fits inside {canvas[0]} x {canvas[1]} px",
        "pixels": f"{preprocessing['colour']}, mean {preprocessing['mean']}, std {preprocessing['std']}",
        "retention table": "yes" if document.get("retention") else "no",
        "sha256 of the weights": document["weights"]["sha256"],
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as Markdown, with every column any of them has."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns), *([_cell(row.get(column, "")) for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
