"""`vgtok serve` where it does not start."""

import socket
from pathlib import Path

import pytest

from vgtok.cli import main, serve
from vgtok.detect import loading as hub
from vgtok.errors import InputError


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["vgtok", "serve", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main.run()
    return int(stopped.value.code or 0)


def test_a_model_that_was_named_must_be_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for words in ((tmp_path / "nowhere",), ("--model", tmp_path / "nowhere")):
        assert run(monkeypatch, *words) == 1
        assert "is neither a folder" in capsys.readouterr().err
    assert run(monkeypatch, "vgtok-tiny", "--model", "other") == 1
    assert "--model: 'other' is named beside 'vgtok-tiny'; name one model" in capsys.readouterr().err
    monkeypatch.setattr(hub, "shipped_models", dict)
    with pytest.raises(InputError):
        serve.serve("vgtok-tiny")
    service = serve._service(None, 0.3, "auto", "float32")
    assert service.detector is None
    assert service.without.startswith("the model vgtok-tiny could not be loaded (it is not part of this installation)")


def test_a_model_is_named_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--model", "nowhere-at-all.pth") == 1
    assert "'nowhere-at-all.pth' is neither a folder" in capsys.readouterr().err
    assert run(monkeypatch, "one", "--model", "other") == 1
    assert "--model: 'other' is named beside 'one'; name one model" in " ".join(capsys.readouterr().err.split())


def test_a_taken_port_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from vgtok.serve.server import _listener

    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match="cannot listen at 127"),
        _listener("127.0.0.1", taken.getsockname()[1]),
    ):
        pytest.fail("the port is not free")
