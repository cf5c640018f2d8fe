"""The devices a test runs on: the CPU everywhere, and a GPU under `pytest -m gpu`; the same body for both."""

import pytest

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))

HALVES = (
    ("cpu", "bfloat16"),
    ("cpu", "float16"),
    pytest.param("cuda", "bfloat16", marks=pytest.mark.gpu),
    pytest.param("cuda", "float16", marks=pytest.mark.gpu),
)
"""Devices with each of their half precisions."""
