"""The coverage map: every table and figure of the paper, the study that makes it, and what that study needs.

Studies load on first use.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from vgtok.errors import InputError
from vgtok.study.result import Study

STUDIES = {
    "inversion": "vgtok.study.inversion",
    "budget-audit": "vgtok.study.budget_audit",
    "affine": "vgtok.study.affine",
    "exact": "vgtok.study.exact",
    "auroc": "vgtok.study.auroc",
    "cover": "vgtok.study.cover",
    "coarsened": "vgtok.study.coarsened",
    "monotone": "vgtok.study.monotone",
    "compute": "vgtok.study.compute",
    "fidelity": "vgtok.study.fidelity",
    "seeds": "vgtok.study.seeds",
    "teaser": "vgtok.study.teaser",
    "method": "vgtok.study.method",
    "overfit": "vgtok.study.overfit",
    "ladder": "vgtok.study.ladder",
    "rank": "vgtok.study.rank",
    "resolution": "vgtok.study.resolution",
    "scorers": "vgtok.study.scorers",
    "bands": "vgtok.study.bands",
    "dense-epochs": "vgtok.study.dense_epochs",
    "pareto": "vgtok.study.pareto",
    "published": "vgtok.study.published",
    "slicing": "vgtok.study.slicing",
    "grid": "vgtok.study.grid",
}


@dataclass(frozen=True)
class Entry:
    """One table or figure: its label in the paper, what it shows, its study, the data and the model it needs."""

    label: str
    title: str
    study: str
    data: tuple[str, ...]
    model: str = "-"


_BOTH = ("visdrone", "aitodv2")
_ONE = ("visdrone",)
_DETECTOR = "detector"

ENTRIES: Sequence[Entry] = (
    Entry("Fig. 1", "VGTok on a frame at 70% of tokens", "teaser", _ONE),
    Entry("Fig. 2", "Score, split, gate, pack", "method", _ONE),
    Entry("Fig. 3", "Operating range on VisDrone", "pareto", _ONE, _DETECTOR),
    Entry("Tab. 1", "Published record, VisDrone val", "published", _ONE, _DETECTOR),
    Entry("Tab. 2", "Published record, AI-TOD-v2 test", "published", ("aitodv2",), _DETECTOR),
    Entry("Tab. 3", "Forward-pass cost at four budgets", "compute", _ONE, "encoder"),
    Entry("Tab. 4", "Gate ablation at five matched budgets", "grid", _ONE, _DETECTOR),
    Entry("Tab. A1", "Gate statistic discrimination", "auroc", _BOTH),
    Entry("Tab. A2", "Eight pixel scores", "scorers", _ONE, _DETECTOR),
    Entry("Tab. A3", "Zero-shot gate effect", "ladder", _ONE, _DETECTOR),
    Entry("Tab. A4", "Fused score, gated and ungated", "grid", _ONE, _DETECTOR),
    Entry("Tab. A5", "Seed spread behind Table 4", "grid", _ONE, _DETECTOR),
    Entry("Tab. A6", "Six COCO bands at 40%", "bands", _ONE, _DETECTOR),
    Entry("Tab. A7", "AI-TOD-v2 area bands", "bands", ("aitodv2",), _DETECTOR),
    Entry("Tab. A8", "AI-TOD-v2 very-tiny band per class", "bands", ("aitodv2",), _DETECTOR),
    Entry("Tab. A9", "Gate rank sweep", "rank", _ONE, _DETECTOR),
    Entry("Tab. A10", "Seed replicates and the seed floor", "seeds", ()),
    Entry("Tab. A11", "Token-budget audit at 40%", "budget-audit", _ONE),
    Entry("Tab. A12", "Inverted retention tables", "inversion", _BOTH),
    Entry("Tab. A13", "Input resolution", "resolution", _ONE, _DETECTOR),
    Entry("Tab. A14", "Coarsened tokens by distance", "coarsened", _BOTH),
    Entry("Fig. A1", "Dense epoch ladder", "dense-epochs", _ONE, _DETECTOR),
    Entry("Sec. 3.2", "Affine retention law of Single-pass", "affine", _ONE),
    Entry("Sec. B", "Upsample MSE is not monotone", "monotone", _ONE),
    Entry("ours", "Exact budgets per image", "exact", _ONE),
    Entry("ours", "Fine cover of objects", "cover", _ONE),
    Entry("ours", "Packed features against dense ones", "fidelity", _ONE, "DeiT weights"),
    Entry("ours", "Whole frames against slicing", "slicing", _ONE, _DETECTOR),
    Entry("ours", "The tiny detector learns eight scenes by heart", "overfit", ()),
)
"""All 18 tables and 4 figures of the paper, then what its prose claims, then studies of our own."""


def load_study(name: str) -> Study:
    """The study of that name, refused with the names there are."""
    if name not in STUDIES:
        raise InputError(f"study '{name}': no such study; there are {', '.join(STUDIES)}")
    study = import_module(STUDIES[name]).STUDY
    assert isinstance(study, Study)
    return study


def data_present(name: str) -> bool:
    """Whether the environment names a folder of that data set (VGTOK_VISDRONE, VGTOK_AITODV2)."""
    return Path(os.environ.get(f"VGTOK_{name.upper()}", "")).is_dir() and f"VGTOK_{name.upper()}" in os.environ


def last_run(study: str, results: Path) -> str | None:
    """The day the study was last written to a results folder, as its own file says."""
    try:
        return str(json.loads((results / f"{study}.json").read_text())["ran_at"])[:10]
    except (OSError, ValueError, KeyError):
        return None
