"""The folders of runs: one per command, found again, never shared."""

import json
import threading
from pathlib import Path

import pytest

from vgtok.errors import InputError
from vgtok.runs import RUN_FILE, run_folder


def test_equal_commands_share_a_folder_and_others_get_the_next_number(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    first = run_folder("detect", ["/a.jpg"], {"budget": 0.4, "canvas": (2, 1)}, runs)
    assert first == runs / "detect"
    assert json.loads((first / RUN_FILE).read_text())["settings"] == {"budget": 0.4, "canvas": [2, 1]}
    assert run_folder("detect", ["/a.jpg"], {"budget": 0.2, "canvas": (2, 1)}, runs) == runs / "detect-2"
    assert run_folder("detect", ["/b.jpg"], {"budget": 0.4, "canvas": (2, 1)}, runs) == runs / "detect-3"
    assert run_folder("detect", ["/a.jpg"], {"budget": 0.4, "canvas": (2, 1)}, runs) == first
    assert run_folder("tokenize", ["/a.jpg"], {}, runs) == runs / "tokenize"
    assert sorted(path.name for path in runs.iterdir()) == ["detect", "detect-2", "detect-3", "tokenize"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "detect").mkdir()
    (tmp_path / "detect" / "mine.txt").write_text("mine")
    (tmp_path / "detect-2").write_text("a file")
    (tmp_path / "detect-3").mkdir()
    (tmp_path / "detect-3" / RUN_FILE).write_text('{"verb": "det')
    assert run_folder("detect", [], {}, tmp_path) == tmp_path / "detect-4"
    assert [path.name for path in (tmp_path / "detect").iterdir()] == ["mine.txt"]


def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    found: list[Path] = []
    barrier = threading.Barrier(8)

    def start(number: int) -> None:
        barrier.wait()
        found.append(run_folder("train", [], {"seed": number % 2}, tmp_path))

    threads = [threading.Thread(target=start, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert sorted(set(found)) == [tmp_path / "train", tmp_path / "train-2"]
    seeds = {json.loads((folder / RUN_FILE).read_text())["settings"]["seed"] for folder in set(found)}
    assert seeds == {0, 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train", "train-2"]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(InputError, match=r"runs: cannot be written .*; choose another --out"):
        run_folder("detect", [], {}, tmp_path / "runs")
