"""Whole detectors of transformers as a `Detector`: loaded from folders of random weights, called, and in every verb."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import vgtok
from tests.command_line import Run, runner
from tests.hosts.small_hosts import lw_detr, owl, randomized, rf_detr, yolos
from vgtok.data import render_scene
from vgtok.errors import InputError
from vgtok.hosts.detector import HostDetector, cover_padding
from vgtok.serve.service import Service, Settings

NAMES = {0: "car", 1: "person", 2: "bus"}
LABELS: dict[str, Any] = {"id2label": NAMES, "label2id": {name: label for label, name in NAMES.items()}}

DETECTORS: dict[str, tuple[Any, Any]] = {
    "yolos": (
        lambda: yolos(**LABELS),
        lambda: transformers.YolosImageProcessorPil(size={"shortest_edge": 96, "longest_edge": 128}),
    ),
    "lw-detr": (
        lambda: lw_detr(**LABELS),
        lambda: transformers.DeformableDetrImageProcessorPil(size={"height": 128, "width": 128}),
    ),
    "rf-detr": (
        lambda: rf_detr(**LABELS),
        lambda: transformers.DetrImageProcessorPil(size={"height": 112, "width": 112}),
    ),
    "owl-vit": (
        lambda: owl("OwlViT"),
        lambda: transformers.OwlViTImageProcessorPil(size={"height": 128, "width": 128}),
    ),
    "owlv2": (lambda: owl("Owlv2"), lambda: transformers.Owlv2ImageProcessorPil(size={"height": 128, "width": 128})),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with model, processor and, for those that read text, a tokenizer, by name."""
    made = {}
    for name, (build, processor) in DETECTORS.items():
        made[name] = tmp_path_factory.mktemp(name.replace("-", ""))
        # The initial weights are drawn from the global generator, which other tests leave anywhere.
        torch.manual_seed(0)
        model = randomized(build())
        if name.startswith("owl"):
            # Boxes stay near their patches and names differ, as in a trained model.
            with torch.no_grad():
                model.box_head.dense2.weight.mul_(0.01)
                model.get_submodule(model.base_model_prefix).text_model.embeddings.token_embedding.weight.mul_(20)
        model.save_pretrained(made[name])
        processor().save_pretrained(made[name])
        if name.startswith("owl"):
            save_tokenizer(made[name])
    return made


def save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<pad>": 0, "a": 3, "photo": 4, "of": 5, "car": 6, "person": 7, "<unk>": 8}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>").save_pretrained(folder)


def named(folders: dict[str, Path], name: str) -> str:
    return f"transformers:{folders[name]}" + ("?car,person" if name.startswith("owl") else "")


IMAGES = [render_scene(seed=3, width=230, height=150).pixels, render_scene(seed=4, width=120, height=190).pixels]


def post_processed(processor: Any, output: Any, image: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = processor.post_process_object_detection(
        output, threshold=0.0, target_sizes=[image.shape[:2]]
    )[0]
    order = torch.argsort(found["scores"], descending=True)
    return {key: values[order] for key, values in found.items()}


@pytest.mark.parametrize("name", DETECTORS)
@torch.no_grad()
def test_results_at_all_tokens_are_those_of_transformers(folders: dict[str, Path], name: str) -> None:
    detector = vgtok.load(named(folders, name), dtype="float32")
    assert isinstance(detector, HostDetector)
    assert detector.budget == 1.0
    assert detector.names == (("car", "person") if name.startswith("owl") else ("car", "person", "bus"))
    results = detector(IMAGES, score_threshold=0.0)
    # The host by itself: its own processor, model and post-processing.
    processor = DETECTORS[name][1]()
    model: Any = vgtok.unwrap(detector.model)
    for image, result in zip(IMAGES, results, strict=True):
        pixel_values = processor(image, return_tensors="pt")["pixel_values"]
        output = model(pixel_values=pixel_values, **detector.queries)
        if name == "rf-detr":
            processor = transformers.DeformableDetrImageProcessorPil()
        expected = post_processed(processor, output, image, name)
        processor = DETECTORS[name][1]()
        corners = expected["boxes"].double().numpy().clip(0, np.tile(image.shape[1::-1], 2))
        # Random weights also predict boxes without any width, which float32 may or may not keep.
        theirs, ours = (np.minimum(*(box[:, 2:] - box[:, :2]).T) > 0.05 for box in (corners, result.boxes))
        count = int(ours.sum())
        assert count > 2
        # Scores may be equal, so pairs are found by box and label.
        near = np.abs(result.boxes[ours][:, None] - corners[theirs]).max(axis=2)
        near += result.labels[ours][:, None] != expected["labels"].numpy()[theirs]
        same = near.min(axis=1) < 0.05
        assert same.mean() > 0.9
        pair = near.argmin(axis=1)[same]
        np.testing.assert_allclose(result.scores[ours][same], expected["scores"].numpy()[theirs][pair], atol=1e-4)
        assert result.tokens.retained == 1.0
        result.tokens.validate()


@pytest.mark.parametrize("name", DETECTORS)
def test_any_budget_gives_boxes_in_the_pixels_of_the_image(folders: dict[str, Path], name: str) -> None:
    detector = vgtok.load(named(folders, name), dtype="float32")
    results = detector(IMAGES, budget=0.4, score_threshold=0.0)
    for image, result in zip(IMAGES, results, strict=True):
        assert result.tokens.retained < 0.7
        result.tokens.validate()
        assert (result.boxes >= 0).all()
        assert (result.boxes <= np.tile(image.shape[1::-1], 2)).all()
        assert result.tokens.overlay(image).size == image.shape[1::-1]
    alone = detector(IMAGES[0], budget=0.4, score_threshold=0.0)
    np.testing.assert_allclose(alone.scores, results[0].scores, atol=1e-4)
    reader = vgtok.Tokenizer(0.4, canvas=detector.canvas)
    canvas = detector.fit(IMAGES[0], reader.canvas)
    again = detector.on_canvas(IMAGES[0], canvas, reader.partition(canvas))
    np.testing.assert_allclose(again.boxes, alone.boxes, atol=1e-3)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.3, 1.0]))
