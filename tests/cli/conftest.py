"""Shared by the tests of the command line: the command itself, run in this process, and a small model to run it on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.detect.small_models import small_detector
from vgtok.cli import main
from vgtok.detect.detector import Detector
from vgtok.detect.saving import save_detector

Run = Callable[..., tuple[int, str, str]]
"""The words of a command line to its exit code, standard output and standard error."""


@pytest.fixture
def vgtok(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["vgtok", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main.run()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run


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
