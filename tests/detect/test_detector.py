"""The detector as a user holds it: any image in, results in the caller's own pixels out."""

import base64
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.detect.small_models import predict_dense, small_detector
from vgtok import Tokenizer
from vgtok.defaults import DEFAULT_SCORE
from vgtok.detect.detector import Detector
from vgtok.detect.result import CSV_COLUMNS, Result
from vgtok.errors import InputError, VGTokError
from vgtok.names import COCO
from vgtok.tokenize.retention import load_table


def picture(height: int, width: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    random = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), 90, dtype=np.uint8)
    pixels[: height // 2, : width // 2] = random.integers(0, 256, (height // 2, width // 2, 3))
    return pixels


@pytest.fixture(scope="module")
def detector() -> Detector:
    return small_detector()


@pytest.fixture(scope="module")
def result(detector: Detector) -> Result:
    return detector(picture(256, 384), budget=0.5, score_threshold=0.0)


def test_results_are_in_the_callers_pixels(detector: Detector, result: Result) -> None:
    assert len(result) > 0
    assert result.boxes.shape == (len(result), 4)
    assert result.labels.max() < len(detector.names)
    assert result.names == tuple(detector.names[label] for label in result.labels)
    assert (result.boxes >= 0).all()
    assert (result.boxes[:, [0, 2]] <= 384).all()
    assert (result.boxes[:, [1, 3]] <= 256).all()
    assert (np.diff(result.scores) <= 0).all()
    assert (result.tokens.width, result.tokens.height) == (192, 128)
    assert result.tokens.retained == pytest.approx(0.5, abs=0.05)
    assert all(value > 0 for value in vars(result.timings).values())


def test_a_model_that_saw_no_coarse_token_reads_all_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    untrained = Detector(small_detector().model, canvas=(192, 128), budget=1.0)
    assert untrained(picture(256, 384)).tokens.retained == 1.0
    assert not caplog.records
    for _ in range(2):
        untrained(picture(256, 384), budget=0.5)
    untrained(picture(256, 384), tokenizer=Tokenizer(budget=0.4, canvas=(192, 128)))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "never trained on coarse tokens" in caplog.text


def test_a_model_trained_on_coarse_tokens_says_nothing(detector: Detector, caplog: pytest.LogCaptureFixture) -> None:
    assert detector(picture(256, 384), score_threshold=0.0).tokens.retained == pytest.approx(0.4, abs=0.03)
    assert not caplog.records
    with pytest.raises(InputError, match=r"budget: 1\.5 is not a share"):
        Detector(detector.model, budget=1.5)


@pytest.mark.parametrize(
    ("dtype", "scale", "value_range"),
    [(np.float32, 1 / 255, (0.0, 1.0)), (np.float64, 2.0, (0.0, 510.0)), (np.int32, 16, (0, 4080))],
)
def test_pixels_without_a_known_range_are_read_by_the_one_given(
    detector: Detector, result: Result, dtype: Any, scale: float, value_range: tuple[float, float]
) -> None:
    values = (picture(256, 384).astype(np.float64) * scale).astype(dtype)
    with pytest.raises(InputError, match=r"have no known range.*value_range=\(0.0, 1.0\)"):
        detector(values, budget=0.5, score_threshold=0.0)
    alone = detector(values, budget=0.5, value_range=value_range, score_threshold=0.0)
    np.testing.assert_array_equal(alone.image, picture(256, 384))
    np.testing.assert_array_equal(alone.boxes, result.boxes)
    [listed] = detector([values], budget=0.5, value_range=value_range, score_threshold=0.0)
    np.testing.assert_array_equal(listed.boxes, result.boxes)


def test_twice_the_picture_gives_twice_the_boxes(detector: Detector) -> None:
    small = picture(128, 192)
    large = np.repeat(np.repeat(small, 2, axis=0), 2, axis=1)
    tokenizer = Tokenizer(budget=1.0, canvas=(192, 128))
    np.testing.assert_allclose(
        detector(large, tokenizer=tokenizer, score_threshold=0.0).boxes,
        2 * detector(small, tokenizer=tokenizer, score_threshold=0.0).boxes,
        atol=3.0,
    )


@pytest.mark.parametrize("head", ["query", "atss"])
def test_a_batch_of_sizes_is_each_image_alone(detector: Detector, head: Any) -> None:
    """Same detections in the same order; scores to 1e-4, and boxes to 1e-4 of a pixel, not only of the frame."""
    images = [picture(128, 192, 1), picture(192, 120, 2), picture(96, 192, 3), picture(128, 192, 4)]
    together = detector(images, budget=0.4, head=head, score_threshold=0.0)
    assert isinstance(together, list)
    for one, image in zip(together, images, strict=True):
        alone = detector(image, budget=0.4, head=head, score_threshold=0.0)
        np.testing.assert_allclose(one.scores, alone.scores, rtol=0, atol=1e-4)
        np.testing.assert_allclose(one.boxes, alone.boxes, rtol=0, atol=1e-4)
        assert (one.labels == alone.labels).all()
    assert detector([]) == []


def test_all_tokens_are_the_dense_model(detector: Detector) -> None:
    """Scores to 1e-4, boxes to 1e-4 of the frame's longer side."""
    image = picture(128, 192)
    frame = detector._pixels(Tokenizer(budget=1.0, canvas=(192, 128)).to_canvas(image))
    boxes, scores, _ = predict_dense(detector.model, frame)
    result = detector(image, budget=1.0, score_threshold=0.0)
    np.testing.assert_allclose(result.scores, scores.detach().numpy(), rtol=0, atol=1e-4)
    np.testing.assert_allclose(result.boxes / 192, boxes.detach().numpy() / 192, rtol=0, atol=1e-4)


def test_caps_and_thresholds(detector: Detector) -> None:
    image = picture(128, 192)
    whole = detector(image, score_threshold=0.0)
    assert len(detector(image, max_detections=3, score_threshold=0.0)) == 3
    middle = float(whole.scores[len(whole) // 2])
    assert len(detector(image, score_threshold=middle)) == int((whole.scores >= middle).sum())
    atss = detector(image, head="atss", score_threshold=0.0)
    assert len(atss) > 0
    assert not np.array_equal(atss.scores[:3], whole.scores[:3])


def test_wrong_arguments_say_what_to_do(detector: Detector) -> None:
    image = picture(64, 64)
    with pytest.raises(InputError, match="give either budget= or tokenizer="):
        detector(image, budget=0.5, tokenizer=Tokenizer(budget=0.5))
    with pytest.raises(InputError, match="max_detections: 0"):
        detector(image, max_detections=0)
    with pytest.raises(InputError, match="head: 'rpn' is not one of query, atss"):
        detector(image, head="rpn")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="without its ATSS head"):
        small_detector(auxiliary=())(image, head="atss")
    with pytest.raises(InputError, match="no retention table"):
        detector.calibrated_tokenizer(0.4)


def test_the_models_own_table_gives_a_percentile() -> None:
    detector = Detector(small_detector().model, table=load_table("visdrone"))
    tokenizer = detector.calibrated_tokenizer(0.4)
    assert tokenizer.percentile == Tokenizer.calibrated("visdrone", 0.4).percentile


def test_padding_that_counts_is_read_and_boxes_stay_in_the_image(detector: Detector) -> None:
    image = picture(100, 150)
    whole = detector(image, tokenizer=Tokenizer.paper(0, canvas="native", rank=0), score_threshold=0.0)
    assert whole.tokens.dense == 8 * 12
    assert (whole.tokens.source_height, whole.tokens.source_width) == (128, 192)
    assert whole.boxes[:, 2].max() <= 150
    assert whole.boxes[:, 3].max() <= 100
    # The same as reading the mirrored image itself, at a percentile that splits all.
    mirrored = np.pad(image, ((0, 28), (0, 42), (0, 0)), mode="reflect")
    direct = detector(mirrored, tokenizer=Tokenizer.paper(0, canvas="native", rank=0), score_threshold=0.0)
    inside = (direct.boxes[:, 0] < 150) & (direct.boxes[:, 1] < 100)
    np.testing.assert_allclose(whole.scores, direct.scores[inside], atol=1e-6)


def test_tiny_and_odd_images(detector: Detector) -> None:
    # An image of the canvas' own size is not copied on the way, and what PIL lends is read-only.
    lent = Image.fromarray(picture(128, 192))
    for image in (picture(1, 1), picture(7, 300), np.zeros((64, 64, 3), dtype=np.uint8), lent):
        found = detector(image, budget=0.4, score_threshold=0.0)
        assert np.isfinite(found.boxes).all()
        assert np.isfinite(found.scores).all()


def test_results_take_every_form(result: Result, tmp_path: Path) -> None:
    rows = result.to_coco("a.jpg", category_ids=(5, 6, 7))
    assert len(rows) == len(result)
    first = rows[0]
    assert first["category_id"] == 5 + result.labels[0]
    assert first["bbox"][2] == pytest.approx(result.boxes[0, 2] - result.boxes[0, 0], abs=1e-3)
    assert result.to_coco(7)[0]["category_id"] == 1 + result.labels[0]
    as_coco = replace(result, class_names=COCO, labels=result.labels + 77)
    assert {row["category_id"] for row in as_coco.to_coco(7)} <= {88, 89, 90}
    lines = result.to_csv().splitlines()
    assert lines[0] == "name,label,score,x0,y0,x1,y1"
    assert len(lines) == 1 + len(result)
    assert result.plot().size == (384, 256)
    assert result.plot(score_threshold=0.0, tokens=True).width >= 384
    for name in ("found.png", "found.jpg"):
        result.save(tmp_path / name)
        with Image.open(tmp_path / name) as saved:
            assert saved.size == (384, 256)
    result.save(tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())[0]["image_id"] == "found"
    result.save(tmp_path / "found.csv")
    with pytest.raises(InputError, match=r"'.xyz' is not a picture format"):
        result.save(tmp_path / "found.xyz")


def test_supervision_reads_the_result(result: Result) -> None:
    supervision = pytest.importorskip("supervision")
    detections = result.to_supervision()
    assert isinstance(detections, supervision.Detections)
    np.testing.assert_allclose(detections.xyxy, result.boxes, rtol=1e-5)
    assert list(detections.data["class_name"]) == list(result.names)


def test_the_default_threshold_is_the_commands() -> None:
    detector = small_detector()
    image = picture(128, 192)
    middle = float(np.median(detector(image, score_threshold=0.0).scores))
    with torch.no_grad():
        for layer in detector.model.query_head.cls_branches:
            # Half of the scores on either side of the threshold.
            layer.bias += float(np.log(DEFAULT_SCORE / (1 - DEFAULT_SCORE)) - np.log(middle / (1 - middle)))
    whole = detector(image, score_threshold=0.0)
    kept = int((whole.scores >= DEFAULT_SCORE).sum())
    assert 0 < kept < len(whole)
    assert len(detector(image)) == kept


def test_a_printed_result_is_one_line(result: Result) -> None:
    text = str(result)
    assert "\n" not in text
    assert len(text) < 300
    assert text.startswith(
        f"{len(result)} detections of score {result.scores.min():.2f} to {result.scores.max():.2f}: "
    )
    assert "image 384 x 256 px" in text
    assert f"{len(result.tokens)} of {result.tokens.dense} tokens" in text
    none = replace(result, boxes=result.boxes[:0], scores=result.scores[:0], labels=result.labels[:0])
    assert str(none).startswith("0 detections; image 384 x 256 px")


def test_a_notebook_shows_summary_and_picture(result: Result) -> None:
    named = replace(result, class_names=("<b>car", "van", "bus"))
    page = named._repr_html_()
    assert "<b>" not in page
    assert f"{len(result)} detections" in page
    data = base64.b64decode(page.partition("base64,")[2].partition("'")[0])
    with Image.open(io.BytesIO(data)) as shown:
        assert shown.size == (384, 256)


def test_pandas_has_the_columns_of_the_table(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    table = result.to_pandas()
    assert tuple(table.columns) == CSV_COLUMNS
    assert table["name"].tolist() == list(result.names)
    np.testing.assert_array_equal(table[["x0", "y0", "x1", "y1"]].to_numpy(), result.boxes)
    assert (
        len(replace(result, boxes=result.boxes[:0], scores=result.scores[:0], labels=result.labels[:0]).to_pandas())
        == 0
    )
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(VGTokError, match="pandas is not installed; pip install pandas"):
        result.to_pandas()
