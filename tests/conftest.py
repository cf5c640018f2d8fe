"""Shared by all tests: the VisDrone frames, where VGTOK_VISDRONE names them."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Where cores are shared, how long an example took says nothing about the code.
settings.register_profile("vgtok", deadline=None)
settings.load_profile("vgtok")

SLOW = (
    "tests/bench",
    "tests/cli",
    "tests/docs",
    "tests/export",
    "tests/fuzz",
    "tests/hosts",
    "tests/serve",
    "tests/study",
    "tests/train",
    "tests/encode/test_flops.py",
    "tests/evaluate/test_protocols.py::test_visdrone_equals_the_brute_force_matcher",
    "tests/tokenize/test_images_hostile.py",
    "tests/tokenize/test_images.py::test_frames_beyond_pillows_own_limit_are_read",
)
"""Folders, files and tests that `make quick` leaves out, by how their names start: those of more than two seconds."""

QUICK = ("tests/docs/test_claims.py", "tests/docs/test_prose.py", "tests/train/test_recipe.py")
"""What is quick all the same inside a slow folder."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests."""
    for item in items:
        if item.nodeid.startswith(SLOW) and not item.nodeid.startswith(QUICK):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def visdrone() -> Path:
    folder = os.environ.get("VGTOK_VISDRONE")
    if not folder:
        pytest.skip("VGTOK_VISDRONE does not name the VisDrone2019-DET val folder")
    return Path(folder)
