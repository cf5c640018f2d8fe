"""Shared by all tests: the VisDrone frames, where VGTOK_VISDRONE names them."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def visdrone() -> Path:
    folder = os.environ.get("VGTOK_VISDRONE")
    if not folder:
        pytest.skip("VGTOK_VISDRONE does not name the VisDrone2019-DET val folder")
    return Path(folder)
