"""`vgtok convert`: checkpoints to models and back, annotations to other formats and back."""

import json
from pathlib import Path

import pytest
import torch

from tests.command_line import Run
from tests.data.folders import write_visdrone
from tests.detect.small_models import SMALL, small_detector
from vgtok.detect import checkpoint
from vgtok.detect.checkpoint import write_co_detr
from vgtok.detect.saving import load_detector

CARS = "10,10,20,20,1,4,0,0\n50,10,20,20,1,4,0,1\n0,40,30,30,0,0,0,0\n"


@pytest.fixture
def data(tmp_path: Path) -> str:
    return f"visdrone:{write_visdrone(tmp_path / 'visdrone', {'a': CARS})}"


def test_convert_there_and_back(vgtok: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint.convert_co_detr, "__defaults__", (None, SMALL))
    original = small_detector()
    write_co_detr(original, tmp_path / "released.pth")
    code, out, err = vgtok("convert", "co-detr", tmp_path / "released.pth", tmp_path / "model")
    assert code == 0, err
    assert "tensors matched" in out
    assert "default budget 1.0: the model was not trained on coarse tokens" in out
    assert "unresolved" in out
    code, out, _ = vgtok("convert", "co-detr", tmp_path / "model", tmp_path / "back.safetensors", "--json")
    assert (code, json.loads(out)["left_out"]) == (0, [])
    again = checkpoint.load_co_detr(tmp_path / "back.safetensors").model.state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in original.model.state_dict().items())

    names = tmp_path / "names.txt"
    names.write_text("car\nbus\n")
    options = ("--names", names, "--inference", "--half", "--json")
    code, out, _ = vgtok("convert", "co-detr", tmp_path / "released.pth", tmp_path / "two", *options)
    document = json.loads(out)
    assert (code, document["classes"]) == (0, 2)
    # Of each classifier a weight and a bias, and the table of label queries: three query branches, ATSS, RoI.
    assert len(document["reinitialised"]) == 2 * 3 + 1 + 2 + 2
    assert load_detector(tmp_path / "two").model.config.auxiliary == ()


def test_convert_refuses_in_one_line(vgtok: Run, tmp_path: Path) -> None:
    torch.save({"state_dict": {"backbone.pos_embed": torch.zeros(3)}}, tmp_path / "wrong.pth")
    for arguments, message in (
        ((tmp_path / "wrong.pth", tmp_path / "out"), "not a Co-DETR checkpoint of this kind"),
        ((tmp_path / "nowhere.pth", tmp_path / "out"), "no such file"),
        ((tmp_path, tmp_path / "out.pth"), "not a saved model"),
        ((tmp_path, tmp_path / "out.pth", "--half"), "go with a checkpoint file"),
        ((tmp_path / "wrong.pth", tmp_path / "out", "--names", "a,a"), "each class once"),
    ):
        code, out, err = vgtok("convert", "co-detr", *arguments)
        assert (code, out) == (1, "")
        assert len(err.strip().splitlines()) == 1
        assert message in err
    assert not (tmp_path / "out").exists()


def test_convert_goes_there_and_back(vgtok: Run, data: str, tmp_path: Path) -> None:
    code, out, _ = vgtok("convert", data, "--to", "coco", "--out", tmp_path / "v.json", "--json")
    there = json.loads(out)
    assert (code, there["objects"], there["regions"]) == (0, 2, 1)
    code, out, _ = vgtok("convert", there["spec"], "--to", "visdrone", "--out", tmp_path / "back")
    assert code == 0
    assert "2 objects, 1 ignored regions" in out
    assert (tmp_path / "back" / "annotations" / "a.txt").read_text() == CARS


def test_convert_says_what_is_lost(vgtok: Run, data: str, tmp_path: Path) -> None:
    _, out, _ = vgtok("convert", data, "--to", "yolo", "--out", tmp_path / "yolo")
    assert "lost: 1 x region left out" in out
    code, _, err = vgtok("convert", data, "--to", "voc", "--out", tmp_path / "voc")
    assert code == 1
    assert "'voc' is not a format" in err
