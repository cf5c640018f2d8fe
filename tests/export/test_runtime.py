"""Files as users meet them: written by the command, read by the runtime, equal to torch, and read without torch."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnxruntime.quantization import quantize_dynamic
from PIL import Image

import vgtok
from tests.command_line import Run, runner
from tests.detect.small_models import ENCODER, small_detector
from tests.detect.test_atss import SIZE, head, maps
from tests.export.small_models import WINDOWED_EVA02, WINDOWED_VIT, traceable_detector
from vgtok import InputError, OnnxDetector, Tokenizer
from vgtok.data.convert import write_rendered
from vgtok.data.synthetic import SceneConfig, render_scene
from vgtok.detect.config import Head
from vgtok.detect.detector import Detector
from vgtok.detect.result import Result
from vgtok.detect.saving import save_detector
from vgtok.export.description import Description
from vgtok.export.onnx_file import export_onnx
from vgtok.export.runtime import suppressed

FUSION_SIZE, PLAIN_SIZE, RAGGED_SIZE = (512, 384), (640, 512), (205, 330)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def fused(folder: Path) -> tuple[Detector, Path]:
    # A mean of whole numbers: pixels of this color are exactly what lies beyond an image.
    detector = traceable_detector("vit-tiny", WINDOWED_VIT | {"mean": (124.0, 116.0, 104.0)})
    export_onnx(detector, folder / "fused.onnx", tokens=306, name="fused")
    return detector, folder / "fused.onnx"


@pytest.fixture(scope="module")
def plain(folder: Path) -> tuple[Detector, Path]:
    detector = traceable_detector("vit-tiny", WINDOWED_VIT | {"fusion": ()})
    export_onnx(detector, folder / "plain.onnx", size=PLAIN_SIZE)
    return detector, folder / "plain.onnx"


@pytest.fixture(scope="module")
def one_stage(folder: Path) -> tuple[Detector, Path]:
    detector = traceable_detector("vit-tiny", WINDOWED_VIT, head="atss")
    export_onnx(detector, folder / "one-stage.onnx", size=PLAIN_SIZE)
    return detector, folder / "one-stage.onnx"


@pytest.fixture(scope="module")
def rotated(folder: Path) -> tuple[Detector, Path]:
    detector = traceable_detector("eva02-large", WINDOWED_EVA02)
    export_onnx(detector, folder / "rotated.onnx", size=RAGGED_SIZE, dynamic=True)
    return detector, folder / "rotated.onnx"


def assert_same(found: Result, expected: Result) -> None:
    """Scores to 1e-4, boxes to 1e-4 of the longer side; of scores closer than that, either may come first."""
    assert len(found) == len(expected) > 0
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    apart = np.abs(found.boxes[:, None] - expected.boxes).max(axis=2) / max(expected.image.shape)
    apart = np.maximum(apart, np.abs(found.scores[:, None] - expected.scores))
    alike = (apart < 1e-4) & (found.labels[:, None] == expected.labels)
    assert alike.any(axis=0).all()
    assert alike.any(axis=1).all()


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_a_frame_is_read_as_in_torch(
    seed: int, fused: tuple[Detector, Path], plain: tuple[Detector, Path], one_stage: tuple[Detector, Path]
) -> None:
    for (detector, path), size in ((fused, FUSION_SIZE), (plain, PLAIN_SIZE), (one_stage, PLAIN_SIZE)):
        # Twice as large: the canvas is fitted on both sides.
        image = render_scene(seed, 2 * size[0], 2 * size[1]).pixels
        detector.canvas = size
        expected = detector(image, budget=0.4, score_threshold=0.0)
        found = OnnxDetector(path, threads=1)(image, score_threshold=0.0)
        assert (found.tokens.boxes == expected.tokens.boxes).all()
        assert_same(found, expected)


def test_pixels_without_a_known_range_are_read_by_the_one_given(plain: tuple[Detector, Path]) -> None:
    exported = OnnxDetector(plain[1])
    image = render_scene(3, *PLAIN_SIZE).pixels
    with pytest.raises(InputError, match="have no known range"):
        exported(image / 255.0, score_threshold=0.0)
    expected = exported(image, score_threshold=0.0)
    found = [
        exported(image / 255.0, value_range=(0.0, 1.0), score_threshold=0.0),
        *exported([image / 255.0], value_range=(0.0, 1.0), score_threshold=0.0),
    ]
    for one in found:
        np.testing.assert_array_equal(one.boxes, expected.boxes)


def test_the_model_in_the_package_predicts_by_its_own_head(tmp_path: Path) -> None:
    detector, image = vgtok.load("vgtok-tiny", dtype="float32"), render_scene(89, 1024, 576).pixels
    detector.canvas = (512, 288)
    # Another tokenizer than that of files without one
    detector.tokenizer_name = "compact"
    assert export_onnx(detector, tmp_path / "tiny.onnx").head == detector.head == "atss"
    exported = OnnxDetector(tmp_path / "tiny.onnx", threads=1)
    assert exported.tokenizer_name == "compact"
    found = exported(image, max_detections=300, score_threshold=0.0)
    # Its head is sparse, and so is that of the graph.
    assert exported.sparse_head
    assert_same(found, detector(image, budget=0.4, max_detections=300, score_threshold=0.0))
    dense = detector(image, budget=0.4, max_detections=300, score_threshold=0.0, sparse_head=False)
    assert np.abs(found.scores - dense.scores).max() > 1e-3
    with pytest.raises(InputError, match="head: this model was saved without its ATSS head"):
        export_onnx(traceable_detector("vit-tiny", WINDOWED_VIT), tmp_path / "no.onnx", head="atss")


def test_a_dynamic_graph_takes_any_budget(rotated: tuple[Detector, Path]) -> None:
    detector, path = rotated
    detector.canvas = RAGGED_SIZE
    exported = OnnxDetector(path, threads=1)
    # Both fit the canvas a few pixels short of it, inside the same cells.
    for image in (render_scene(3, 410, 660).pixels, render_scene(4, 204, 330).pixels):
        for budget in (0.1, 0.4, 1.0):
            assert_same(
                exported(image, budget=budget, score_threshold=0.0), detector(image, budget=budget, score_threshold=0.0)
            )
    assert len(exported(render_scene(3, 410, 660).pixels, score_threshold=0.0).tokens) == exported.description.tokens


def test_the_runtime_is_called_like_a_detector(fused: tuple[Detector, Path], tmp_path: Path) -> None:
    detector, path = fused
    detector.canvas = FUSION_SIZE
    exported = OnnxDetector(path, threads=1)
    image = render_scene(7, *FUSION_SIZE).pixels
    assert (exported.names, exported.canvas) == (detector.names, FUSION_SIZE)
    whole, other = exported([image, Image.fromarray(image)], score_threshold=0.0)
    assert (whole.boxes == other.boxes).all()
    assert len(exported(image, max_detections=3, score_threshold=0.0)) == 3
    middle = float(whole.scores[len(whole) // 2])
    assert len(exported(image, score_threshold=middle)) == int((whole.scores >= middle).sum())
    assert all(value > 0 for value in vars(whole.timings).values())
    assert whole.plot(score_threshold=0).size == FUSION_SIZE
    whole.save(tmp_path / "found.json")
    assert len(json.loads((tmp_path / "found.json").read_text())) == len(whole)
    assert exported([]) == []


@pytest.mark.parametrize("head", ["query", "atss"])
def test_a_sparse_head_stays_sparse(head: Head, tmp_path: Path) -> None:
    detector = traceable_detector("vit-tiny", WINDOWED_VIT, head=head, strides=(8, 16))
    detector.canvas, detector.sparse_head = PLAIN_SIZE, True
    path = tmp_path / "sparse.onnx"
    assert export_onnx(detector, path, size=PLAIN_SIZE, dynamic=True).sparse_head
    exported = OnnxDetector(path, threads=1)
    assert exported.sparse_head
    image = render_scene(7, *PLAIN_SIZE).pixels
    for budget in (0.07, 0.4, 1.0):
        found = exported(image, budget=budget, score_threshold=0.0)
        assert_same(found, detector(image, budget=budget, score_threshold=0.0))


def test_a_file_says_what_it_is(fused: tuple[Detector, Path]) -> None:
    model = onnx.load(fused[1])
    properties = {item.key: item.value for item in model.metadata_props}
    assert properties["model"] == "fused"
    assert json.loads(properties["names"]) == ["car", "van", "bus"]
    assert (properties["canvas"], properties["tokens"]) == ("512x384", "306")
    assert json.loads(properties["mean"]) == [124.0, 116.0, 104.0]
    assert properties["license"] == "for tests only"
    assert [output.name for output in model.graph.output] == ["boxes", "scores", "labels"]
    # Every shape is fixed: no dimension has a name instead of a size.
    values = [*model.graph.input, *model.graph.output]
    assert not [d for value in values for d in value.type.tensor_type.shape.dim if d.HasField("dim_param")]


def test_what_cannot_be_run_is_refused(fused: tuple[Detector, Path], folder: Path) -> None:
    exported = OnnxDetector(fused[1])
    for settings in ({"budget": 0.5}, {"tokenizer": Tokenizer(budget=0.5, canvas=FUSION_SIZE)}):
        with pytest.raises(InputError, match=r"budget: this graph reads every image as 306 tokens, not as 384; export"):
            exported(np.zeros((384, 512, 3), dtype=np.uint8), **settings)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="head: this graph predicts by its query head; export another"):
        exported(np.zeros((384, 512, 3), dtype=np.uint8), head="atss")
    for device, said in (("tpu", "is not one of auto, cpu, cuda"), ("cuda", "is not available to onnxruntime")):
        with pytest.raises(InputError, match=f"device: '{device}' {said}"):
            OnnxDetector(fused[1], device=device)
    with pytest.raises(InputError, match="is an ONNX graph; 'vgtok detect', 'evaluate' and"):
        vgtok.load(fused[1])
    with pytest.raises(InputError, match="max_detections: 0"):
        exported(np.zeros((384, 512, 3), dtype=np.uint8), max_detections=0)
    with pytest.raises(InputError, match="no such file; write one with 'vgtok export onnx'"):
        OnnxDetector(folder / "absent.onnx")
    (folder / "text.onnx").write_text("not a graph")
    with pytest.raises(InputError, match=r"text\.onnx: onnxruntime cannot read it"):
        OnnxDetector(folder / "text.onnx")
    stranger = onnx.load(fused[1])
    del stranger.metadata_props[:]
    onnx.save(stranger, folder / "stranger.onnx")
    with pytest.raises(InputError, match="not written by 'vgtok export onnx'"):
        OnnxDetector(folder / "stranger.onnx")


def test_the_command(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = tmp_path / "small.v1"
    save_detector(traceable_detector("vit-tiny", WINDOWED_VIT | {"depth": 1, "global_blocks": ()}), saved)
    code, _, err = command("export", "onnx", saved, "--tokens", 307, "--size", "512x384")
    assert (code, err) == (1, "error: tokens: no partition of 512 x 384 px has 307; the nearest have 306 and 309\n")
    code, _, err = command("export", "onnx", saved, "--tokens", 5000)
    assert (code, "5000 is outside 48 to 768" in err) == (1, True)
    monkeypatch.chdir(tmp_path)
    code, out, _ = command("export", "onnx", "--model", saved, "--tokens", 39, "--size", "192x128", "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["file"], document["model"], document["tokens"]) == ("small.v1.onnx", "small.v1", 39)
    assert len(OnnxDetector("small.v1.onnx")(render_scene(1, 192, 128).pixels).tokens) == 39


@pytest.mark.parametrize(("width", "height"), [(384, 384), (300, 600), (512, 200)])
def test_an_image_of_another_ratio_is_read_on_the_mean_color(
    width: int, height: int, fused: tuple[Detector, Path]
) -> None:
    detector, path = fused
    detector.canvas = FUSION_SIZE
    exported = OnnxDetector(path, threads=1)
    image = render_scene(7, width, height).pixels
    found = exported(image, score_threshold=0.0)
    found.tokens.validate()
    assert found.tokens.overlay(image).width >= width
    fitted = exported.prepare(image).canvas
    assert fitted.height <= FUSION_SIZE[1]
    assert fitted.width <= FUSION_SIZE[0]
    # The same image on a canvas of the mean color, in torch: boxes inside the image agree.
    filled = np.tile(np.array([124, 116, 104], dtype=np.uint8), (FUSION_SIZE[1], FUSION_SIZE[0], 1))
    filled[: fitted.height, : fitted.width] = fitted.image
    expected = detector(filled, budget=exported.budget, score_threshold=0.0)
    best = found.scores.argmax()
    apart = np.abs(fitted.from_source(found.boxes[best : best + 1]) - expected.boxes).max(axis=1)
    clipped = np.minimum(expected.boxes, [fitted.width, fitted.height] * 2)
    apart = np.minimum(apart, np.abs(fitted.from_source(found.boxes[best : best + 1]) - clipped).max(axis=1))
    assert apart.min() < 2.0


def test_a_file_passes_the_quantizer_as_it_is(plain: tuple[Detector, Path], tmp_path: Path) -> None:
    quantize_dynamic(plain[1], tmp_path / "quantized.onnx")
    quantized = OnnxDetector(tmp_path / "quantized.onnx", threads=1)
    assert len(quantized(render_scene(3, *PLAIN_SIZE).pixels, score_threshold=0.0)) > 0


def test_eight_bits_are_smaller_and_close(one_stage: tuple[Detector, Path], tmp_path: Path) -> None:
    detector, path = one_stage
    description = export_onnx(detector, tmp_path / "int8.onnx", size=PLAIN_SIZE, int8=True)
    exact, eight = OnnxDetector(path, threads=1), OnnxDetector(tmp_path / "int8.onnx", threads=1)
    assert (exact.precision, description.precision, eight.precision) == ("float32", "int8", "int8")
    operators = {node.op_type for node in onnx.load(tmp_path / "int8.onnx").graph.node}
    assert operators & {"MatMulInteger", "DynamicQuantizeMatMul"}
    image = render_scene(7, *PLAIN_SIZE).pixels
    first, second = (model(image, score_threshold=0.0) for model in (exact, eight))
    np.testing.assert_allclose(second.scores[:5], first.scores[:5], rtol=0.2)
    with pytest.raises(InputError, match="converted to bfloat16; load it with dtype='float32'"):
        export_onnx(Detector(detector.model, head="atss").to("cpu", "bfloat16"), tmp_path / "no.onnx")


WITHOUT_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "scipy", "safetensors", "onnx", "onnxscript"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import numpy as np
import vgtok

result = vgtok.OnnxDetector(sys.argv[1], threads=1)(np.load(sys.argv[2]), score_threshold=0.0)
np.savez(sys.argv[3], boxes=result.boxes, scores=result.scores)
try:
    vgtok.load("model")
except vgtok.VGTokError as error:
    print(error)
from vgtok.cli.main import app, run
for words in (
    ["detect", sys.argv[4], "--model", sys.argv[1], "--out", sys.argv[5], "--score-threshold", "0"],
    ["evaluate", "--model", sys.argv[1], "--data", sys.argv[6], "--json"],
):
    app(words, standalone_mode=False)
sys.argv = ["vgtok", "models"]
run()
"""


