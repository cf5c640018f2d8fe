"""The recipes for detectors of other libraries: short, valid, and run where the library is here."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.docs.pages import ROOT
from vgtok.slicing import Sliced

PAGE = (ROOT / "docs" / "how-to" / "any-detector.md").read_text(encoding="utf-8")
RECIPES = {
    re.search(r"import .*?(ultralytics|rfdetr|pipeline)", text)[1]: text
    for text in re.findall(r"^```py\n(.*?)^```$", PAGE, re.M | re.S)
}


def test_recipes_have_at_most_ten_lines_of_code() -> None:
    assert set(RECIPES) == {"ultralytics", "rfdetr", "pipeline"}
    for name, text in RECIPES.items():
        compile(text, name, "exec")
        assert sum(bool(line.strip()) for line in text.splitlines()) <= 10


def test_a_pipeline_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.YolosConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=[64, 64],
        patch_size=16,
        num_detection_tokens=5,
        num_labels=3,
    )
    transformers.YolosForObjectDetection(config).save_pretrained(tmp_path / "yolos")
    transformers.YolosImageProcessor(size={"shortest_edge": 64, "longest_edge": 64}).save_pretrained(tmp_path / "yolos")
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)).save("photo.jpg")
    names: dict[str, Any] = {}
    # The same lines, with a model that is here.
    exec(RECIPES["pipeline"].replace("PekingU/rtdetr_r50vd", "yolos"), names)
    found = names["found"]
    assert isinstance(found, Sliced)
    assert len(found) > 0
    assert set(found.names) <= set(config.label2id)
