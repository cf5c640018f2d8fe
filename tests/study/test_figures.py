"""Figures are drawn of one image, of a data set, a file or a rendered scene."""

import pytest

from vgtok.data.dataset import Dataset
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
