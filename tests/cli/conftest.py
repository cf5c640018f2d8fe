"""Shared by the tests of the command line: the command itself, run in this process, and a small model to run it on."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.command_line import Run, runner
from tests.detect.small_models import small_detector
from vgtok.detect.detector import Detector
from vgtok.detect.saving import save_detector


@pytest.fixture
def vgtok(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    # A model this small only loses by several threads.
    torch.set_num_threads(1)
    folder = tmp_path / "small"
    save_detector(small_detector(), folder)
    return folder


def counting(monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> list[int]:
    """Count the images a detector sees, and stop it as a user would after so many."""
    calls: list[int] = []
    original = Detector.__call__

    def call(self: Detector, images: Any, **settings: Any) -> Any:
        if stop_after is not None and len(calls) == stop_after:
            raise KeyboardInterrupt
        calls.append(1)
        return original(self, images, **settings)

    monkeypatch.setattr(Detector, "__call__", call)
    return calls


@pytest.fixture(scope="session", autouse=True)
def precision_is_said() -> None:
    """Have the note on the precision of the processor said before any test looks at what is printed."""
    from vgtok.encode.precision import find_dtype

    find_dtype("auto", torch.device("cpu"))
