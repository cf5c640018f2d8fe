"""Every score and rank is compared with the shipped one."""

from collections.abc import Callable

from vgtok.study.result import Result
from vgtok.tokenize.tokenizer import SHIPPED_RANK


def test_every_score_is_compared_with_the_top_hat(accuracy: Callable[[str], Result]) -> None:
    whole = accuracy("scorers").rows
    rows, spread, tight = whole[:8], whole[8], whole[9:]
    assert {row["versus"] for row in (*rows, *tight)} == {"tophat"}
    assert {row["setting"] for row in rows} == {"Single-pass, 70%"}
    # The quadtree cannot hold upsample MSE to a budget.
    assert len(tight) == 2 * 7
    assert {row["retained"] < 0.5 for row in tight} == {True}
    assert all(row["paper_AP"] is None for row in tight)
    assert spread["scorer"] == "spread"
    assert spread["paper_AP50"] == 2.10


def test_every_rank_is_compared_with_the_shipped_one(accuracy: Callable[[str], Result]) -> None:
    rows = accuracy("rank").rows
    assert len(rows) == 18
    assert all(row["difference"] == 0 for row in rows if row["rank"] == SHIPPED_RANK)
    assert [row["paper_AP"] for row in rows if row["budget"] == 0.4] == [39.45, 40.06, 40.40, 40.44, 40.14, 40.05]
