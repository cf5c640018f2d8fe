"""The verbs as data sets of Ray Data: rows of tokens, detections or counts, one per frame, computed when read."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vgtok.defaults import DEFAULT_BUDGET, DEFAULT_MODEL, DEFAULT_SCORE
from vgtok.errors import VGTokError
from vgtok.scale.cluster import Engine, Worker, count_slots, imported_ray
from vgtok.scale.frames import Piece, cut_shards
from vgtok.scale.pipeline import FrameWorker, Pool
from vgtok.scale.sources import find_frames
from vgtok.scale.tasks import DETECT_WORKER, DetectTask, SweepTask, Task, TokenizeTask
from vgtok.tokenize.calibrate import Sweep
from vgtok.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ray.data import Dataset

Frames = str | Path | Sequence[str | Path] | Sequence[Piece]
"""What `find_frames` takes, or what it returned."""


def tokenize_dataset(
    frames: Frames,
    tokenizer: Tokenizer | None = None,
    *,
    workers: int | None = None,
    worker: Worker | None = None,
    shard_frames: int | None = None,
) -> "Dataset":
    """Return the tokens of every frame, by default at a budget of 40%; `tokens_of` turns a row into `Tokens`.

    Connect to a cluster first, with `ray.init` or `connected`. Rows have the columns index, frame, source and error
    before those of the result; a frame that cannot be read is a row with an error.
    """
    task = TokenizeTask(tokenizer or Tokenizer(budget=DEFAULT_BUDGET))
    return _dataset(task, frames, Engine(workers=workers, worker=worker or Worker()), shard_frames)


def detect_dataset(
    frames: Frames,
    model: str = DEFAULT_MODEL,
    budget: float | None = None,
    *,
    score_threshold: float = DEFAULT_SCORE,
    max_detections: int = 1000,
    head: Literal["query", "atss"] | None = None,
    workers: int | None = None,
    worker: Worker | None = None,
    shard_frames: int | None = None,
) -> "Dataset":
    """Return the objects of every frame, in the fields of a COCO results file.

    The model is named as for `vgtok.load`, and loaded once by each worker; all machines must be able to read it.
    Otherwise as `tokenize_dataset`.
    """
    task = DetectTask(model, budget, score_threshold, max_detections, head)
    return _dataset(task, frames, Engine(workers=workers, worker=worker or DETECT_WORKER), shard_frames)


def sweep_dataset(
    frames: Frames,
    sweep: Sweep | None = None,
    *,
    workers: int | None = None,
    worker: Worker | None = None,
    shard_frames: int | None = None,
) -> "Dataset":
    """Return the token counts of every frame at the settings of a sweep, by scorer, rank and percentile as a flat list.

    Otherwise as `tokenize_dataset`.
    """
    return _dataset(
        SweepTask(sweep or Sweep()), frames, Engine(workers=workers, worker=worker or Worker()), shard_frames
    )


def _dataset(task: Task, frames: Frames, engine: Engine, shard_frames: int | None) -> "Dataset":
    ray = imported_ray()
    if not ray.is_initialized():
        raise VGTokError(
            "not connected to Ray; call ray.init() first, or use it within vgtok.scale.connected(Engine())"
        )
    if ray.util.client.ray.is_connected():
        raise VGTokError("Ray Data needs a process of the cluster: run this on one of its machines, not through ray://")
    given = [frames] if isinstance(frames, str | Path) else list(frames)
    pieces = [piece for piece in given if not isinstance(piece, str | Path)]
    pieces = pieces or find_frames([source for source in given if isinstance(source, str | Path)])
    shards = cut_shards(pieces, shard_frames)
    fitting = count_slots(ray, engine.worker)
    workers = min(engine.workers or fitting, len(shards))
    return Pool(FrameWorker, {"task": task}, shards, workers, engine.worker).dataset()
