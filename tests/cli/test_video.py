"""Videos: read and written as streams, logged frame by frame, and resumed after any kill without a gap."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from tests.cli.conftest import counting
from tests.command_line import Run
from tests.detect.small_models import small_detector
from vgtok.cli.detections import Job, Output, is_record
from vgtok.cli.video import LOG_SUFFIX, count_frames, frame_rate, logged_frames, read_video, write_video
from vgtok.detect.detector import Detector
from vgtok.detect.saving import save_detector
from vgtok.errors import InputError
from vgtok.journal import Journal

Picture = np.ndarray[Any, np.dtype[np.uint8]]


def pictures(count: int, height: int = 48, width: int = 64) -> Iterator[Picture]:
    """Frames ten grey levels apart; noise makes them take room in the file."""
    noise = np.random.default_rng(0).integers(0, 40, (height, width, 3), dtype=np.uint8)
    return (noise + np.uint8(10 * number) for number in range(count))


def numbers(path: Path, start: int = 0) -> list[tuple[int, int]]:
    """Number of every frame, as it is counted and as its pixels tell."""
    return [(frame.number, round((frame.pixels.mean() - 19.5) / 10)) for frame in read_video(path, start)]


def write_avi(path: Path, count: int) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    for picture in pictures(count):
        writer.write(picture)
    writer.release()


def test_reading_starts_at_any_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    write_avi(path, 6)
    assert (count_frames(path), frame_rate(path)) == (6, 10.0)
    assert numbers(path) == [(number, number) for number in range(6)]
    assert numbers(path, 4) == [(4, 4), (5, 5)]
    assert numbers(path, 6) == []
    assert [frame.seconds for frame in read_video(path)] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])


def test_a_video_cut_short_is_told_after_its_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    write_avi(path, 20)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    frames = read_video(path)
    assert next(frames).number == 0
    with pytest.raises(InputError, match=r"a.avi: ends after \d+ of 20 frames"):
        list(frames)


@pytest.mark.parametrize("content", [b"", b"not a video"])
def test_what_is_no_video_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.mp4"
    with pytest.raises(InputError, match="no such file"):
        frame_rate(path)
    path.write_bytes(content)
    assert count_frames(path) == 0
    with pytest.raises(InputError, match=r"a.mp4: not a video that can be read"):
        frame_rate(path)


def test_a_video_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    write_video(path, pictures(12, 49, 65), 29.97)
    assert numbers(path) == [(number, number) for number in range(12)]
    assert frame_rate(path) == pytest.approx(29.97, abs=1e-3)
    assert next(read_video(path)).pixels.shape == (48, 64, 3)
    assert list(tmp_path.iterdir()) == [path]


def test_a_video_that_cannot_be_whole_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"

    def stopped() -> Iterator[Picture]:
        yield from pictures(3)
        raise KeyboardInterrupt

    def growing() -> Iterator[Picture]:
        yield from pictures(3)
        yield from pictures(3, 96, 128)

    with pytest.raises(KeyboardInterrupt):
        write_video(path, stopped(), 10)
    with pytest.raises(InputError, match="could not be written whole"):
        write_video(path, growing(), 10)
    with pytest.raises(InputError, match="no video of 64 x 48 px can be written there"):
        write_video(tmp_path / "nowhere" / "a.mp4", pictures(1), 10)
    assert list(tmp_path.iterdir()) == []


RECORD = {
    "tokens": 5,
    "retained": 0.4,
    "ms": {"tokenizer": 1.0, "encoder": 2.0, "head": 3.0},
    "objects": [{"name": "car", "label": 0, "category_id": 1, "bbox": [1.0, 2.0, 3.0, 4.0], "score": 0.5}],
}
HEADER: dict[str, Any] = {"input": "a.mp4", "settings": {"budget": 0.4}}


def opened(path: Path, header: dict[str, Any] = HEADER) -> Journal:
    return Journal(path, header, is_record, number_field="frame", restart=True)


def written(path: Path, count: int) -> Journal:
    log = opened(path)
    for number in range(count):
        log.add(f"a.mp4#{number}", RECORD)
    return log


def test_frames_come_back_in_order(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", 3)
    again = opened(tmp_path / "a.jsonl")
    assert len(again.entries) == len(log.entries) == 3
    again.add("a.mp4#3", RECORD)
    assert [(entry["frame"], entry["item"]) for entry in again.entries.values()] == [
        (n, f"a.mp4#{n}") for n in range(4)
    ]


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
    log = opened(path)
    assert (len(log.entries), path.read_bytes()) == (3, whole)
    log.add("next", RECORD)
    assert [entry["frame"] for entry in opened(path).entries.values()] == [0, 1, 2, 3]


def test_another_header_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path, 3)
    other = HEADER | {"stamp": [1, 2]}
    assert len(opened(path, other).entries) == 0
    assert [json.loads(line) for line in path.read_text().splitlines()] == [other]


def test_a_folder_gives_all_frames_of_the_same_settings(tmp_path: Path) -> None:
    for name in "ba":
        written(tmp_path / f"{name}{LOG_SUFFIX}", 2)
    other = opened(tmp_path / f"c{LOG_SUFFIX}", {"settings": {"budget": 1.0}})
    other.add("c", RECORD)
    (tmp_path / f"d{LOG_SUFFIX}").touch()
    assert [entry["frame"] for entry in logged_frames(tmp_path, HEADER["settings"])] == [0, 1, 0, 1]


def test_a_log_that_was_removed_is_one_line(tmp_path: Path) -> None:
    log = written(tmp_path / "a.jsonl", 2)
    log.path.unlink()
    with pytest.raises(InputError, match=r"a\.jsonl: cannot be read"):
        list(log.entries.values())


COMMAND = [sys.executable, "-c", "from vgtok.cli.main import run; run()"]
SIDE = 32
"""Pixels of the blocks that spell a frame's number in binary along the bottom."""


