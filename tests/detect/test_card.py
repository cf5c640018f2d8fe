"""Model cards: front matter the hub reads, and everything a reader needs from the config."""

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from tests.detect.small_models import small_detector
from vgtok.detect.detector import Detector
from vgtok.detect.saving import model_card, read_config, save_detector
from vgtok.tokenize.retention import load_table


def card(folder: Path, **changes: Any) -> str:
    save_detector(Detector(small_detector().model, **changes), folder)
    return model_card(read_config(folder), "someone/small")


def test_the_hub_reads_the_front_matter(tmp_path: Path) -> None:
    data = ModelCard(card(tmp_path)).data
    assert (data.library_name, data.pipeline_tag) == ("vgtok", "object-detection")
    assert {"vgtok", "co-detr", "object-detection"} <= set(data.tags or ())


@pytest.mark.parametrize(("license", "known"), [("Apache-2.0", "apache-2.0"), ("ask first", "other"), ("", "unknown")])
def test_a_license_is_an_identifier_or_a_note(tmp_path: Path, license: str, known: str) -> None:
    text = card(tmp_path, license=license)
    assert ModelCard(text).data.license == known
    note = text.partition("## License\n\n")[2]
    assert note.strip() == (license or "Not stated; ask whoever trained it before you rely on it.")


def test_the_card_tells_what_the_model_is(tmp_path: Path) -> None:
    text = card(tmp_path, canvas=(192, 128), table=load_table("visdrone"))
    parameters = sum(small_detector().model.parts().values()) / 1e6
    for expected in (
        "# small\n",
        'vgtok.load("someone/small")',
        "3 classes, encoder eva02-large",
        f"| parameters | {parameters:.2f}M (encoder ",
        "| canvas | fits inside 192 x 128 px |",
        "| auxiliary heads | roi, atss |",
        "| retention table | yes |",
        "## Classes\n\ncar, van, bus\n",
    ):
        assert expected in text, expected
    assert "measured" not in text
    save_detector(small_detector(), tmp_path, auxiliary=())
    assert "| auxiliary heads | none, for inference only |" in model_card(read_config(tmp_path), "small")


def test_what_was_measured_is_a_table(tmp_path: Path) -> None:
    rows = [{"data": "visdrone", "budget": 0.4, "AP": 21.37129}, {"data": "a|b", "AP50": 40}]
    text = card(tmp_path, evaluations=rows)
    assert (
        "| data | budget | AP | AP50 |\n| --- | --- | --- | --- |\n"
        "| visdrone | 0.4 | 21.37 |  |\n| a\\|b |  |  | 40 |\n"
    ) in text
