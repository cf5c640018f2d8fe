"""A server that is told to stop while it works: nothing is lost without a word, nothing is left behind."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import ask, connected, picture, served
from .test_endpoint import png


def test_what_runs_is_answered_what_waits_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    frame = png(picture(0))
    with ThreadPoolExecutor(2) as clients:
        # The shipped model takes a second or more; leaving the block stops the server and checks its code and errors.
        with served(errors=tmp_path / "errors.txt") as announced, connected(announced["address"]) as half_sent:
            half_sent.sendall(b"POST /api/detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nbegun")
            asked = [clients.submit(ask, announced["address"], "POST", "/api/detect", frame) for _ in range(2)]
            # Answered in turn: once these are, those before are at work or in line.
            for _ in range(5):
                assert ask(announced["address"], "GET", "/health")[0] == 200
        answers = sorted((answer.result() for answer in asked), key=lambda answer: answer[0])
    assert [status for status, _, _ in answers] == [200, 503]
    assert json.loads(answers[0][2])["detections"] is not None
    assert json.loads(answers[1][2])["error"].startswith("server: stopping")
    assert list((tmp_path / "tmp").glob("vgtok-serve-*")) == []