def write_clip(path: Path, count: int, height: int = 192, width: int = 320) -> Path:
    """Grey frames with a patch of noise that wanders, and their number in black and white."""
    random = np.random.default_rng(0)

    def frames() -> Iterator[Any]:
        for number in range(count):
            pixels = np.full((height, width, 3), 90, dtype=np.uint8)
            left = 4 * number % (width - 40)
            pixels[20:60, left : left + 40] = random.integers(0, 256, (40, 40, 3))
            for bit in range(6):
                pixels[-SIDE:, bit * SIDE : (bit + 1) * SIDE] = 255 * (number >> bit & 1)
            yield pixels

    write_video(path, frames(), 25)
    return path


def shown(path: Path) -> list[int]:
    """The numbers of a video's frames as its pixels tell: outlines cover too little to move a block's median."""
    return [
        sum(1 << bit for bit in range(6) if np.median(frame.pixels[-SIDE:, bit * SIDE : (bit + 1) * SIDE]) > 128)
        for frame in read_video(path)
    ]


def nearest(path: Path, source: Path) -> list[int]:
    """The frame of the source that each frame of an annotated video is nearest to, whatever is drawn over it."""
    known = np.array([frame.pixels[::2, ::2] for frame in read_video(source)]).astype(np.int16)
    return [int(np.abs(known - frame.pixels[::2, ::2]).mean(axis=(1, 2, 3)).argmin()) for frame in read_video(path)]


