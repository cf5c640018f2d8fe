"""Follow objects through a video: boxes of one frame after another enter, an identity per box leaves.

The method is ByteTrack (Zhang et al., 2022): a Kalman filter of constant velocity predicts every track, strong
detections are assigned to the predictions first and weak ones to the tracks that are left. A track that nothing of an
earlier frame confirms has no identity yet.
docs/decisions/2026-11-17-tracking.md says why it is written out here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_SCORE
from vgtok.errors import InputError
from vgtok.overlap import iou

WEAK_SCORE = 0.1
"""Score from which a detection can continue a track, though not start one."""

UNTRACKED = 0
"""Identity of a detection that belongs to no track."""

_POSITION_NOISE, _VELOCITY_NOISE = 1 / 20, 1 / 160
"""Standard deviations of the filter as shares of the size of the box, ByteTrack's own."""
_MARGIN = 0.3
"""Share of its size a box is enlarged by on each side for matching: a small object may leave its own box in a frame."""
_STRONG_OVERLAP, _WEAK_OVERLAP = 0.2, 0.5
"""Least overlap of a prediction with a strong and with a weak detection."""
_OTHER_CLASS = 0.15
"""Overlap that a detection of another class loses: names flicker, but riders stay apart from what they ride."""
_DUPLICATE = 0.85
"""Overlap with a tracked detection at which another one is a second name of the same object."""
_STEP = np.array([[1.0, 1.0], [0.0, 1.0]])


@dataclass(frozen=True)
class _Track:
    """One object: `mean` (4, 2) of value and velocity of center x, center y, width and height; `spread` (4, 2, 2).

    `missed` counts the frames since it was last seen, `labels` how often it was called each class.
    """

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    missed: int
    labels: Mapping[int, int]

    @property
    def box(self) -> NDArray[np.float64]:
        """Corners (4,) x0 y0 x1 y1."""
        center, half = self.mean[:2, 0], np.maximum(self.mean[2:, 0], 1.0) / 2
        return np.concatenate([center - half, center + half])

    @property
    def label(self) -> int:
        """The class it was called most often."""
        return max(self.labels, key=lambda label: self.labels[label])


def _started(box: NDArray[np.float64], label: int, drift: NDArray[np.float64]) -> _Track:
    values = _centered(box)
    spread = np.zeros((4, 2, 2))
    sides = _sides(values)
    spread[:, 0, 0], spread[:, 1, 1] = (2 * _POSITION_NOISE * sides) ** 2, (10 * _VELOCITY_NOISE * sides) ** 2
    return _Track(np.stack([values, [*drift, 0.0, 0.0]], axis=1), spread, 0, {label: 1})


def _predicted(track: _Track) -> _Track:
    sides = _sides(track.mean[:, 0])
    spread = _STEP @ track.spread @ _STEP.T
    spread[:, 0, 0] += (_POSITION_NOISE * sides) ** 2
    spread[:, 1, 1] += (_VELOCITY_NOISE * sides) ** 2
    mean = track.mean.copy()
    # The size of an object that is out of sight does not go on changing.
    if track.missed:
        mean[2:, 1] = 0.0
    return replace(track, mean=mean @ _STEP.T, spread=spread, missed=track.missed + 1)


def _seen(track: _Track, box: NDArray[np.float64], label: int) -> _Track:
    values = _centered(box)
    total = track.spread[:, 0, 0] + (_POSITION_NOISE * _sides(values)) ** 2
    gain = track.spread[:, :, 0] / total[:, None]
    mean = track.mean + gain * (values - track.mean[:, 0])[:, None]
    spread = track.spread - gain[:, :, None] * gain[:, None, :] * total[:, None, None]
    return _Track(mean, spread, 0, {**track.labels, label: track.labels.get(label, 0) + 1})


