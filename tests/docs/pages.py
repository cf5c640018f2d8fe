"""The pages of the documentation as the tests read them: fenced blocks, and the commands in prose."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[2]
SHELL = ("sh", "bash", "shell", "console")

_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`(vgtok\s[^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    language: str
    text: str

    @property
    def session(self) -> bool:
        """Whether it has prompts: pytest runs those as doctests."""
        return self.text.startswith(">>> ")

    @property
    def commands(self) -> list[list[str]]:
        """The words of every command of a shell block: continued lines joined, prompts and comments taken off."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def pages() -> list[Path]:
    """Everything a reader finds: the files at the root, the pages and the notebooks."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/notebooks/*.ipynb")]
    return sorted(found)


def text_of(page: Path) -> str:
    """The Markdown of a page; of a notebook, that between its code."""
    if page.suffix == ".md":
        return page.read_text()
    cells = nbformat.read(page, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def blocks(page: Path) -> list[Block]:
    return [Block(language, text) for language, text in _FENCE.findall(text_of(page))]


def spans(page: Path) -> list[str]:
    """Commands in prose, set as code: without fences, and on one line."""
    return [" ".join(span.split()) for span in _SPAN.findall(_FENCE.sub("", text_of(page)))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
