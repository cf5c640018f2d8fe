"""The log of a video's frames: numbered without a gap whatever a kill left, and never held in memory."""

import json
from pathlib import Path

import pytest

from vgtok import InputError
from vgtok.cli.video import LOG_SUFFIX, FrameLog, logged_frames

RECORD = {
    "tokens": 5,
    "retained": 0.4,
    "ms": {"tokenizer": 1.0, "encoder": 2.0, "head": 3.0},
    "objects": [{"name": "car", "label": 0, "category_id": 1, "bbox": [1.0, 2.0, 3.0, 4.0], "score": 0.5}],
}
HEADER = {"input": "a.mp4", "settings": {"budget": 0.4}}


def written(path: Path, count: int) -> FrameLog:
    log = FrameLog(path, HEADER)
    for number in range(count):
        log.add({"item": f"a.mp4#{number}", **RECORD})
    return log


def test_frames_come_back_in_order(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", 3)
    again = FrameLog(tmp_path / "a.jsonl", HEADER)
    assert again.count == log.count == 3
    again.add({"item": "a.mp4#3", **RECORD})
    assert [(entry["frame"], entry["item"]) for entry in again] == [(n, f"a.mp4#{n}") for n in range(4)]


@pytest.mark.parametrize(
    "rest",
    [
        b'{"frame": 3, "item',
        b'{"frame": 3}',
        b'{"frame": 3}\n',
        b'{"frame": 2}\n',
        b'{"frame": 4}\n',
        b"[]\n",
        b"\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        json.dumps({"frame": 3, "item": "x", **RECORD, "ms": {}}).encode() + b"\n",
        json.dumps({"frame": 3, "item": "x", **RECORD, "retained": float("nan")}).encode() + b"\n",
        json.dumps({"frame": 3, "item": "x", **RECORD, "objects": [{"bbox": [1, 2, 3]}]}).encode() + b"\n",
    ],
)
def test_what_is_not_the_next_whole_frame_is_cut_off(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "a.jsonl"
    written(path, 3)
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    log = FrameLog(path, HEADER)
    assert (log.count, path.read_bytes()) == (3, whole)
    log.add({"item": "next", **RECORD})
    assert [entry["frame"] for entry in FrameLog(path, HEADER)] == [0, 1, 2, 3]


def test_another_header_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path, 3)
    other = HEADER | {"stamp": [1, 2]}
    assert FrameLog(path, other).count == 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == [other]


def test_a_folder_gives_all_frames_of_the_same_settings(tmp_path: Path) -> None:
    for name in "ba":
        written(tmp_path / f"{name}{LOG_SUFFIX}", 2)
    other = FrameLog(tmp_path / f"c{LOG_SUFFIX}", {"settings": {"budget": 1.0}})
    other.add({"item": "c", **RECORD})
    (tmp_path / f"d{LOG_SUFFIX}").touch()
    assert [entry["frame"] for entry in logged_frames(tmp_path, HEADER["settings"])] == [0, 1, 0, 1]  # type: ignore[arg-type]


def test_a_log_that_was_removed_is_one_line(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", 2)
    log.path.unlink()
    with pytest.raises(InputError, match=r"a\.jsonl: cannot be read"):
        list(log)
