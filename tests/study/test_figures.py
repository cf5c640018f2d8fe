"""Figures are drawn of one image, of a data set, a file or a rendered scene."""

from pathlib import Path

import pytest

from vgtok.data.dataset import Dataset, open_dataset
from vgtok.study.registry import load_study
from vgtok.study.result import RENDERED, Inputs, Read


def test_picture_studies_need_no_data() -> None:
    result = load_study("teaser").run(Inputs(None, workers=1))
    assert {row["quantity"]: row["measured"] for row in result.rows}["objects"] > 100


@pytest.mark.parametrize("name", ["teaser", "method"])
def test_figures_are_of_one_image(name: str, dataset: Dataset) -> None:
    run = load_study(name).run
    assert run(Inputs(None, workers=1)).read == Read(RENDERED, 1)
    assert run(Inputs(dataset, workers=1)).read == Read("visdrone", 1)
    assert run(Inputs(None, workers=1, frame=str(dataset.images[0]))).read == Read("a file", 1)


def test_the_figure_of_the_method_has_the_counts_of_the_paper(visdrone: Path) -> None:
    result = load_study("method").run(Inputs(open_dataset(f"visdrone:{visdrone}"), workers=1))
    measured = {row["quantity"]: row["measured"] for row in result.rows}
    assert (measured["gated_nodes"], measured["tokens_ungated"], measured["tokens_gated"]) == (77, 1842, 1500)
