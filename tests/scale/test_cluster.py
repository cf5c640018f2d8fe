"""Sizes of workers, and what is said of clusters that cannot be used."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import runner
from vgtok.errors import InputError, VGTokError
from vgtok.scale.cluster import Engine, Worker, _unconnected, connected, count_slots, explained, version_problem


def test_a_worker_is_parsed() -> None:
    assert Worker.parse("") == Worker()
    assert Worker.parse("cpus=2, gpus=0.5,memory=1.5GB") == Worker(2, 0.5, 1_500_000_000)
    assert Worker.parse("memory=300MB", Worker(cpus=3)) == Worker(3, 0.0, 300_000_000)
    for text in ("cpus", "cpus=x", "cpu=1", "cpus=1GB", "memory=1XB", "cpus=0"):
        with pytest.raises(InputError, match="worker"):
            Worker.parse(text)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "127.0.0.1:70000", "nowhere"])
def test_an_unreachable_address_is_one_sentence(address: str) -> None:
    with pytest.raises(InputError, match=r"^--address: .*(nothing answers|is not local)"), connected(Engine(address)):
        pass


def test_no_cluster_here_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    problem = ConnectionError("Could not find any running Ray instance.")
    assert "auto finds no cluster" in str(_unconnected("auto", problem))


def test_another_version_is_one_sentence() -> None:
    text = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\n"
        "This process on node 10.0.0.2 was started with:\n    Ray: 2.50.1\n    Python: 3.11.7\n"
    )
    said = str(_unconnected("10.0.0.1:6379", RuntimeError(text)))
    assert said == (
        "--address: 10.0.0.1:6379 runs Ray 2.60.0, Python 3.12.1, this process Ray 2.50.1, Python 3.11.7; "
        "install the same versions"
    )
    assert version_problem("0.0.1", "3.9") is not None


class Machines:
    """What Ray says of the machines of a cluster."""

    def __init__(self, *resources: dict[str, float]) -> None:
        self.resources = resources

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": resources} for resources in self.resources]


def test_workers_are_counted_by_what_fits() -> None:
    machines = Machines({"CPU": 4, "memory": 3e9}, {"CPU": 1, "memory": 64e9}, {"CPU": 8, "GPU": 1, "memory": 8e9})
    assert count_slots(machines, Worker()) == 3 + 1 + 8
    assert count_slots(machines, Worker(cpus=2, gpus=0.5)) == 2
    with pytest.raises(InputError, match=r"asks for 100.0 GB of memory, and the largest machine has 64.0 GB"):
        count_slots(machines, Worker(memory=100 * 10**9))
    with pytest.raises(InputError, match="asks for 2 GPU, and the largest machine has 1"):
        count_slots(machines, Worker(gpus=2))


def test_what_ended_a_run_is_one_sentence() -> None:
    for error, text in (
        (RuntimeError("ray.exceptions.OutOfMemoryError: Task was killed"), "ran out of memory"),
        (RuntimeError("ModuleNotFoundError: No module named 'vgtok'"), "lacks vgtok"),
        (ValueError("trace\nlast line"), "the run on Ray ended: last line"),
        (VGTokError("as it is"), "as it is"),
    ):
        assert text in str(explained(error))
        assert "\n" not in str(explained(error))


def test_options_of_a_cluster_go_with_its_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = runner(monkeypatch, capsys)
    for words, text in (
        (("tokenize", tmp_path, "--workers", 2), "--workers: goes with --engine ray"),
        (("detect", tmp_path, "--shard-frames", 2), "--shard-frames: goes with --engine ray"),
        (("detect", "0", "--engine", "ray"), "takes images; run videos and cameras with --engine local"),
        (("tokenize", tmp_path, "--engine", "ray", "--worker", "ram=1"), "'ram=1' is not one of cpus=NUMBER"),
        (("study", "grid", "--engine", "ray"), "is not computed frame by frame"),
    ):
        code, _, err = run(*words)
        assert code == 1
        assert text in " ".join(err.split())


def test_without_ray_verbs_work_and_the_engine_says_what_to_install(tmp_path: Path) -> None:
    # In a process of its own, where an import of Ray fails as if it were not installed.
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('ray', 'pyarrow', 'fsspec')))\n"
        "from vgtok.cli import main\n"
        "sys.argv = ['vgtok', *{words}]; main.run()"
    )
    frame = str(tmp_path / "frame.png")
    outs = []
    for words in (
        ["sample", frame],
        ["tokenize", frame, "--out", str(tmp_path / "out")],
        ["tokenize", frame, "--engine", "ray"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code.format(words=words)], capture_output=True, text=True, check=False
        )
        outs.append((done.returncode, done.stderr))
    assert [code for code, _ in outs] == [0, 0, 1]
    assert outs[2][1] == "error: --engine ray: Ray is not installed; pip install 'vgtok[scale]'\n"
