"""The accuracy studies end to end on three rendered images and a model of random weights."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.detect.small_models import small_detector
from vgtok.cli import main
from vgtok.detect.model import CoDetr
from vgtok.detect.saving import save_detector
from vgtok.errors import InputError
from vgtok.show.plot import render_plot
from vgtok.study.accuracy import verdict
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs, Read, Result

STUDIES = ("ladder", "rank", "resolution", "scorers", "bands", "dense-epochs", "pareto", "published", "slicing")


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_and_draws(name: str, accuracy: Callable[[str], Result]) -> None:
    result = accuracy(name)
    assert result.rows
    assert all(list(row) == list(result.rows[0]) for row in result.rows)
    assert all(list(row) == list(result.paper_only[0]) for row in result.paper_only)
    json.dumps([list(result.rows), list(result.paper_only), list(result.notes), dict(result.also)])
    assert result.read == Read("visdrone", 3)
    assert len(result.also["frames"]) == 3
    assert any("3 of 5 images, evenly spread" in note for note in result.notes)
    assert any("another model and training" in note for note in result.notes)
    assert result.plot is not None
    picture = render_plot(result.plot)
    assert picture is not None
    assert picture.startswith(b"\x89PNG")


def test_studies_share_the_dense_cell(inputs: Inputs, accuracy: Callable[[str], Result]) -> None:
    cells = [json.loads(path.read_text())["reader"] for path in (inputs.out / "cells").glob("*/cell.json")]
    assert len(cells) == len(set(cells))
    assert sum("budget=1.0" in reader and "(192, 128)" in reader for reader in cells) == 1
    dense = accuracy("ladder").rows[0]["AP"]
    assert accuracy("bands").rows[0]["points"] == dense
    assert accuracy("slicing").rows[0]["AP"] == dense
    assert accuracy("dense-epochs").rows[0]["AP"] == dense


def test_a_second_model_is_the_zero_shot_curve(inputs: Inputs) -> None:
    both = inputs.models[0]
    run = load_study("pareto").run
    once, twice = (run(replace(inputs, models=(both,) * count)) for count in (1, 2))
    measured, second = (
        [{**row, "kind": ""} for row in twice.rows if row["kind"] == kind]
        for kind in ("measured", "measured zero-shot")
    )
    assert measured == second
    assert len(twice.rows) == len(once.rows) + len(second)
    assert any(note.startswith("measured zero-shot, model: at 40%") for note in twice.notes)
    assert twice.plot is not None
    assert render_plot(twice.plot)
    with pytest.raises(InputError, match="--model: the trained model and one"):
        run(replace(inputs, models=(both,) * 3))


def test_both_heads_read_features_computed_once(
    tmp_path: Path, inputs: Inputs, accuracy: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(head: str) -> list[dict[str, object]]:
        return list(load_study("ladder").run(replace(inputs, head=head, out=tmp_path / head, limit=1)).rows)

    alone = {head: run(head) for head in ("query", "atss")}
    ways: list[object] = []
    encode = CoDetr.predict_heads
    monkeypatch.setattr(CoDetr, "predict_heads", lambda *given: (ways.append(given[4]), encode(*given))[1])
    both = run("both")
    assert set(ways) == {("query", "atss")}
    for head, rows in alone.items():
        assert [row for row in both if row["head"] == head] == rows
        files = sorted((tmp_path / head / "cells").glob("*/*.npz"))
        assert files
        for path in files:
            with np.load(path) as one, np.load(tmp_path / "both" / path.relative_to(tmp_path / head)) as other:
                np.testing.assert_array_equal(one["boxes"], other["boxes"])
                np.testing.assert_array_equal(one["scores"], other["scores"])
    with pytest.raises(InputError, match="--head: this study runs one head"):
        load_study("rank").run(replace(inputs, head="both"))


def test_what_a_model_cannot_do_is_refused(tmp_path: Path, inputs: Inputs) -> None:
    save_detector(small_detector(), tmp_path / "bare", auxiliary=())
    with pytest.raises(InputError, match=r"--head: .* without its ATSS head"):
        load_study("rank").run(Inputs(inputs.dataset, 1, models=(str(tmp_path / "bare"),), head="atss"))
    save_detector(small_detector(names=("cat", "dog")), tmp_path / "pets")
    with pytest.raises(InputError, match="knows none of the classes of visdrone"):
        load_study("rank").run(Inputs(inputs.dataset, 1, models=(str(tmp_path / "pets"),)))
    with pytest.raises(InputError, match="--data"):
        load_study("rank").run(Inputs(None, 1))


def test_the_verb_takes_model_limit_and_head(
    tmp_path: Path, inputs: Inputs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inputs.dataset is not None
    data = f"visdrone:{inputs.dataset.images[0].parent.parent}"

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["vgtok", "study", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main.run()
        return int(stopped.value.code or 0), *capsys.readouterr()

    common = ("--data", data, "--model", inputs.models[0], "--out", tmp_path)
    code, out, err = run("published", *common, "--limit", 2, "--head", "atss", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["images"], document["head"], document["model"]) == (2, "atss", "model")
    with (tmp_path / "published.csv").open() as file:
        assert len(list(csv.reader(file))) == 1 + len(document["rows"])
    assert (tmp_path / "published.png").is_file()
    code, out, err = run("slicing", *common, "--limit", 2)
    assert code == 0, err
    assert "whole frame" in out
    code, _, err = run("seeds", "--limit", 2, "--out", tmp_path)
    assert code == 1
    assert "study 'seeds': does not take --limit" in err


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.1, 0.5, "significant"), (-0.1, 0.5, "not significant"), (-2, -1, "significant")]
)
def test_a_difference_is_significant_if_its_interval_excludes_0(low: float, high: float, expected: str) -> None:
    assert verdict(0.3, low, high).endswith(f"], {expected}")
    assert verdict(None, None, None) == "cannot be compared"
