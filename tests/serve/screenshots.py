"""Take the picture of the page that the guide shows: `make screenshots`, or this module with another model's name."""

import sys
import tempfile
from pathlib import Path

from .browser import browser, find_chromium
from .conftest import served

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def main(arguments: list[str]) -> None:
    """Open the page as a visitor finds it and write what is seen."""
    program = find_chromium()
    if program is None:
        sys.exit("screenshots: needs chromium on the path")
    with (
        tempfile.TemporaryDirectory() as folder,
        served(*arguments, errors=Path(folder) / "errors.txt") as announced,
        browser(program, 1440, 760) as tab,
    ):
        tab.open(announced["address"])
        tab.wait("document.querySelector('#tokens .tiles') && document.querySelector('#found .tiles, #found .hint')")
        tab.wait("[...document.querySelectorAll('.frame img')].every(image => image.complete)")
        tab.screenshot(IMAGES / "serve.jpg")


if __name__ == "__main__":
    main(sys.argv[1:])