def test_it_runs_without_torch(fused: tuple[Detector, Path], tmp_path: Path) -> None:
    image = render_scene(7, *FUSION_SIZE).pixels
    np.save(tmp_path / "image.npy", image)
    Image.fromarray(image).save(tmp_path / "image.png")
    data = write_rendered(tmp_path / "data", [7], *FUSION_SIZE, SceneConfig())
    names = ("image.npy", "found.npz", "image.png", "out")
    arguments = [str(fused[1]), *(str(tmp_path / name) for name in names), data]
    run = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, *arguments], capture_output=True, text=True, check=False)
    assert "torch is not installed; pip install 'vgtok[detect]'" in run.stdout
    assert run.stderr.strip().startswith("error: torch is not installed"), run.stderr
    scores = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
    assert (scores["images"], scores["dtype"]) == (1, "float32")
    rows = json.loads((tmp_path / "out" / "detections.json").read_text())
    found: Any = np.load(tmp_path / "found.npz")
    assert [row["score"] for row in rows] == pytest.approx(found["scores"].tolist(), abs=1e-4)
    expected = vgtok.OnnxDetector(fused[1], threads=1)(image, score_threshold=0.0)
    np.testing.assert_array_equal(found["scores"], expected.scores)
    np.testing.assert_array_equal(found["boxes"], expected.boxes)
    # The command finds the same, and draws it.
    rows = json.loads((tmp_path / "out" / "detections.json").read_text(encoding="utf-8"))
    assert len(rows) == len(expected.scores)
    assert (tmp_path / "out" / "image.detections.jpg").is_file()


