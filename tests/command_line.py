"""The command line as a user meets it, in this process."""

from collections.abc import Callable

import pytest

from vgtok.cli import main

Run = Callable[..., tuple[int, str, str]]
"""The words of a command line to its exit code, standard output and standard error."""


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """What runs one command line after another."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["vgtok", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main.run()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run
