"""Examples with prompts, which the tests run as doctests, are highlighted as the console sessions they are."""

import re
from typing import Any

_SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)
_LAST_LINE = re.compile(r"\n\n```$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name the lexer, and drop the blank line a doctest needs after its last answer."""
    return _LAST_LINE.sub("\n```", _SESSION.sub("```pycon\n", markdown))