def described(suppression: str) -> Description:
    encoder = small_detector(encoder_overrides={**ENCODER, "grid_multiple": 2}).model.encoder.config
    plain = Description("small", ("car",), 128, 96, 48, False, encoder, (), "atss", "")
    return replace(plain, atss_suppression=suppression)


@pytest.mark.parametrize("suppression", ["hard", "soft"])
def test_the_atss_head_keeps_the_same_without_torch(suppression: str) -> None:
    found = head(suppression)
    with torch.inference_mode():
        candidates = found.candidates(maps())
        boxes, scores, labels = found.predict(maps(), SIZE, 1000)
    description = described(suppression)
    kept = suppressed(tuple(part.numpy() for part in candidates), description, SIZE, 1000)  # type: ignore[arg-type]
    assert kept[2].tolist() == labels.tolist()
    np.testing.assert_allclose(kept[1], scores.numpy(), rtol=1e-5)
    np.testing.assert_allclose(kept[0], boxes.numpy(), rtol=1e-5)


def test_a_file_says_how_its_boxes_are_thinned_out_and_an_old_one_need_not() -> None:
    properties = described("soft").to_properties()
    assert Description.from_properties(properties, "a.onnx") == described("soft")
    del properties["atss_suppression"]
    assert Description.from_properties(properties, "a.onnx").atss_suppression == "hard"
