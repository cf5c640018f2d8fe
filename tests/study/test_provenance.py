"""A result names what it was measured on: the images a study read, not the data set that happened to be open."""

import json
from pathlib import Path

import pytest

from vgtok.cli import main
from vgtok.data.dataset import Dataset
from vgtok.study import auroc, coarsened, fidelity
from vgtok.study.registry import load_study
from vgtok.study.result import RENDERED, Inputs, Read

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("module", [auroc, coarsened])
def test_studies_of_the_first_images_count_those(
    module: object, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IMAGES", 2)
    assert module.run(Inputs(dataset, workers=1)).read == Read("visdrone", 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["teaser", "method"])
def test_pictures_are_of_one_frame(name: str, dataset: Dataset) -> None:
    run = load_study(name).run
    assert run(Inputs(None, workers=1)).read == Read(RENDERED, 1)
    assert run(Inputs(dataset, workers=1)).read == Read("visdrone", 1)
    assert run(Inputs(None, workers=1, frame=str(dataset.images[0]))).read == Read("a file", 1)


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
        ("auroc", "visdrone", auroc.IMAGES),
        ("coarsened", "visdrone", coarsened.IMAGES),
        ("fidelity", "visdrone", fidelity.FRAMES),
        ("grid", RENDERED, 24),
        ("overfit", RENDERED, 8),
        ("inversion", "visdrone", 548),
        ("ladder", "visdrone", 50),
    ],
)
def test_the_results_in_the_documentation_name_what_was_read(name: str, data: str | None, images: int | None) -> None:
    document = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert (document["data"], document["images"]) == (data, images)
