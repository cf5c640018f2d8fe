"""The figures of `vgtok bench scale`, on receipts and frames small enough for a test."""

from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from vgtok.bench.scale import _local_rate, _render, _write_tiny, steady_rate
from vgtok.scale.shards import Receipt
from vgtok.scale.sources import find_frames
from vgtok.scale.tasks import TokenizeTask
from vgtok.tokenize.tokenizer import Tokenizer


def receipt(worker: str, began: float, ended: float) -> Receipt:
    return Receipt(0, 10, 0, worker, began, ended)


def test_the_rate_starts_when_every_worker_has_begun() -> None:
    alone = [receipt("a", 0, 1), receipt("a", 1, 2), receipt("a", 2, 3)]
    assert steady_rate(alone) == pytest.approx(10)
    # The second worker begins late, and from then on both work.
    assert steady_rate([*alone, receipt("a", 3, 4), receipt("b", 2, 3), receipt("b", 3, 4)]) == pytest.approx(20)


def test_the_local_engine_is_timed_over_every_frame(tmp_path: Path) -> None:
    _render(tmp_path / "frames", 3)
    log = tmp_path / "log" / "0.jsonl"
    task = TokenizeTask(Tokenizer(budget=0.4, canvas=(192, 128)))
    assert _local_rate(task, find_frames(tmp_path / "frames"), log) > 0
    assert len(log.read_text().splitlines()) == 3


def test_tiny_frames_fill_parquet_files(tmp_path: Path) -> None:
    _write_tiny(tmp_path / "frames", 25)
    tables = [parquet.read_table(path) for path in sorted((tmp_path / "frames").iterdir())]
    images = [image for table in tables for image in table["image"].to_pylist()]
    assert len(set(images)) == len(images) == 25
