"""The verbs on a cluster of two machines of one core each: the results of the local engine, whatever dies."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from tests.command_line import Run, runner
from tests.detect.small_models import small_detector
from tests.docs.pages import ROOT
from vgtok.data.synthetic import SceneConfig, render_scene
from vgtok.detect.saving import save_detector

pytestmark = pytest.mark.slow

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}
Local = Callable[..., str]
FRAMES = 12
SMALL = ("--canvas", "320x192")
WORKER = ("--worker", "memory=300MB")


class Nodes:
    """The cluster in its process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.scale.two_nodes"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, cwd=ROOT, env=ONE_THREAD, **pipes)
        self.address = self._line().strip()

    def run(self, *words: object, **more: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": [*map(str, words)], **more}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the cluster ended"
        return line

    def close(self) -> None:
        # The end of its input ends it, with all processes of Ray.
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    cluster = Nodes()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rendered frames with annotations, and a small random model."""
    folder = tmp_path_factory.mktemp("scale")
    for place in ("images", "annotations"):
        (folder / "set" / place).mkdir(parents=True)
    for number in range(FRAMES):
        scene = render_scene(number, 160, 96, SceneConfig(pixels_per_meter=8.0))
        Image.fromarray(scene.pixels).save(folder / "set" / "images" / f"{number:02d}.jpg")
        rows = [f"{x0:.0f},{y0:.0f},{x1 - x0:.0f},{y1 - y0:.0f},1,4,0,0" for x0, y0, x1, y1 in scene.boxes]
        (folder / "set" / "annotations" / f"{number:02d}.txt").write_text("\n".join(rows))
    save_detector(small_detector(), folder / "model")
    return folder


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Local:
    """What a command prints with the local engine, at one thread."""
    cv2.setNumThreads(1)
    run: Run = runner(monkeypatch, capsys)
    return lambda *words: run(*words)[1]


def files_of(folder: Path, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name.endswith(suffixes)}


def indices(shards: Path) -> list[int]:
    """The number of every row of all shards, in the order of the files."""
    tables = [parquet.read_table(path, columns=["index"]) for path in sorted(shards.glob("*.parquet"))]
    return [index for table in tables for index in table["index"].to_pylist()]


def test_tokens_equal_the_local_engine_s_and_a_bad_frame_is_a_row(
    data: Path, nodes: Nodes, local: Local, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    words = ("tokenize", data / "set" / "images", bad, *SMALL, "--write", "npz", "--write", "json", "--json")
    here = json.loads(local(*words, "--out", tmp_path / "local"))
    there = nodes.run(*words, "--out", tmp_path / "ray", "--engine", "ray", *WORKER)
    found = json.loads(there["out"])
    assert there["code"] == 1
    assert found["failed"] == here["failed"] == [{"image": str(bad), "error": found["failed"][0]["error"]}]
    for row in (*here["images"], *found["images"]):
        row["written"] = [Path(name).name for name in row["written"]]
    assert found["images"] == here["images"]
    assert files_of(tmp_path / "ray", (".npz", ".tokens.json")) == files_of(
        tmp_path / "local", (".npz", ".tokens.json")
    )
    assert (found["scale"]["workers"], found["scale"]["failed"]) == (2, 1)
    assert indices(tmp_path / "ray" / "shards") == list(range(FRAMES + 1))


def test_detections_equal_the_local_engine_s_and_resume_when_finished(
    data: Path, nodes: Nodes, local: Local, tmp_path: Path
) -> None:
    settings = ("--model", data / "model", "--score-threshold", 0, "--write", "coco", "--write", "csv")
    settings += ("--tokenizer", "compact")
    words = ("detect", data / "set" / "images", *settings, "--json")
    local(*words, "--out", tmp_path / "local")
    ray = (*words, "--out", tmp_path / "ray", "--engine", "ray", *WORKER)
    first, second = (json.loads(nodes.run(*ray)["out"]) for _ in range(2))
    assert files_of(tmp_path / "ray", (".json", ".csv")) == files_of(tmp_path / "local", (".json", ".csv"))
    assert sum(row["detections"] for row in first["frames"]) > FRAMES
    assert (first["resumed"], second["resumed"]) == (0, FRAMES)
    assert first["frames"] == second["frames"]


def test_tables_and_scores_equal_the_local_engine_s(data: Path, nodes: Nodes, local: Local, tmp_path: Path) -> None:
    spec = f"visdrone:{data / 'set'}"
    words = ("calibrate", "--data", spec, *SMALL, "--name", "here", "--json", "--out")
    local(*words, tmp_path / "local.json", "--workers", 1)
    nodes.run(*words, tmp_path / "ray.json", "--engine", "ray", *WORKER)
    assert (tmp_path / "ray.json").read_bytes() == (tmp_path / "local.json").read_bytes()
    assert not (tmp_path / "ray.json.shards").exists()
    words = ("evaluate", "--data", spec, "--model", data / "model", "--json")
    here = json.loads(local(*words))
    there = nodes.run(*words, "--engine", "ray", "--shards", tmp_path / "scores", *WORKER)
    found = json.loads(there["out"])
    assert found.pop("scale")["frames"] == FRAMES
    for result in (here, found):
        result.pop("ms")
    assert found == here
    assert here["detections"] > FRAMES


def test_a_study_of_frames_equals_the_local_one(data: Path, nodes: Nodes, local: Local, tmp_path: Path) -> None:
    words = ("study", "affine", "--data", f"visdrone:{data / 'set'}", "--limit", 3, "--json", "--out")
    here = json.loads(local(*words, tmp_path / "local", "--workers", 1))
    there = json.loads(nodes.run(*words, tmp_path / "ray", "--engine", "ray", *WORKER)["out"])
    assert there["rows"] == here["rows"]


def test_a_machine_killed_in_the_middle_loses_and_doubles_nothing(
    data: Path, nodes: Nodes, local: Local, tmp_path: Path
) -> None:
    # At the default canvas, so that the run lasts a while after the kill.
    words = ("tokenize", data / "set" / "images", "--json")
    shards = tmp_path / "ray" / "shards"
    ray = ("--out", tmp_path / "ray", "--engine", "ray", "--shard-frames", 1, *WORKER)
    there = nodes.run(*words, *ray, shards=str(shards), kill_after=3)
    assert there["code"] == 0
    assert indices(shards) == list(range(FRAMES))
    here = json.loads(local(*words, "--write", "json", "--out", tmp_path / "local"))
    tokens = [row["tokens"] for row in here["images"]]
    assert [row["tokens"] for row in json.loads(there["out"])["images"]] == tokens


def test_a_driver_killed_goes_on_from_its_shards(data: Path, nodes: Nodes, tmp_path: Path) -> None:
    shards = tmp_path / "ray" / "shards"
    words = ["tokenize", str(data / "set" / "images"), "--json", "--out", str(tmp_path / "ray"), "--engine", "ray"]
    words += ["--shard-frames", "1", *WORKER]
    command = [sys.executable, "-m", "vgtok", *words, "--address", nodes.address]
    with subprocess.Popen(command, env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        while len(list(shards.glob("*.parquet"))) < 3:
            assert driver.poll() is None
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
    kept = {path.name: path.stat().st_mtime_ns for path in shards.glob("*.parquet")}
    assert 3 <= len(kept) < FRAMES
    found = json.loads(nodes.run(*words)["out"])
    assert found["scale"]["resumed"] >= len(kept)
    assert indices(shards) == list(range(FRAMES))
    assert {name: (shards / name).stat().st_mtime_ns for name in kept} == kept
