"""Examples in docstrings as console sessions: prompts would otherwise read as nested quotations in Markdown."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)
_DIRECTIVE = re.compile(r"\s*# doctest: .*$", re.MULTILINE)


class DocstringExamples(griffe.Extension):
    """Puts a fence around each run of lines that starts with a prompt."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of every module, class and function as it is read."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    return f"```pycon\n{_DIRECTIVE.sub('', example[0]).rstrip()}\n```\n"
