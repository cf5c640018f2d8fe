"""Shared by all tests: the VisDrone frames, where VGTOK_VISDRONE names them."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Where cores are shared, how long an example took says nothing about the code.
settings.register_profile("vgtok", deadline=None)
settings.load_profile("vgtok")


@pytest.fixture(scope="session")
def visdrone() -> Path:
    folder = os.environ.get("VGTOK_VISDRONE")
    if not folder:
        pytest.skip("VGTOK_VISDRONE does not name the VisDrone2019-DET val folder")
    return Path(folder)
