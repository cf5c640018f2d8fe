"""Tracking: identities of a rendered clip survive misses, jitter, flickering names, false alarms; replay is exact."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from vgtok import InputError
from vgtok.data import render_scene
from vgtok.detect.tracking import UNTRACKED, Tracker, count_tracks
from vgtok.overlap import iou

FRAMES = 200
WINDOW = (480, 320)


@dataclass(frozen=True)
class Frame:
    """Boxes (K, 4), labels (K,) and identities (K,) of one frame."""

    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    identities: NDArray[np.int64]


@cache
def panned_clip(seed: int = 7) -> list[Frame]:
    """A camera that pans over a rendered scene, in which every second object drives along: identities are known."""
    scene = render_scene(seed=seed, width=1280, height=640)
    own = np.random.default_rng(seed).uniform(-1.0, 1.0, (len(scene.boxes), 2))
    own[::2] = 0.0
    frames = []
    for number in range(FRAMES):
        offset = np.array([3.0 * number, 0.8 * number])
        moved = scene.boxes + np.tile(own * number - offset, 2)
        clipped = np.clip(moved, 0, [*WINDOW, *WINDOW])
        seen = np.prod(clipped[:, 2:] - clipped[:, :2], axis=1) > 0.5 * np.prod(moved[:, 2:] - moved[:, :2], axis=1)
        frames.append(Frame(clipped[seen], scene.labels[seen], np.flatnonzero(seen) + 1))
    return frames


def idf1(expected: list[Frame], found: list[Frame], overlap: float = 0.5) -> float:
    """IDF1: twice the boxes of the best one-to-one pairing of identities, over all boxes of both (Ristani, 2016)."""
    together: dict[tuple[int, int], int] = {}
    for true, own in zip(expected, found, strict=True):
        pairs = np.argwhere(iou(true.boxes, own.boxes) >= overlap) if len(true.boxes) and len(own.boxes) else []
        for row, column in pairs:
            key = int(true.identities[row]), int(own.identities[column])
            together[key] = together.get(key, 0) + 1
    rows, columns = (sorted({key[side] for key in together}) for side in (0, 1))
    table = np.zeros((len(rows), len(columns)))
    for (row, column), count in together.items():
        table[rows.index(row), columns.index(column)] = count
    matched = table[linear_sum_assignment(-table)].sum()
    return float(2 * matched / (sum(len(one.boxes) for one in expected) + sum(len(one.boxes) for one in found)))


@dataclass(frozen=True)
class Detected:
    """What a detector would say of a frame."""

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]


def detected(frame: Frame, random: np.random.Generator, recall: float) -> Detected:
    """Boxes with jitter, missed ones, weak scores, names that flicker, and false alarms that do not last."""
    kept = random.random(len(frame.boxes)) < recall
    sizes = frame.boxes[kept, 2:] - frame.boxes[kept, :2]
    boxes = frame.boxes[kept] + random.normal(0, 0.04, (kept.sum(), 4)) * np.tile(sizes, 2)
    labels = np.where(random.random(kept.sum()) < 0.1, 4, frame.labels[kept])
    scores = np.where(random.random(kept.sum()) < 0.2, 0.2, random.uniform(0.4, 0.9, kept.sum()))
    count = random.poisson(0.5)
    corner = random.uniform(0, 300, (count, 2))
    false = np.concatenate([corner, corner + random.uniform(8, 30, (count, 2))], axis=1)
    return Detected(
        np.concatenate([boxes, false]),
        np.concatenate([scores, random.uniform(0.3, 0.5, count)]),
        np.concatenate([labels, random.integers(0, 10, count)]),
    )


def followed(frames: list[Detected], tracker: Tracker) -> list[Frame]:
    results = []
    for frame in frames:
        identities = tracker.update(frame.boxes, frame.scores, frame.labels)
        kept = identities != UNTRACKED
        results.append(Frame(frame.boxes[kept], frame.labels[kept], identities[kept]))
    return results


@pytest.fixture(scope="module")
def clip() -> list[Frame]:
    return panned_clip()


def test_idf1_of_known_cases() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [50, 50, 60, 60]])
    frames = [Frame(boxes, np.zeros(2, int), np.array([1, 2]))] * 10
    swapped = [*frames[:5], *[Frame(boxes, np.zeros(2, int), np.array([2, 1]))] * 5]
    missed = [*frames[:5], *[Frame(boxes[:1], np.zeros(1, int), np.array([1]))] * 5]
    assert idf1(frames, frames) == 1.0
    assert idf1(frames, swapped) == 0.5
    assert idf1(frames, missed) == pytest.approx(2 * 15 / 35)


@pytest.mark.parametrize(("recall", "least"), [(1.0, 0.98), (0.9, 0.9), (0.8, 0.82)])
@pytest.mark.parametrize(("seed", "boxes"), [(7, 9000), (1, 500)])
def test_a_clip_of_200_frames_keeps_its_identities(seed: int, boxes: int, recall: float, least: float) -> None:
    # A crowded scene and one of about three objects, where false alarms weigh most.
    random, clip = np.random.default_rng(0), panned_clip(seed)
    assert len(clip) == FRAMES
    assert sum(len(frame.boxes) for frame in clip) > boxes
    frames = [detected(frame, random, recall) for frame in clip]
    assert idf1(clip, followed(frames, Tracker())) >= least


def test_a_list_without_tracking_scores_low(clip: list[Frame]) -> None:
    # What the score is worth: identities by position in the list are no tracking.
    listed = [Frame(frame.boxes, frame.labels, np.arange(len(frame.boxes)) + 1) for frame in clip]
    assert idf1(clip, listed) < 0.3


@pytest.mark.parametrize("stop", [1, 29, 59])
def test_a_replayed_tracker_goes_on_as_if_never_stopped(clip: list[Frame], stop: int) -> None:
    random = np.random.default_rng(1)
    frames = [detected(frame, random, 0.85) for frame in clip[:60]]
    whole, resumed = Tracker(), Tracker()
    for frame in frames[:stop]:
        identities = whole.update(frame.boxes, frame.scores, frame.labels)
        # What the log of a video has: weak detections only if they continue a track.
        kept = (identities != UNTRACKED) | (frame.scores >= whole.score_threshold)
        resumed.replay(frame.boxes[kept], frame.scores[kept], frame.labels[kept], identities[kept])
    for frame in frames[stop:]:
        expected = whole.update(frame.boxes, frame.scores, frame.labels)
        assert resumed.update(frame.boxes, frame.scores, frame.labels).tolist() == expected.tolist()


BOX = np.array([[10.0, 10, 30, 30]])
CAR = np.array([3])


def test_a_lost_object_comes_back_within_the_memory() -> None:
    tracker = Tracker(memory=5)
    nothing = (np.zeros((0, 4)), np.zeros(0), np.zeros(0, dtype=np.int64))
    assert tracker.update(BOX, np.array([0.9]), CAR).tolist() == [1]
    for _ in range(4):
        assert tracker.update(*nothing).tolist() == []
    assert tracker.update(BOX, np.array([0.9]), CAR).tolist() == [1]
    for _ in range(6):
        tracker.update(*nothing)
    assert [tracker.update(BOX, np.array([0.9]), CAR).tolist() for _ in range(2)] == [[UNTRACKED], [2]]


def test_weak_detections_continue_tracks_and_start_none() -> None:
    tracker = Tracker()
    assert tracker.update(BOX, np.array([0.2]), CAR).tolist() == [UNTRACKED]
    assert tracker.update(BOX, np.array([0.5]), CAR).tolist() == [UNTRACKED]
    assert tracker.update(BOX, np.array([0.5]), CAR).tolist() == [1]
    assert tracker.update(BOX, np.array([0.2]), CAR).tolist() == [1]
    assert tracker.update(BOX, np.array([0.05]), CAR).tolist() == [UNTRACKED]


def test_what_flashes_up_once_gets_no_identity() -> None:
    tracker = Tracker()
    here, there = BOX, BOX + 100
    assert tracker.update(here, np.array([0.9]), CAR).tolist() == [1]
    for place in (there, there + 100, there + 200, there + 300):
        both = np.concatenate([here, place])
        assert tracker.update(both, np.array([0.9, 0.9]), np.array([3, 3])).tolist() == [1, UNTRACKED]
    assert tracker.update(both, np.array([0.9, 0.9]), np.array([3, 3])).tolist() == [1, 2]


def test_a_second_name_of_an_object_is_not_a_second_object() -> None:
    twice = np.concatenate([BOX, BOX + 0.5])
    assert Tracker().update(twice, np.array([0.5, 0.8]), np.array([3, 4])).tolist() == [UNTRACKED, 1]


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(InputError, match="1 boxes, 2 scores and 1 labels"):
        Tracker().update(BOX, np.ones(2), CAR)
    with pytest.raises(InputError, match="memory: 0 is not a number of frames"):
        Tracker(memory=0)


def test_objects_are_counted_once_by_their_usual_name() -> None:
    frames = [[(1, "car"), (2, "bus")], [(1, "van"), (2, "bus")], [(1, "car"), (2, "bus"), (3, "car")]]
    assert count_tracks(frames) == {"car": 1, "bus": 1}
    assert count_tracks(frames[:1]) == {"car": 1, "bus": 1}
    assert count_tracks([]) == {}
