"""What leaves a study: rows of equal columns, a picture, and the images it was measured on."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from vgtok.cli import main
from vgtok.data.dataset import Dataset, open_dataset
from vgtok.errors import InputError
from vgtok.show.plot import render_plot
from vgtok.study import encoder, gates
from vgtok.study.registry import ENTRIES, STUDIES, load_study
from vgtok.study.result import RENDERED, Inputs, paired, paper_only

RESULTS = Path(__file__).parents[2] / "docs" / "results"

# Studies that run a network have small tests of their own.
NETWORKS = {"fidelity", "overfit"} | {entry.study for entry in ENTRIES if entry.model == "detector"}


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in NETWORKS])
def test_every_study_runs_and_draws(
    name: str, dataset: Dataset, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "TIMED_MODEL", inputs.models[0])
    result = load_study(name).run(Inputs(dataset, workers=1))
    assert result.rows
    assert all(list(row) == list(result.rows[0]) for row in result.rows)
    if (RESULTS / f"{name}.csv").is_file():
        with (RESULTS / f"{name}.csv").open() as file:
            assert list(result.rows[0]) == next(csv.reader(file))
    if result.plot is not None:
        picture = render_plot(result.plot)
        assert picture is not None
        assert picture.startswith(b"\x89PNG")
    else:
        assert all(image.width > 1000 for image in result.pictures.values())


def test_tables_of_the_paper_refuse_other_data(tmp_path: Path, dataset: Dataset) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((64, 64, 3), np.uint8))
    folder = open_dataset(str(tmp_path))
    for name in ("inversion", "cover"):
        with pytest.raises(InputError, match="annotated"):
            load_study(name).run(Inputs(folder, workers=1))
    other = replace(dataset, name="elsewhere")  # type: ignore[type-var]
    with pytest.raises(InputError, match="the paper prints this table for visdrone and aitodv2, not for 'elsewhere'"):
        load_study("inversion").run(Inputs(other, workers=1))
    with pytest.raises(InputError, match="--data"):
        load_study("affine").run(Inputs(None, workers=1))


def test_a_study_of_printed_figures_reads_nothing_though_data_is_named(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VGTOK_VISDRONE", str(dataset.images[0].parent.parent))
    monkeypatch.setattr("sys.argv", ["vgtok", "study", "seeds", "--out", str(tmp_path), "--json"])
    with pytest.raises(SystemExit):
        main.run()
    document = json.loads(capsys.readouterr().out)
    assert (document["data"], document["images"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "data", "images"),
    [
        ("seeds", None, None),
        ("auroc", "visdrone", gates.IMAGES),
        ("coarsened", "visdrone", gates.IMAGES),
        ("fidelity", "visdrone", encoder.FRAMES),
        ("grid", RENDERED, 24),
        ("overfit", RENDERED, 8),
        ("inversion", "visdrone", 548),
        ("ladder", "visdrone", 50),
    ],
)
def test_the_results_in_the_documentation_name_what_was_read(name: str, data: str | None, images: int | None) -> None:
    document = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert (document["data"], document["images"]) == (data, images)


def test_the_paper_stands_before_the_measured_and_alone_without_data() -> None:
    assert list(paired({"AP": 1.0, "AP50": 2.0}, {"AP": None})) == ["paper_AP", "AP", "AP50"]
    tables = {"visdrone": [1], "aitodv2": [2]}
    rows = paper_only(tables, "visdrone", lambda table: [{"paper": value} for value in table])
    assert rows == [{"paper": 2, "status": "needs aitodv2"}]
