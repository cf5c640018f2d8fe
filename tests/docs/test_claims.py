"""Sentences of the documentation that say what the package is, held against the package."""

from pathlib import Path

from vgtok.detect.loading import shipped_models
from vgtok.detect.saving import read_config

DOCS = Path(__file__).parents[2] / "docs"


def words_of(page: str) -> str:
    return " ".join((DOCS / page).read_text(encoding="utf-8").split())


def test_the_concepts_name_the_head_the_shipped_model_predicts_with() -> None:
    assert read_config(shipped_models()["vgtok-tiny"])["head"] == "atss"
    assert "`vgtok-tiny` predicts with one of the latter, the one-stage ATSS head" in words_of("concepts.md")


def test_the_paper_s_models_are_not_called_unpublished() -> None:
    page = words_of("how-to/paper-tables.md")
    assert "not public" not in page
    assert "The paper says that its code and models are available; we could not obtain them." in page


def test_the_results_page_tells_of_the_reversed_trend() -> None:
    assert "the reverse of the paper's trend" in words_of("results/README.md")
