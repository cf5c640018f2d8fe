"""Tokenizers by name: the paper's and our own, as the arguments of `vgtok.Tokenizer` beside the budget."""

from typing import Any

from vgtok.errors import InputError
from vgtok.tokenize.tokenizer import SHIPPED_RANK

PRESETS: dict[str, dict[str, Any]] = {
    "single-pass": {"scorer": "tophat", "rank": 0.0, "splitter": "single_pass"},
    "top-hat": {"scorer": "tophat", "rank": 0.0, "splitter": "quadtree"},
    "top-hat+gate": {"scorer": "tophat", "rank": SHIPPED_RANK, "splitter": "quadtree"},
    "compact": {"scorer": "compact", "rank": 0.0, "splitter": "quadtree"},
}
"""Every tokenizer by name."""


def preset(name: str) -> dict[str, Any]:
    """The arguments of the tokenizer of that name."""
    if name not in PRESETS:
        raise InputError(f"tokenizer: '{name}' is not one of {', '.join(PRESETS)}")
    return PRESETS[name]
