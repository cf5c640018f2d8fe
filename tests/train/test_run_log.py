"""The reports of a run: damage costs a line, and a disk that is full one sentence."""

import json
from pathlib import Path

import pytest

from vgtok.errors import InputError
from vgtok.train.run_folder import METRICS_FILE, RunLog, read_metrics


def report(step: int) -> dict[str, float]:
    return {"step": step, "samples": 2 * step, "seconds": 0.5 * step, "loss": 3.25}


DAMAGED = [
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b"[1, 2]",
    b'{"loss": 1.0}',
    b'{"step": "3", "samples": 6, "seconds": 1, "loss": 2}',
    b'{"step": 3, "samples": 6, "loss": 2}',
    b'{"step": 3, "samples": 6, "seconds": 1, "loss": NaN}',
    b'{"step": 3, "AP": null}',
    b'{"step": 3, "samples": 6, "seco',
]


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_costs_its_report(line: bytes, tmp_path: Path) -> None:
    good = [json.dumps(report(step)).encode() for step in (1, 2, 4)]
    (tmp_path / METRICS_FILE).write_bytes(b"\n".join([*good[:2], line, good[2]]) + b"\n")
    assert [entry["step"] for entry in read_metrics(tmp_path)] == [1, 2, 4]
    with RunLog(tmp_path, 2, 10) as log:
        log.write({"step": 3, "samples": 6, "AP": 1.5})
    assert read_metrics(tmp_path) == [report(1), report(2), {"step": 3, "samples": 6, "AP": 1.5}]


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).mkdir()
    with pytest.raises(InputError, match=f"{METRICS_FILE}: cannot be read"):
        read_metrics(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with RunLog(tmp_path, 0, 10) as log, Path("/dev/full").open("ab", buffering=0) as full:
        log.file.close()
        log.file = full
        with pytest.raises(InputError, match=f"{METRICS_FILE}: cannot be written"):
            log.write(report(1))
