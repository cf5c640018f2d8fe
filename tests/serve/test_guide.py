"""What the guide says of the endpoint, against a server that runs."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vgtok.detect.saving import load_detector
from vgtok.serve.service import Settings
from vgtok.tokenize.scores import SCORES

from .conftest import Running

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "serve.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return str(text)


def shape(value: Any) -> Any:
    """The keys of a document, whatever the values."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None


def test_the_example_runs_and_its_answer_looks_as_shown(
    server: Running, frame: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(frame.parent)
    names: dict[str, Any] = {}
    exec(block("python").replace("http://127.0.0.1:7860", server.address), names)
    assert shape(names["answer"]) == shape(json.loads(block("json")))
    expected = load_detector(server.model)(frame, budget=0.4, score_threshold=0.0)
    assert capsys.readouterr().out == f"{len(expected.tokens)} of 96 tokens, {len(expected)} objects\n"
    assert len(json.loads(Path("detections.json").read_text())) == len(expected)


def test_the_tables_name_what_there_is() -> None:
    for name in SCORES:
        assert re.search(rf"\| `scorer` .*\b{name}\b", GUIDE)
    for name, default in vars(Settings()).items():
        assert default is None
        assert f"| `{name}` | the model's |" in GUIDE


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_curl_line_is_right(server: Running, frame: Path) -> None:
    (line,) = re.findall(r"^curl .*$", GUIDE, re.MULTILINE)
    command = shlex.split(line.replace("http://127.0.0.1:7860", server.address))
    done = subprocess.run(
        [*command, "--silent", "--max-time", "120"], cwd=frame.parent, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["image"] == {"name": "frame.png", "width": 192, "height": 128}
