"""Ratios of the tokenizer are of what they name."""

from pathlib import Path

import pytest

from vgtok.bench import tokenizer


def test_ratios_of_the_tokenizer_are_of_what_they_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"tokenize": 30.0, "budget": 45.0, "yardstick": 20.0, "decode_resize": 60.0}
    frame = tmp_path / "frame.jpg"
    frame.write_bytes(tokenizer._rendered_jpeg())
    monkeypatch.setattr(tokenizer, "interleaved_medians", lambda functions, repeats: {n: known[n] for n in functions})
    monkeypatch.setattr(tokenizer, "peak_extra_megabytes", lambda *_: None)
    cost = tokenizer.measure_tokenizer(frame, 3)
    assert (cost.tokenize_over_yardstick, cost.tokenize_over_decode_resize) == (1.5, 0.5)
    assert cost.budget_over_percentile == 1.5
    assert cost.peak_extra_mb is None
