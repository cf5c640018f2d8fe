"""The released starting checkpoint, where VGTOK_WEIGHTS names its folder."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def deit() -> Path:
    folder = os.environ.get("VGTOK_WEIGHTS")
    if not folder:
        pytest.skip("VGTOK_WEIGHTS does not name the folder of starting checkpoints")
    return Path(folder) / "deit_tiny_patch16_224.safetensors"
