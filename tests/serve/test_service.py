"""Answers without a server: costs, a model that fails, no model."""

import numpy as np
import pytest

from tests.detect.small_models import small_detector
from vgtok.detect.config import Head
from vgtok.detect.detector import Detector
from vgtok.detect.model import detection_flops
from vgtok.encode.modes import encoder_flops
from vgtok.errors import BudgetError
from vgtok.serve.controls import SAMPLES
from vgtok.serve.limits import RefusedError
from vgtok.serve.listeners import sample
from vgtok.serve.service import Service, Settings

from .conftest import picture


@pytest.mark.parametrize("head", ["query", "atss"])
def test_gflops_are_those_of_the_counters(head: Head) -> None:
    detector = small_detector()
    detector.head = head
    reading = Service(detector, "small").tokenize(picture(0), "a", Settings(budget=0.5))
    config = detector.model.config
    after = sum(detection_flops(config, 8, 12, head).values())
    packed, dense = (sum(encoder_flops(kind, config.encoder_config(), reading.tokens)) for kind in ("packed", "dense"))
    assert reading.answer.gflops is not None
    assert reading.answer.gflops.used == pytest.approx((packed + after) / 1e9, abs=1e-3)
    assert reading.answer.gflops.dense == pytest.approx((dense + after) / 1e9, abs=1e-3)


@pytest.mark.parametrize("budget", [1.0, 0.4])
def test_a_frame_is_read_at_the_models_own_budget(budget: float) -> None:
    service = Service(Detector(small_detector().model, canvas=(192, 128), budget=budget), "small")
    for reading in (service.tokenize(picture(0), "a", Settings()), service.detect(picture(0), "a", Settings())):
        assert reading.answer.settings.budget == budget
        assert reading.answer.tokens.share == pytest.approx(budget, abs=0.03)
    assert Service().tokenize(picture(0), "a", Settings()).answer.settings.budget == 0.4


def test_what_a_request_leaves_open_is_the_models() -> None:
    detector = Detector(small_detector().model, canvas=(192, 128), tokenizer_name="compact")
    service = Service(detector, "small")
    reading = service.detect(picture(0), "a", Settings())
    assert reading.answer.settings == Settings(0.4, 0.0, "compact", "quadtree")
    np.testing.assert_array_equal(reading.tokens.boxes, detector(picture(0)).tokens.boxes)
    # The gate goes with the score, unless it is asked for.
    assert service.completed(Settings(scorer="tophat")) == Settings(0.4, 0.2, "tophat", "quadtree")
    assert Service().completed(Settings(scorer="compact")) == Settings(0.4, 0.0, "compact", "quadtree")
    assert service.completed(Settings(rank=0.1, splitter="single_pass")) == Settings(0.4, 0.1, "compact", "single_pass")


def test_a_frame_the_model_cannot_take_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = small_detector()

    def fail(*_: object) -> None:
        raise RuntimeError("not enough memory\nand a page of advice")

    monkeypatch.setattr(detector.model, "predict_maps", fail)
    with pytest.raises(RefusedError, match=r"^a: the model failed on this image \(not enough memory\)$") as refused:
        Service(detector, "small").detect(picture(0), "a", Settings())
    assert refused.value.status == 500


def test_without_a_model_there_are_tokens_only() -> None:
    service = Service()
    answer = service.tokenize(picture(0), "a", Settings()).answer
    assert (answer.model, answer.gflops, answer.ms.encoder) == (None, None, None)
    assert answer.tokens.share == pytest.approx(0.4, abs=0.001)
    with pytest.raises(RefusedError, match="no model is loaded") as refused:
        service.detect(picture(0), "a", Settings())
    assert refused.value.status == 503
    with pytest.raises(BudgetError, match=r"budget: 0\.1 is outside"):
        service.tokenize(picture(0), "a", Settings(budget=0.1, splitter="single_pass"))


def test_samples_are_shared_and_cannot_be_changed() -> None:
    pixels = sample(SAMPLES[1], 128, 96)
    assert pixels is sample(SAMPLES[1], 128, 96)
    assert (pixels.shape, pixels.dtype) == ((96, 128, 3), np.uint8)
    with pytest.raises(ValueError, match="read-only"):
        pixels[0, 0, 0] = 1
    assert Service().tokenize(pixels, "a", Settings()).tokens.source_width == 128
    with pytest.raises(RefusedError, match="sample: 'moon' is not one of"):
        sample("moon", 128, 96)


def test_one_run_of_the_model_answers_every_threshold() -> None:
    service = Service(small_detector(), "small")
    result = service.run(picture(0), "a", Settings(budget=0.5))
    assert result.image.size == 0, "what is kept for later holds no pixels"
    scores = sorted(result.scores.tolist())
    for threshold in (0.0, scores[len(scores) // 2], 1.0):
        drawn = service.drawable(result, picture(0), "a", Settings(budget=0.5), threshold)
        again = service.detect(picture(0), "a", Settings(budget=0.5), threshold)
        assert drawn.answer.detections == again.answer.detections
        assert len(drawn.answer.detections or ()) == sum(score >= threshold for score in scores)
        assert drawn.answer.image == again.answer.image
