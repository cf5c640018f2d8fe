"""The packed encoder against the dense one: counts on rendered images, fidelity with small random weights."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.detect.small_models import SMALL, small_detector
from tests.study.conftest import only, rows_of
from vgtok.data.dataset import Dataset
from vgtok.encode.config import EncoderConfig
from vgtok.encode.encoder import Encoder
from vgtok.errors import InputError
from vgtok.show.plot import render_plot
from vgtok.study.encoder import compare, object_cells
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs, image_jobs
from vgtok.tokenize.canvas import fit_canvas

OPTIONS = ("position", "resampling", "proportional", "padding")
PLAIN = EncoderConfig(dim=24, depth=3, heads=2, hidden=48)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Random weights of PLAIN under timm's names."""
    torch.manual_seed(0)
    state = Encoder(PLAIN).state_dict()
    foreign = {
        "cls_token": torch.zeros(1, 1, 24),
        "pos_embed": torch.randn(1, 197, 24),
        "patch_embed.proj.weight": torch.randn(24, 3, 16, 16) * 0.05,
        "patch_embed.proj.bias": torch.zeros(24),
        "norm.weight": torch.ones(24),
        "norm.bias": torch.zeros(24),
        "head.weight": torch.zeros(10, 24),
    }
    names = {
        "attention.qkv": "attn.qkv",
        "attention.out": "attn.proj",
        "mlp.expand": "mlp.fc1",
        "mlp.contract": "mlp.fc2",
    }
    for name, tensor in state.items():
        if name.startswith("blocks."):
            for ours, theirs in names.items():
                name = name.replace(ours, theirs)
            foreign[name] = tensor + 0.1 * torch.randn(tensor.shape)
    save_file(foreign, tmp_path / "plain.safetensors")
    return tmp_path / "plain.safetensors"


def test_fidelity_compares_every_tokenizer_and_option(checkpoint: Path, dataset: Dataset) -> None:
    jobs = [replace(job, canvas=(512, 288)) for job in image_jobs(Inputs(dataset, workers=1), 2)]
    result = compare(jobs, checkpoint, PLAIN)
    assert all(-1 <= row["on_objects"] <= 1 + 1e-6 and -1 <= row["elsewhere"] <= 1 + 1e-6 for row in result.rows)
    tokenizers = [(row["choice"], row["budget"]) for row in result.rows if row["compared"] == "tokenizer"]
    assert len(tokenizers) == 4 * 5 - 1
    assert {row["compared"] for row in result.rows} == {
        "tokenizer",
        "position",
        "resampling",
        "proportional",
        "padding",
    }
    # The default choice of every option is one and the same run.
    for budget in (0.40, 0.20):
        defaults = {
            row["on_objects"]
            for row in result.rows
            if row["layout"] == "windowed"
            and row["budget"] == budget
            and (row["compared"], row["choice"])
            in {
                ("tokenizer", "Top-hat + gate"),
                *((name, str(getattr(PLAIN.windowed(), name))) for name in OPTIONS),
            }
        }
        assert len(defaults) == 1
    assert result.plot is not None
    picture = render_plot(result.plot)
    assert picture is not None


def test_fidelity_says_which_weights_it_needs(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGTOK_WEIGHTS", raising=False)
    with pytest.raises(InputError, match="VGTOK_WEIGHTS: names no folder; set it to one that holds deit_tiny"):
        load_study("fidelity").run(Inputs(dataset, workers=1))


def test_object_cells_are_those_a_box_touches() -> None:
    canvas = fit_canvas(np.zeros((64, 96, 3), np.uint8), "native")
    touched = object_cells(canvas, np.array([[15.0, 0.0, 17.0, 16.0]]))
    assert np.argwhere(touched).tolist() == [[0, 0], [0, 1]]


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time a small detector, as counts do not depend on it."""
    detector = small_detector(encoder_overrides={**SMALL.encoder_overrides, "fusion": (32, 64)})
    detector.save_pretrained(tmp_path / "timed")
    monkeypatch.setattr("vgtok.study.encoder.TIMED_MODEL", str(tmp_path / "timed"))


@pytest.mark.usefixtures("timed")
def test_compute_counts_what_the_paper_counts(dataset: Dataset) -> None:
    result = load_study("compute").run(Inputs(dataset, workers=1))
    rows = {(row["execution"], row["budget"]): row["encoder_gflops"] for row in result.rows}
    assert rows["dense", 1.0] == pytest.approx(8281.5, rel=1e-3)
    assert rows["packed", 1.0] < rows["dense", 1.0] <= rows["control", 0.7]
    # Uniform density would give 2645; real partitions are denser in some windows.
    assert rows["packed", 0.4] == pytest.approx(2645, rel=0.05)
    assert result.also["parameters"]["encoder"] == 304_237_504
    assert result.also["parameters"]["fusion"] == 11_277_312


@pytest.mark.usefixtures("timed")
def test_compute_adds_the_same_neck_and_head_to_every_row(dataset: Dataset) -> None:
    result = load_study("compute").run(Inputs(dataset, workers=1))
    dense = result.rows[0]
    assert dense["end_to_end_gflops"] == pytest.approx(dense["paper_end_to_end_gflops"], rel=1e-3)
    beyond = [row["end_to_end_gflops"] - row["encoder_gflops"] for row in result.rows]
    assert beyond == pytest.approx([4673.9] * len(beyond), rel=1e-4)
    assert all(row["end_to_end_dense_over_this"] <= max(1.0, row["dense_over_this"]) for row in result.rows)
    for row in result.rows:
        head = row["sparse_head_gflops"] - row["encoder_gflops"]
        if row["execution"] == "packed" and row["budget"] < 1:
            # Three quarters of the positions are at the finest stride, and those of unsplit roots are left out.
            assert 0.35 < head / 4673.9 <= 1
            assert row["sparse_head_ms"] > 0
        else:
            assert head == pytest.approx(4673.9, rel=1e-4)
        assert min(row["encoder_ms"], row["encoder_gb"], row["end_to_end_ms"], row["end_to_end_gb"]) > 0


@pytest.mark.usefixtures("timed")
def test_compute(dataset: Dataset) -> None:
    rows = rows_of("compute", dataset)
    # Where the paper's count is of the same work, ours is its own to a tenth of a per mille.
    dense = only(rows, execution="dense")
    assert dense["encoder_gflops"] == pytest.approx(8282, rel=1e-4)
    assert dense["end_to_end_gflops"] == pytest.approx(12955.5, rel=1e-4)
    packed = only(rows, execution="packed", budget=0.4)
    assert packed["tokens"] == 3687
    assert packed["encoder_gflops"] == pytest.approx(2669.5, rel=1e-3)
    assert packed["dense_over_this"] == pytest.approx(3.10, abs=0.01)
