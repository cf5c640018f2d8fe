"""`vgtok study`: the list of studies, and errors in one line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_tokenize import vgtok
from tests.command_line import Run, runner
from vgtok.study.registry import STUDIES, load_study


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Three annotated frames."""
    for place in ("images", "annotations"):
        (tmp_path / "frames" / place).mkdir(parents=True)
    for seed in range(3):
        pixels = np.random.default_rng(seed).integers(0, 256, (90, 160, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "frames" / "images" / f"{seed}.jpg")
        (tmp_path / "frames" / "annotations" / f"{seed}.txt").write_text("10,10,30,20,1,4,0,0\n")
    return f"visdrone:{tmp_path / 'frames'}"


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys)


def test_the_map_lists_the_whole_paper(tmp_path: Path) -> None:
    done = vgtok("study", "--json", cwd=tmp_path)
    entries = json.loads(done.stdout)["entries"]
    labels = [entry["item"] for entry in entries]
    assert sum(label.startswith("Tab.") for label in labels) == 18
    assert sum(label.startswith("Fig.") for label in labels) == 4
    assert "inversion" in vgtok("study", cwd=tmp_path).stdout


def test_studies_that_cannot_run_say_why(tmp_path: Path) -> None:
    for words, message in (
        (["nonsense"], "no such study"),
        (["ladder", "--data", "visdrone:nowhere"], "nowhere"),
        (["inversion", "--model", "vgtok-tiny"], "--model"),
    ):
        done = vgtok("study", *words, cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_every_study_over_frames_takes_a_limit(data: str, tmp_path: Path) -> None:
    assert {name for name in STUDIES if "limit" not in load_study(name).takes} == {
        "teaser", "method", "seeds", "overfit",
    }  # fmt: skip
    for study in ("inversion", "exact", "cover"):
        done = vgtok("study", study, "--data", data, "--limit", 2, "--workers", 1, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["images"] == 2
    assert (tmp_path / "vgtok-runs" / "study" / "exact.json").is_file()


def test_results_of_the_old_default_folder_are_still_found(tmp_path: Path) -> None:
    (tmp_path / "vgtok-study").mkdir()
    (tmp_path / "vgtok-study" / "seeds.json").write_text(json.dumps({"ran_at": "2026-11-01T00:00:00"}))
    entries = json.loads(vgtok("study", "--json", cwd=tmp_path).stdout)["entries"]
    assert {entry["last_run"] for entry in entries if entry["command"] == "vgtok study seeds"} == {"2026-11-01"}


def test_ctrl_c_says_what_is_kept(in_process: Run, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for study, said in (("ladder", "kept in"), ("exact", "nothing is kept")):
        chosen = replace(load_study(study), run=stop)
        monkeypatch.setattr("vgtok.cli.study.load_study", lambda name, chosen=chosen: chosen)
        code, _, err = in_process("study", study, "--data", data)
        assert code == 130
        assert "interrupted: " in err
        assert said in err


def test_all_runs_what_is_not_done_and_goes_on_after_a_study_that_cannot_run(
    in_process: Run, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgtok.cli.study.STUDIES", ("exact", "auroc", "overfit", "seeds"))
    words = ("--limit", 2, "--workers", 1, "--out", tmp_path, "--json")

    def states_of(source: str) -> tuple[int, dict[str, str]]:
        code, out, _ = in_process("study", "all", "--data", source, *words)
        return code, {row["study"]: row["state"] for row in json.loads(out)["studies"]}

    code, states = states_of(data)
    # What trains is left out.
    assert (code, states) == (0, dict.fromkeys(("exact", "auroc", "seeds"), "done"))
    assert json.loads((tmp_path / "exact.json").read_text())["images"] == 2
    assert states_of(data) == (0, dict.fromkeys(("exact", "auroc", "seeds"), "done before"))
    code, states = states_of("visdrone:nowhere")
    assert code == 1
    assert "nowhere" in states["exact"]
    assert states["seeds"] == "done before"
