"""What a package index, a citation tool and a reader of the README are told about licenses and authorship."""

import tomllib
from pathlib import Path

import yaml
from packaging.licenses import canonicalize_license_expression

from vgtok import __version__
from vgtok.detect.loading import shipped_models
from vgtok.detect.saving import read_config

ROOT = Path(__file__).parents[1]
TITLE = "Variable-Granularity Tokenization for High-Resolution Object Detection"


def test_the_wheel_says_that_its_weights_are_for_academic_use() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0 AND LicenseRef-VisDrone-academic"
    assert canonicalize_license_expression(project["license"]) == project["license"]
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in project["license-files"]]
    assert len(texts) == 2
    assert "Apache License" in texts[0]
    assert texts[1].startswith("LicenseRef-VisDrone-academic")
    assert "for academic use only" in texts[1]


def test_the_notice_covers_every_model_in_the_package() -> None:
    notice = (ROOT / "LICENSE-VisDrone-academic").read_text(encoding="utf-8")
    for name, folder in shipped_models().items():
        assert f"vgtok/detect/shipped/{name}" in notice
        assert "for academic use only" in read_config(folder)["license"]


def test_the_citation_is_of_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", __version__)
    paper = citation["preferred-citation"]
    assert paper["title"] == TITLE
    [author] = paper["authors"]
    assert (author["given-names"], author["family-names"]) == ("Khayrul", "Islam")


def test_the_readme_gives_credit() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"VGTok is an independent implementation of *{TITLE}* by Khayrul Islam." in readme
    assert f"title = {{{TITLE}}}" in readme
    assert "https://github.com/khayrulbuet13/vgtok" in readme
    assert "`Apache-2.0 AND LicenseRef-VisDrone-academic`" in readme
