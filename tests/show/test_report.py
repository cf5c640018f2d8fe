"""The report stands alone: one HTML file that loads nothing, and Markdown whose pictures are there."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from tests.evaluate.scenes import random_scene
from vgtok.data.dataset import open_annotated
from vgtok.evaluate.detections import detections_of
from vgtok.evaluate.evaluation import apply_protocol, evaluate_scored, find_mistakes
from vgtok.evaluate.protocols import PROTOCOLS
from vgtok.show.report import write_report

ORIGIN = {
    "source": "visdrone:somewhere",
    "model": "vgtok-tiny",
    "budget": 0.4,
    "unused_classes": [],
    "missing_classes": ["bus", "<van>"],
}


class Links(HTMLParser):
    """Everything a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe")
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def write(tmp_path: Path, protocol: str, name: str = "visdrone") -> Path:
    scene = random_scene(tmp_path / "data", 2)
    dataset = open_annotated(f"visdrone:{scene.folder}")
    rules = PROTOCOLS[protocol]
    scored = apply_protocol(dataset, detections_of(scene.results, dataset, "test"), rules)
    result = evaluate_scored(name, scored, len(scene.results), rules)
    mistakes = find_mistakes(scored, rules.max_detections)
    written = write_report(result, mistakes, dataset.images, tmp_path / "report", ORIGIN)
    assert all(path.stat().st_size for path in written)
    return tmp_path / "report"


def test_the_page_loads_nothing_and_shows_cap_and_counts(tmp_path: Path) -> None:
    folder = write(tmp_path, "visdrone")
    page = (folder / "report.html").read_text()
    links = Links()
    links.feed(page)
    assert len(links.found) >= 3
    assert all(link.startswith("data:image/") for link in links.found)
    for text in (page, (folder / "report.md").read_text()):
        assert "At most 500 detections per class and image, 4 images" in text
        assert "Worst images" in text
        assert "awning-tricycle" in text


def test_it_says_what_was_scored(tmp_path: Path) -> None:
    folder = write(tmp_path, "visdrone")
    page, text = ((folder / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
    for field, value in (("source", "visdrone:somewhere"), ("model", "vgtok-tiny"), ("budget", "0.4")):
        assert f"<tr><td>{field}</td><td>{value}</td></tr>" in page
        assert f"| {field} | {value} |" in text
    assert "<li>classes not known to the model: bus, &lt;van&gt;</li>" in page
    assert "classes not known to the model: bus" in text
    assert "not in the data" not in page + text
    document = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    assert ORIGIN.items() <= document.items()
    assert document["data"] == "visdrone"


def test_markdown_pictures_exist_and_json_repeats_the_numbers(tmp_path: Path) -> None:
    folder = write(tmp_path, "aitodv2")
    text = (folder / "report.md").read_text()
    pictures = re.findall(r"!\[.*?\]\((.+?)\)", text)
    assert pictures
    assert all((folder / name).is_file() for name in pictures)
    assert "By class, APvt alone" in text
    document = json.loads((folder / "evaluation.json").read_text())
    assert document["max_detections"] == 1500
    assert len(document["APvt_classes"]) == 10


def test_markdown_holds_names_as_text(tmp_path: Path) -> None:
    text = (
        write(tmp_path, "visdrone", name="<script>alert(1)</script> [x](http://evil.example)") / "report.md"
    ).read_text()
    assert "<script>" not in text
    assert r"\<script\>alert(1)\</script\>" in text
    assert "[x](" not in text
