"""The walk of one image: the page names the modules a real call passes, at most 30, and the call never goes back."""

import re
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import pytest
from PIL import Image

from tests.detect.small_models import small_detector
from tests.docs.pages import ROOT
from vgtok.data import render_scene
from vgtok.detect import Detector, Head

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALK = re.findall(r"^\| \d+ \| [^|]+ \| `([\w.]+)` \|", PAGE, re.MULTILINE)

HEADS: tuple[Head, ...] = ("query", "atss")

VALUES = ("vgtok.tokenize.canvas", "vgtok.tokenize.geometry", "vgtok.tokenize.tokens", "vgtok.detect.result")
"""What travels along: tokens know their geometry, and the canvas maps results back to the image."""

EVERYWHERE = ("vgtok.encode.plain",)
"""What every stage asks: in which form its modules run."""

CONDUCTORS = ("vgtok.detect.detector", "vgtok.detect.model")
"""What calls the stages one after the other."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By head, the module of every call of the package while one image is detected in and drawn."""
    folder = tmp_path_factory.mktemp("walk")
    photo = folder / "photo.jpg"
    Image.fromarray(render_scene(seed=3, width=320, height=192).pixels).save(photo)
    detector = small_detector()
    return {head: traced(partial(detect, detector, photo, head)) for head in HEADS}


def detect(detector: Detector, photo: Path, head: Head) -> None:
    detector(photo, budget=0.4, head=head).save(photo.with_name("found.png"))


def traced(work: Callable[[], object]) -> list[str]:
    """The module of every call in `work`, in order."""
    modules: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        # The body of a module runs when it is imported, which is no step of the walk.
        if event == "call" and name.startswith("vgtok.") and frame.f_code.co_name != "<module>":
            modules.append(name)

    # Lazy imports happen in a first, unwatched round.
    work()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return modules


def test_every_module_of_the_page_exists() -> None:
    assert len(WALK) > 20
    assert len(set(WALK)) == len(WALK)
    named = re.findall(r"`(vgtok\.[a-z_.]+)`", PAGE)
    assert all(find_spec(name) is not None for name in named), named


def test_one_image_passes_at_most_thirty_modules(calls: dict[str, list[str]]) -> None:
    for head, modules in calls.items():
        assert len(set(modules)) <= 30, head


def test_the_page_names_the_modules_of_both_heads_and_no_others(calls: dict[str, list[str]]) -> None:
    assert {module for modules in calls.values() for module in modules} == set(WALK)


def test_an_image_never_goes_back(calls: dict[str, list[str]]) -> None:
    for head, modules in calls.items():
        stages = [stage(module) for module in modules if module not in (*CONDUCTORS, *VALUES, *EVERYWHERE)]
        assert stages == sorted(stages), head


def stage(module: str) -> int:
    """Tokenize, encode, detect, draw: the order of the packages."""
    return {"tokenize": 0, "encode": 1, "detect": 2, "overlap": 2, "show": 3, "files": 3}[module.split(".")[1]]
