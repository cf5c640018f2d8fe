"""A server as a user starts one, with a model small enough for a test."""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from tests.detect.small_models import small_detector
from vgtok.detect.saving import save_detector

SECRET = b"nobody may read this"


@dataclass(frozen=True)
class Running:
    """Where a server answers, the model it has, and a folder of frames to send."""

    address: str
    model: Path


@contextmanager
def served(*arguments: object, errors: Path, shipped: bool = True, warning: str = "") -> Iterator[dict[str, Any]]:
    """Run `vgtok serve`, if need be as if the package had no models; gives what it announced.

    What it prints as errors must be nothing but the warning.
    """
    without = "" if shipped else "from vgtok.detect import loading; loading.shipped_models = dict; "
    command = [sys.executable, "-c", f"{without}from vgtok.cli.main import run; run()", "serve"]
    # One thread: what these models compute only loses by more. In float32, as the Python API they are held against.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with errors.open("w") as log:
        process = subprocess.Popen(
            [*command, *map(str, arguments), "--port", "0", "--json", "--dtype", "float32"],
            stdout=subprocess.PIPE, stderr=log, text=True, env=environment,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, errors.read_text()
            yield json.loads(line)
        finally:
            process.terminate()
            assert process.wait(timeout=120) == 130
            process.stdout.close()
    assert errors.read_text().startswith(warning)
    assert len(errors.read_text().splitlines()) == bool(warning)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("serve")
    save_detector(small_detector(), folder / "small")
    limits = ("--max-megabytes", 2, "--max-megapixels", 4, "--score-threshold", 0)
    with served(folder / "small", *limits, errors=folder / "errors.txt") as announced:
        assert announced["model"] == "small"
        yield Running(announced["address"], folder / "small")


@dataclass(frozen=True)
class Alone:
    """A server without a model, its upload folder, and a file it must not read."""

    address: str
    folder: Path
    secret: Path

    def uploaded(self) -> list[bytes]:
        return [path.read_bytes() for path in self.folder.rglob("*") if path.is_file()]


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    home = tmp_path_factory.mktemp("alone")
    (home / "secret.txt").write_bytes(SECRET)
    Image.fromarray(picture(3)).save(home / "secret.png")
    (home / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(home / "tmp"))
        with served("--max-megabytes", 1, errors=home / "errors.txt", shipped=False) as announced:
            (folder,) = (home / "tmp").glob("vgtok-serve-*")
            yield Alone(announced["address"], folder, home / "secret.txt")
    assert list((home / "tmp").glob("vgtok-serve-*")) == []


def picture(seed: int, width: int = 192, height: int = 128) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Noise in its right half only, so that there is something to read coarsely."""
    pixels = np.full((height, width, 3), 90, dtype=np.uint8)
    noise = np.random.default_rng(seed).integers(0, 256, (height, width - width // 2, 3), dtype=np.uint8)
    pixels[:, width // 2 :] = noise
    return pixels


@pytest.fixture
def frame(tmp_path: Path) -> Path:
    path = tmp_path / "frame.png"
    Image.fromarray(picture(0)).save(path)
    return path


def ask(
    address: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def connected(address: str) -> socket.socket:
    """A bare connection to a server."""
    place = urlsplit(address)
    return socket.create_connection((place.hostname, place.port or 80), timeout=60)