def _centered(box: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([(box[:2] + box[2:]) / 2, box[2:] - box[:2]])


def _sides(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the side that the noise of each of the four values is a share of."""
    return np.maximum(values[[2, 3, 2, 3]], 1.0)


class Tracker:
    """Give detections of successive frames identities: 1, 2, ... in the order objects appear.

    A detection of at least `score_threshold` can start a track; weaker ones, down to `WEAK_SCORE`, only continue one.
    After the first frame an object gets its identity when it is found in a second frame: what flashes up once is noise.
    A track that is not seen for `memory` frames ends.

    >>> tracker = Tracker()
    >>> tracker.update(np.array([[10.0, 10, 30, 20]]), np.array([0.9]), np.array([3]))
    array([1])
    >>> tracker.update(np.array([[50.0, 50, 70, 60], [12, 10, 32, 20]]), np.array([0.8, 0.2]), np.array([3, 3]))
    array([0, 1])
    >>> tracker.update(np.array([[52.0, 50, 72, 60], [14, 10, 34, 20]]), np.array([0.7, 0.4]), np.array([3, 3]))
    array([2, 1])
    """

    def __init__(self, score_threshold: float = DEFAULT_SCORE, memory: int = 30) -> None:
        if memory < 1:
            raise InputError(f"memory: {memory} is not a number of frames, 1 or more")
        self.score_threshold, self.memory = score_threshold, memory
        self._tracks: dict[int, _Track] = {}
        self._candidates: list[_Track] = []
        self._started, self._frames = 0, 0

    def update(
        self, boxes: NDArray[np.floating[Any]], scores: NDArray[np.floating[Any]], labels: NDArray[np.integer[Any]]
    ) -> NDArray[np.int64]:
        """Return the identity (K,) of each detection of the next frame, `UNTRACKED` for those that have none.

        `boxes` is (K, 4) x0 y0 x1 y1, `scores` and `labels` are (K,).
        """
        found = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        if not len(found) == len(scores) == len(labels):
            raise InputError(
                f"detections: {len(found)} boxes, {len(scores)} scores and {len(labels)} labels; give as many"
            )
        identities = np.full(len(found), UNTRACKED, dtype=np.int64)
        strong = np.flatnonzero(scores >= self.score_threshold)
        weak = np.flatnonzero((scores >= WEAK_SCORE) & (scores < self.score_threshold))
        predicted = {identity: _predicted(track) for identity, track in self._tracks.items()}
        self._assign(found, labels, strong, predicted, _STRONG_OVERLAP, identities)
        # After a longer gap a weak detection is more likely noise than the object.
        left = {key: track for key, track in predicted.items() if key not in identities and track.missed <= 2}
        self._assign(found, labels, weak, left, _WEAK_OVERLAP, identities)
        unnamed = self._unnamed(found, scores, identities)
        if self._frames:
            waiting = {self._started + 1 + n: _predicted(track) for n, track in enumerate(self._candidates)}
            self._assign(found, labels, unnamed, waiting, _STRONG_OVERLAP, identities)
        else:
            identities[unnamed] = np.arange(len(unnamed)) + 1
        # Number those that are new without gaps.
        new = identities > self._started
        identities[new] = self._started + 1 + np.argsort(np.argsort(identities[new]))
        self.replay(found, scores, labels, identities)
        return identities

    def replay(
        self,
        boxes: NDArray[np.floating[Any]],
        scores: NDArray[np.floating[Any]],
        labels: NDArray[np.integer[Any]],
        identities: NDArray[np.int64],
    ) -> None:
        """Take the next frame with the identities (K,) that `update` gave it before; used to resume.

        Detections below `score_threshold` without an identity make no difference.
        """
        found = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
        tracks = {identity: _predicted(track) for identity, track in self._tracks.items()}
        # What most objects do is the movement of the camera; an object that appears starts with it.
        moving = [track.mean[:2, 1] for track in self._tracks.values() if track.missed == 0]
        drift = np.median(moving, axis=0) if moving else np.zeros(2)
        for box, label, identity in zip(found, labels.tolist(), identities.tolist(), strict=True):
            if identity == UNTRACKED:
                continue
            known = tracks.get(identity)
            tracks[identity] = _started(box, label, drift) if known is None else _seen(known, box, label)
            self._started = max(self._started, identity)
        self._tracks = {identity: track for identity, track in tracks.items() if track.missed <= self.memory}
        self._candidates = [
            _started(found[place], int(labels[place]), drift) for place in self._unnamed(found, scores, identities)
        ]
        self._frames += 1

    def _unnamed(
        self, boxes: NDArray[np.float64], scores: NDArray[np.floating[Any]], identities: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the strong detections without identity, best first, each object once."""
        named = boxes[identities != UNTRACKED]
        able = np.flatnonzero((identities == UNTRACKED) & (scores >= self.score_threshold))
        chosen: list[int] = []
        for place in able[np.argsort(-scores[able], kind="stable")].tolist():
            others = np.concatenate([named, boxes[chosen]])
            if not len(others) or iou(boxes[None, place], others).max() < _DUPLICATE:
                chosen.append(place)
        return np.array(chosen, dtype=np.int64)

    @staticmethod
    def _assign(
        boxes: NDArray[np.float64],
        labels: NDArray[np.integer[Any]],
        chosen: NDArray[np.int64],
        tracks: Mapping[int, _Track],
        least: float,
        identities: NDArray[np.int64],
    ) -> None:
        """Assign the chosen detections to tracks so that overlaps are largest in total; writes `identities`."""
        if not len(chosen) or not tracks:
            return
        from scipy.optimize import linear_sum_assignment

        overlap = iou(_enlarged(boxes[chosen]), _enlarged(np.array([track.box for track in tracks.values()])))
        classes = np.array([track.label for track in tracks.values()])
        overlap -= _OTHER_CLASS * (labels[chosen, None] != classes[None])
        # Pairs that are refused must not decide among the others.
        overlap[overlap < least] = 0.0
        keys = np.array(list(tracks))
        for row, column in zip(*linear_sum_assignment(-overlap), strict=True):
            if overlap[row, column] > 0:
                identities[chosen[row]] = keys[column]


def _enlarged(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (N, 4) corner boxes with the margin for matching."""
    margin = _MARGIN * np.maximum(boxes[:, 2:] - boxes[:, :2], 1.0)
    return np.concatenate([boxes[:, :2] - margin, boxes[:, 2:] + margin], axis=1)


COUNTED_FRAMES = 3
"""Frames a track must be seen in to be counted, or all of a shorter clip: what flashes up once is mostly noise."""


def count_tracks(frames: Iterable[Sequence[tuple[int, str]]]) -> dict[str, int]:
    """Return the number of tracks of each class from (identity, class name) of every detection, frame by frame.

    A track counts as the class it was called most often, most numerous class first.
    """
    names: dict[int, Counter[str]] = {}
    total = 0
    for frame in frames:
        total += 1
        for identity, name in frame:
            names.setdefault(identity, Counter())[name] += 1
    least = min(COUNTED_FRAMES, total)
    return dict(Counter(votes.most_common(1)[0][0] for votes in names.values() if votes.total() >= least).most_common())
