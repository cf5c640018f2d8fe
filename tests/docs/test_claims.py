"""Sentences and figures of the documentation that say what the package is, compared with the package."""

import re
import tomllib
from pathlib import Path

import vgtok
from vgtok.detect.loading import shipped_models
from vgtok.detect.saving import read_config

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


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


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dynamic"] == ["version"]
    first = re.search(
        r"^## ([\d.]+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert first is not None
    assert first[1] == vgtok.__version__


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def test_lower_bounds_are_the_oldest_tested_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (items for name, items in project["optional-dependencies"].items() if name not in ("dev", "docs"))
    # Constraints cannot name the extras of a package.
    items = (re.sub(r"\[\w+\]", "", item) for items in (project["dependencies"], *extras) for item in items)
    bounds = dict(item.split(">=") for item in items if ">=" in item)
    lowest, newest = pins("constraints-lowest.txt"), pins("constraints.txt")
    for name, bound in bounds.items():
        assert name in newest
        # An exact pin, or the bound followed by zeros. torch is tested at one version only.
        assert name == "torch" or re.fullmatch(re.escape(bound) + r"(\.0)*", lowest[name]), name


def test_the_install_page_lists_the_tested_versions() -> None:
    page = (DOCS / "install.md").read_text(encoding="utf-8")
    lowest, newest = pins("constraints-lowest.txt"), pins("constraints.txt")
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert {name for name, *_ in rows} == {name for name in lowest if name in newest}
    assert all((old, new) == (lowest[name], newest[name]) for name, old, new in rows)