def started(clip: Path, model: Path, out: Path) -> subprocess.Popen[str]:
    settings = ("--score-threshold", "0.001", "--dtype", "float32", "--json")
    command = [*COMMAND, "detect", clip, "--model", model, "--out", out, *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def logged(out: Path, name: str = "clip") -> list[dict[str, Any]]:
    """The frames of a log, whole lines only."""
    path = out / f"{name}.frames.jsonl"
    lines = path.read_bytes().split(b"\n")[1:-1] if path.is_file() else []
    return [json.loads(line) for line in lines]


def kill_after(frames: int, process: subprocess.Popen[str], out: Path) -> int:
    """Kill -9 once so many frames are logged; returns how many there are then."""
    while len(logged(out)) < frames:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    return len(logged(out))


def test_kill_9_loses_and_doubles_no_frame(model: Path, tmp_path: Path) -> None:
    clip, out = write_clip(tmp_path / "clip.mp4", 60), tmp_path / "out"
    first = kill_after(6, started(clip, model, out), out)
    assert 6 <= first < 60
    # As if the kill had come in the middle of a line.
    with (out / "clip.frames.jsonl").open("a") as log:
        log.write(f'{{"frame": {first}, "sec')
    second = kill_after(first + 6, started(clip, model, out), out)
    assert first + 6 <= second < 60
    assert not (out / "clip.detections.mp4").exists()
    process = started(clip, model, out)
    printed, errors = process.communicate()
    assert process.returncode == 0, errors
    (row,) = json.loads(printed)["videos"]
    assert (row["frames"], row["resumed"]) == (60, second)

    whole = tmp_path / "whole"
    process = started(clip, model, whole)
    process.communicate()
    assert process.returncode == 0
    # Timings apart, the log is that of a run nobody disturbed.
    assert [frame["frame"] for frame in logged(out)] == list(range(60))
    for stopped, undisturbed in zip(logged(out), logged(whole), strict=True):
        assert stopped | {"ms": 0} == undisturbed | {"ms": 0}
    assert sum(len(frame["objects"]) for frame in logged(out)) == row["detections"] > 60
    assert nearest(out / "clip.detections.mp4", clip) == list(range(60))
    assert sorted(file.name for file in out.iterdir()) == [
        "clip.detections.mp4", "clip.frames.jsonl", "detections.json", "journal.jsonl",
    ]  # fmt: skip


def test_memory_does_not_grow_with_the_clip(model: Path, tmp_path: Path) -> None:
    """Peak memory of the whole process on 8 and on 48 frames of 1.6 MB: forty more held would be 62 MB."""
    peaks = []
    for count in (8, 48):
        clip = write_clip(tmp_path / f"clip{count}.mp4", count, 540, 960)
        process = started(clip, model, tmp_path / f"out{count}")
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0
        peaks.append(usage.ru_maxrss / 1024)
        process.returncode = 0
        process.communicate()
        assert len(logged(tmp_path / f"out{count}", f"clip{count}")) == count
    assert peaks[1] - peaks[0] < 15, peaks


def test_a_stop_while_drawing_costs_the_drawing_alone(
    vgtok: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, out = write_clip(tmp_path / "clip.mp4", 6), tmp_path / "out"
    arguments = (
        "detect",
        clip,
        "--model",
        model,
        "--out",
        out,
        "--write",
        "picture",
        "--write",
        "tokens",
        "--write",
        "csv",
    )
    calls = counting(monkeypatch)
    drawn: list[int] = []
    original = Job.draw

    def draw(self: Job, pixels: Any, entry: Any, kind: Output, *details: Any) -> Any:
        if kind is Output.tokens:
            if len(drawn) == 2:
                raise KeyboardInterrupt
            drawn.append(1)
        return original(self, pixels, entry, kind, *details)

    with monkeypatch.context() as patched:
        patched.setattr(Job, "draw", draw)
        assert vgtok(*arguments)[0] == 130
    assert shown(out / "clip.detections.mp4") == list(range(6))
    assert not (out / "clip.tokens.mp4").exists()
    code, _, err = vgtok(*arguments)
    assert (code, len(calls)) == (0, 6), err
    assert len(list(read_video(out / "clip.tokens.mp4"))) == 6
    table = list(csv.DictReader((out / "detections.csv").read_text().splitlines()))
    assert len(table) == sum(len(frame["objects"]) for frame in logged(out))


def test_a_frame_that_fails_is_where_the_next_run_begins(
    vgtok: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, out = write_clip(tmp_path / "clip.mp4", 6), tmp_path / "out"
    arguments = ("detect", clip, "--model", model, "--out", out)
    calls: list[int] = []
    original = Detector.__call__

    def call(self: Detector, images: Any, **settings: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("out of memory")
        return original(self, images, **settings)

    monkeypatch.setattr(Detector, "__call__", call)
    code, _, err = vgtok(*arguments)
    assert (code, err.strip()) == (1, "error: clip.mp4#000003: out of memory; run again to resume from there")
    assert shown(out / "clip.detections.mp4") == [0, 1, 2], "what is finished is drawn"
    assert vgtok(*arguments)[0] == 0
    assert len(calls) == 7
    assert shown(out / "clip.detections.mp4") == list(range(6))
    # Nothing is left to do, until the clip changes.
    before = (out / "clip.detections.mp4").stat()
    assert "6 frames were finished before this run" in vgtok(*arguments)[1]
    assert (out / "clip.detections.mp4").stat().st_mtime_ns == before.st_mtime_ns
    write_clip(clip, 4)
    assert vgtok(*arguments)[0] == 0
    assert [frame["frame"] for frame in logged(out)] == shown(out / "clip.detections.mp4") == [0, 1, 2, 3]


def test_damage_is_one_line(model: Path, tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.mp4", 12)
    data = clip.read_bytes()
    # An mp4 has its index at the end: without it nothing can be read.
    clip.write_bytes(data[: len(data) // 2])
    process = started(clip, model, tmp_path / "out")
    printed, errors = process.communicate()
    assert process.returncode == 1
    assert errors.strip() == f"error: {clip}: not a video that can be read; it is damaged or of an unknown kind"
    assert json.loads(printed)["videos"] == []


def test_a_clip_cut_short_keeps_the_frames_it_has(vgtok: Run, model: Path, tmp_path: Path) -> None:
    clip, out = write_clip(tmp_path / "clip.mkv", 20), tmp_path / "out"
    data = clip.read_bytes()
    clip.write_bytes(data[: len(data) // 2])
    code, _, err = vgtok("detect", clip, "--model", model, "--out", out)
    assert code == 1
    assert len(err.strip().splitlines()) == 1
    assert "of 20 frames; it is damaged or cut short" in err
    count = len(logged(out))
    assert 0 < count < 18
    assert shown(out / "clip.detections.mp4") == list(range(count))


def test_a_camera_is_recorded_and_then_a_video_like_any_other(
    vgtok: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_avi(tmp_path / "seen.avi", 5)
    monkeypatch.chdir(tmp_path)
    original = cv2.VideoCapture
    # A file in the place of the device: what it gives is read as a camera is, until it ends.
    monkeypatch.setattr(cv2, "VideoCapture", lambda source: original("seen.avi" if source == 0 else source))
    for number in (1, 2):
        code, printed, err = vgtok("detect", "0", "--model", model, "--seconds", 30, "--json")
        assert code == 0, err
        document = json.loads(printed)
        # What a camera shows is never the same again.
        assert document["out"] == str(Path("vgtok-runs") / ("detect" if number == 1 else "detect-2"))
        assert [(clip["input"], clip["frames"], clip["resumed"]) for clip in document["videos"]] == [
            ("camera-0.mp4", 5, 0)
        ]
    assert frame_rate(tmp_path / "vgtok-runs" / "detect" / "camera-0.mp4") == 10.0


def test_a_camera_that_is_not_there_is_one_line(vgtok: Run, model: Path, tmp_path: Path) -> None:
    code, _, err = vgtok("detect", "93", "--model", model, "--out", tmp_path / "out")
    assert code == 1
    assert err.strip() == "error: 93: no camera of that number can be opened here; give a video file instead"
    assert not (tmp_path / "out").exists()


def confident(model: Path) -> Path:
    """The small model with scores around the thresholds of a tracker."""
    detector = small_detector()
    with torch.no_grad():
        for layer in detector.model.query_head.cls_branches:
            layer.bias += 3.3
    save_detector(detector, model)
    return model


def test_tracks_are_in_every_output_and_the_same_after_a_stop(
    vgtok: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confident(model)
    clip = write_clip(tmp_path / "clip.mp4", 12)
    outputs = ("--write", "picture", "--write", "coco", "--write", "csv")
    arguments = ("detect", clip, "--model", model, "--track", *outputs, "--json", "--out")
    code, printed, err = vgtok(*arguments, tmp_path / "whole")
    assert code == 0, err
    (row,) = json.loads(printed)["videos"]
    whole = [found for frame in logged(tmp_path / "whole") for found in frame["objects"]]
    identities = [found["track"] for found in whole]
    assert max(identities) < len([number for number in identities if number]), "some are followed"
    assert all(found["score"] >= 0.3 or found["track"] for found in whole)
    assert any(found["score"] < 0.3 for found in whole), "weak detections continue tracks"
    assert sum(row["tracks"].values()) <= max(identities)
    table = list(csv.DictReader((tmp_path / "whole" / "detections.csv").read_text().splitlines()))
    assert [int(line["track"]) for line in table] == identities
    rows = json.loads((tmp_path / "whole" / "detections.json").read_text())
    assert [line["track_id"] for line in rows] == identities

    with monkeypatch.context() as patched:
        counting(patched, stop_after=5)
        assert vgtok(*arguments, tmp_path / "stopped")[0] == 130
    assert len(logged(tmp_path / "stopped")) == 5
    assert vgtok(*arguments, tmp_path / "stopped")[0] == 0
    for stopped, undisturbed in zip(logged(tmp_path / "stopped"), logged(tmp_path / "whole"), strict=True):
        assert stopped | {"ms": 0} == undisturbed | {"ms": 0}
    code, printed, _ = vgtok(*arguments[:-2], "--out", tmp_path / "whole")
    assert "clip.mp4, objects followed: " in printed


def test_tracking_needs_a_video(vgtok: Run, model: Path, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((64, 64, 3), dtype=np.uint8))
    code, _, err = vgtok("detect", tmp_path / "a.png", "--model", model, "--track", "--out", tmp_path / "out")
    assert code == 1
    assert "--track: follows objects through videos, and none of the inputs is one" in err


def test_a_video_stands_beside_the_dense_model(vgtok: Run, model: Path, tmp_path: Path) -> None:
    clip = write_clip(tmp_path / "clip.mp4", 2)
    code, _, err = vgtok("detect", clip, "--model", model, "--write", "compare", "--out", tmp_path / "out")
    assert code == 0, err
    frames = list(read_video(tmp_path / "out" / "clip.compare.mp4"))
    assert len(frames) == 2
    assert frames[0].pixels.shape[1] >= 2 * 320
