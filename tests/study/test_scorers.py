"""Every score and rank is compared with the shipped one."""

from collections.abc import Callable

from vgtok.study.result import Result
from vgtok.tokenize.tokenizer import SHIPPED_RANK


def test_every_score_is_compared_with_the_top_hat(accuracy: Callable[[str], Result]) -> None:
    *rows, spread = accuracy("scorers").rows
    assert {row["versus"] for row in rows} == {"tophat"}
    assert len(rows) == 8
    assert spread["scorer"] == "spread"
    assert spread["paper_AP50"] == 2.10


def test_every_rank_is_compared_with_the_shipped_one(accuracy: Callable[[str], Result]) -> None:
    rows = accuracy("rank").rows
    assert len(rows) == 18
    assert all(row["difference"] == 0 for row in rows if row["rank"] == SHIPPED_RANK)
    assert [row["paper_AP"] for row in rows if row["budget"] == 0.4] == [39.45, 40.06, 40.40, 40.44, 40.14, 40.05]
