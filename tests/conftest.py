"""Shared by all tests: the VisDrone images and the starting checkpoint, where environment variables name them."""

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


@pytest.fixture(scope="session")
def deit() -> Path:
    folder = os.environ.get("VGTOK_WEIGHTS")
    if not folder:
        pytest.skip("VGTOK_WEIGHTS does not name the folder of starting checkpoints")
    return Path(folder) / "deit_tiny_patch16_224.safetensors"
