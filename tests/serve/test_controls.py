"""Links: the address sets the controls, in the names and units of the endpoint, and says what it cannot set."""

from dataclasses import replace

import pytest

from tests.detect.small_models import small_detector
from vgtok.detect.detector import Detector
from vgtok.serve.controls import (
    SAMPLES,
    YOUR_IMAGE,
    Controls,
    ImageSource,
    check_event,
    default_controls,
    linked_controls,
)
from vgtok.serve.limits import RefusedError
from vgtok.serve.service import Service, Settings

SERVICE = Service(small_detector(), "small", score_threshold=0.25)


def read_by_compact() -> Detector:
    detector = small_detector()
    detector.tokenizer_name = "compact"
    return detector


def test_without_parameters_the_controls_are_the_models() -> None:
    assert linked_controls({}, SERVICE) == (default_controls(SERVICE), [])
    default = default_controls(SERVICE)
    assert (default.per_cent, default.score_threshold) == (100 * SERVICE.budget, 0.25)
    assert default.settings == Settings(SERVICE.budget, 0.2, "tophat", "quadtree")
    other = Service(read_by_compact(), "small")
    assert default_controls(other).settings == Settings(other.budget, 0.0, "compact", "quadtree")


def test_every_parameter_sets_its_control() -> None:
    query = {
        "sample": SAMPLES[2], "budget": "0.29", "score_threshold": "0.5", "dense": "1", "rank": "0.1",
        "scorer": "compact", "splitter": "single_pass",
    }  # fmt: skip
    controls, faults = linked_controls(query, SERVICE)
    assert faults == []
    assert controls == Controls(SAMPLES[2], 29, 0.5, True, 0.1, "compact", "single_pass")
    assert controls.settings == Settings(0.29, 0.1, "compact", "single_pass")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget", "0"), ("budget", "1.01"), ("budget", "nan"), ("budget", "-inf"), ("budget", "abc"), ("budget", ""),
        ("score_threshold", "2"), ("rank", "1"), ("scorer", "<script>"), ("splitter", "none"), ("sample", YOUR_IMAGE),
        ("sample", "../street"), ("dense", "yes"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence_and_changes_nothing(name: str, value: str) -> None:
    controls, faults = linked_controls({name: value}, SERVICE)
    assert controls == default_controls(SERVICE)
    (fault,) = faults
    assert fault.startswith(f"link: {name}={value} is not ")


def test_two_scales_have_a_least_budget() -> None:
    low = Service(small_detector())
    controls, faults = linked_controls({"splitter": "single_pass", "budget": "0.1"}, low)
    assert faults == ["link: budget=0.1 is not a number from 0.25 to 1; left as it was"]
    assert controls.per_cent == 100 * low.budget
    # An event may come before the slider has followed the splitter.
    assert replace(controls, per_cent=8).settings.budget == 0.25
    assert replace(controls, per_cent=None, rank=None).settings == Settings(None, None, "tophat", "single_pass")


def test_an_upload_is_read_only_while_it_is_the_image_in_use() -> None:
    assert ImageSource.chosen("/uploads/a.png", YOUR_IMAGE) == ImageSource("/uploads/a.png", None)
    assert ImageSource.chosen("/uploads/a.png", "street") == ImageSource(None, "street")
    assert ImageSource.chosen(None, YOUR_IMAGE).name == YOUR_IMAGE


SENT = [None, SAMPLES[0], 40, 0.3, False, 0.2, "tophat", "quadtree"]


def test_events_of_the_page_are_taken() -> None:
    upload = {"path": "/uploads/a.png", "meta": {"_type": "gradio.FileData"}}
    for data in ([], SENT, [upload, YOUR_IMAGE, None, None, True, None, "entropy", "single_pass"]):
        check_event(data)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, "a.png"), (0, [{"path": "a.png"}]), (0, {"path": None}), (0, {}), (1, "moon"), (1, None), (1, ["street"]),
        (2, "40"), (2, float("nan")), (2, -1), (2, 10**400), (2, {}), (3, 1.1), (4, None), (4, "yes"), (5, [0.2]),
        (6, "taste"), (6, {"a": 1}), (7, "axe"), (7, None),
    ],
)  # fmt: skip
def test_events_the_page_does_not_send_are_refused(place: int, value: object) -> None:
    with pytest.raises(RefusedError, match=r"^request: holds settings that the page does not send$") as refused:
        check_event([*SENT[:place], value, *SENT[place + 1 :]])
    assert refused.value.status == 400
