"""Take the pictures of the page that the guide shows: `make screenshots`, or this module with another model's name."""

import sys
import tempfile
from pathlib import Path

from .browser import browser, find_chromium
from .conftest import served

IMAGES = Path(__file__).parents[2] / "docs" / "images"


SCREENS = {"serve.jpg": (1440, 960), "serve-phone.jpg": (390, 2140)}
"""Width and height of each picture: a desk, and a phone scrolled to its end."""

OPAQUE = """(() => { for (let part = document.querySelector('.comparison'); part; part = part.parentElement)
  if (getComputedStyle(part).opacity < 1) return false;
  return true })()"""
"""Whether the picture is shown in full: the framework fades a part while it changes."""


def main(arguments: list[str]) -> None:
    """Open the page at a link that compares with dense, once per screen, and write what is seen."""
    program = find_chromium()
    if program is None:
        sys.exit("screenshots: needs chromium on the path")
    with (
        tempfile.TemporaryDirectory() as folder,
        served(*arguments, errors=Path(folder) / "errors.txt") as announced,
    ):
        for name, size in SCREENS.items():
            with browser(program, *size) as tab:
                tab.open(f"{announced['address']}/?dense=1&sample=parking")
                tab.wait("document.querySelector('#tokens .tiles') && document.querySelector('.comparison input')")
                tab.wait("[...document.images].every(image => image.complete && image.naturalWidth)")
                tab.wait(OPAQUE)
                tab.screenshot(IMAGES / name)


if __name__ == "__main__":
    main(sys.argv[1:])