@settings(max_examples=40, deadline=None)
def test_padding_is_covered_once(rows: int, columns: int, down: int, right: int, budget: float) -> None:
    noise = np.random.default_rng(rows).integers(0, 256, (rows * 16 - 3, columns * 16 - 5, 3), dtype=np.uint8)
    tokens = vgtok.Tokenizer(budget, canvas="native")(noise)
    covered = cover_padding(tokens, (rows + down, columns + right))
    covered.validate()
    if budget == 1.0:
        assert len(covered) == (rows + down) * (columns + right)


def test_folders_that_cannot_be_loaded(folders: dict[str, Path], tmp_path: Path) -> None:
    def refused(name: str, said: str) -> None:
        with pytest.raises(InputError, match=said) as caught:
            vgtok.load(f"transformers:{name}")
        assert "\n" not in str(caught.value)

    refused(str(tmp_path), "has no config.json, so it holds no model of transformers")
    transformers.ViTModel(
        transformers.ViTConfig(hidden_size=12, num_hidden_layers=1, num_attention_heads=1)
    ).save_pretrained(tmp_path)
    refused(str(tmp_path), "holds a ViTModel, which is no detector")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"architectures": ["DetrForObjectDetection"]}))
    refused(str(tmp_path), "DetrForObjectDetection is of no family that can run at a budget; there are")
    config.write_text("{}")
    refused(str(tmp_path), "names no architecture")
    config.write_text("{")
    refused(str(tmp_path), "is not a JSON file")
    config.write_text(json.dumps({"architectures": ["YolosForObjectDetection"]}))
    refused(str(tmp_path), "has no preprocessor_config")
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"height": 64, "width": 64}}')
    refused(str(tmp_path), "its weights lack")
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    refused(str(tmp_path), "cannot be loaded as YolosForObjectDetection")
    (tmp_path / "model.safetensors").unlink()
    refused(str(tmp_path), "has no weights as safetensors")
    refused("no such/folder/here", "is neither a folder nor a hub name")
    refused("nobody/nothing-here", "'nobody/nothing-here' .*hub")
    refused(str(folders["owlv2"]), r"OWLv2 looks for the names you give, as in 'transformers:.*\?car,person'")
    refused(f"{folders['yolos']}?car", "a YOLOS knows its classes")
    refused(str(config), "is a file; give the folder")


def test_what_belongs_to_transformers_is_left_to_it(folders: dict[str, Path], tmp_path: Path) -> None:
    detector = vgtok.load(named(folders, "yolos"), dtype="float32")
    with pytest.raises(InputError, match="save_pretrained: this is a model of transformers"):
        detector.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="push_to_hub: this is a model of transformers"):
        detector.push_to_hub("a/b")
    with pytest.raises(InputError, match="a YOLOS has no 'atss' head"):
        detector(IMAGES[0], head="atss")
    with pytest.raises(InputError, match="sparse_head: a YOLOS has no such head"):
        detector(IMAGES[0], sparse_head=True)


@pytest.mark.parametrize("name", DETECTORS)
def test_they_run_in_half_precision(folders: dict[str, Path], name: str) -> None:
    detector = vgtok.load(named(folders, name), dtype="bfloat16")
    result = detector(IMAGES[0], budget=0.4, score_threshold=0.0)
    assert len(result)
    assert np.isfinite(result.boxes).all()
    assert np.isfinite(result.scores).all()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys)


@pytest.mark.parametrize("name", ["rf-detr", "yolos"])
def test_every_verb_takes_them(folders: dict[str, Path], name: str, tmp_path: Path, run: Run) -> None:
    photo, out, model = tmp_path / "photo.png", tmp_path / "out", named(folders, name)
    code, _, error = run("sample", photo, "--size", "230x150", "--truth", tmp_path / "truth.json")
    assert code == 0, error
    wanted = ("--write", "picture", "--write", "coco", "--write", "tokens")
    code, _, error = run(
        "detect", photo, "--model", model, "--budget", 0.4, "--score-threshold", 0, "--out", out, *wanted
    )
    assert code == 0, error
    rows = json.loads((out / "detections.json").read_text())
    assert rows
    assert {"image_id", "category_id", "bbox", "score"} <= rows[0].keys()
    assert len([path for path in out.rglob("*") if path.suffix in (".jpg", ".png")]) == 2
    data = f"coco:{tmp_path / 'truth.json'}:{tmp_path}"
    code, text, error = run("evaluate", "--data", data, "--model", model, "--budget", 0.5, "--json")
    assert code == 0, error
    assert json.loads(text)["budget"] == 0.5
    code, text, error = run("study", "ladder", "--data", data, "--model", model, "--out", tmp_path / "study", "--json")
    assert code == 0, error
    code, _, error = run("detect", photo, "--model", model, "--head", "atss")
    assert code == 1
    assert "--head" in error


def test_the_service_answers_with_them(folders: dict[str, Path]) -> None:
    service = Service(vgtok.load(named(folders, "yolos"), dtype="float32"), "yolos", score_threshold=0.0)
    answer = service.detect(IMAGES[0], "photo", Settings(budget=0.4)).answer
    assert answer.detections
    assert answer.gflops is None
    tokens = service.tokenize(IMAGES[0], "photo", Settings(budget=0.4)).answer.tokens
    assert tokens == answer.tokens
