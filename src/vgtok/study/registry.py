"""The coverage map: every table and figure of the paper, the study that makes it, and what that study needs.

Studies load on first use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from vgtok.errors import InputError
from vgtok.files import read_json
from vgtok.study.environment import data_problem, weights_problem
from vgtok.study.result import DEIT_WEIGHTS, RENDERED, Study

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


Compares = Literal["same model", "other model", "other data", "paper only", "-"]
"""What stands beside the paper's figures: the paper's own model or tokenizer, another model, another model on other
data, or nothing but figures the paper prints. Studies of our own compare with no table."""


@dataclass(frozen=True)
class Entry:
    """One table or figure: its label in the paper, what it shows, its study, and the data and model it needs.

    Of `data` one set is enough. `weights` is a file in the folder VGTOK_WEIGHTS names.
    """

    label: str
    title: str
    study: str
    compares: Compares
    data: tuple[str, ...]
    model: str = "-"
    weights: str | None = None
    data_optional: bool = False

    @property
    def command(self) -> str:
        """What makes it; a table of AI-TOD-v2 alone has to say so, as VisDrone comes first."""
        return f"vgtok study {self.study}" + (" --data aitodv2" if self.data == _AITOD else "")

    def needs(self) -> tuple[str, ...]:
        """What it lacks here, by name; nothing where it can run."""
        lacking: list[str] = []
        if self.data and not self.data_optional and not any(map(data_present, self.data)):
            lacking.append(self.data[0])
        if self.weights is not None and weights_problem(self.weights):
            lacking.append("weights")
        return tuple(lacking)

    def compared(self) -> Compares:
        """What stands beside the paper's figures here: of AI-TOD-v2 without its data nothing does."""
        return "paper only" if self.data == _AITOD and self.needs() else self.compares


_BOTH = ("visdrone", "aitodv2")
_ONE = ("visdrone",)
_AITOD = ("aitodv2",)
_DRAWN = (RENDERED,)
_DETECTOR = "detector"
_SAME: Compares = "same model"
_OTHER: Compares = "other model"

ENTRIES: Sequence[Entry] = (
    Entry("Fig. 1", "VGTok on a frame at 70% of tokens", "teaser", _SAME, _ONE, data_optional=True),
    Entry("Fig. 2", "Score, split, gate, pack", "method", _SAME, _ONE, data_optional=True),
    Entry("Fig. 3", "Operating range on VisDrone", "pareto", _OTHER, _ONE, _DETECTOR),
    Entry("Tab. 1", "Published record, VisDrone val", "published", _OTHER, _ONE, _DETECTOR),
    Entry("Tab. 2", "Published record, AI-TOD-v2 test", "published", _OTHER, _AITOD, _DETECTOR),
    Entry("Tab. 3", "Forward-pass FLOPs at four budgets, without ms and GB", "compute", _SAME, _ONE, "encoder"),
    Entry("Tab. 4", "Gate ablation at five budgets, procedure only", "grid", "other data", _DRAWN, _DETECTOR),
    Entry("Tab. A1", "Gate statistic discrimination", "auroc", _SAME, _BOTH),
    Entry("Tab. A2", "Eight pixel scores", "scorers", _OTHER, _ONE, _DETECTOR),
    Entry("Tab. A3", "Zero-shot gate effect", "ladder", _OTHER, _ONE, _DETECTOR),
    Entry("Tab. A4", "Fused score, gated and ungated, procedure only", "grid", "other data", _DRAWN, _DETECTOR),
    Entry("Tab. A5", "Seed spread behind Table 4, procedure only", "grid", "other data", _DRAWN, _DETECTOR),
    Entry("Tab. A6", "Six COCO bands at 40%", "bands", _OTHER, _ONE, _DETECTOR),
    Entry("Tab. A7", "AI-TOD-v2 area bands", "bands", _OTHER, _AITOD, _DETECTOR),
    Entry("Tab. A8", "AI-TOD-v2 very-tiny band per class", "bands", _OTHER, _AITOD, _DETECTOR),
    Entry("Tab. A9", "Gate rank sweep", "rank", _OTHER, _ONE, _DETECTOR),
    Entry("Tab. A10", "Seed replicates and the seed floor", "seeds", "paper only", ()),
    Entry("Tab. A11", "Token-budget audit at 40%", "budget-audit", _SAME, _ONE),
    Entry("Tab. A12", "Inverted retention tables", "inversion", _SAME, _BOTH),
    Entry("Tab. A13", "Input resolution", "resolution", _OTHER, _ONE, _DETECTOR),
    Entry("Tab. A14", "Coarsened tokens by distance", "coarsened", _SAME, _BOTH),
    Entry("Fig. A1", "Dense epoch ladder", "dense-epochs", _OTHER, _ONE, _DETECTOR),
    Entry("Sec. 3.2", "Affine retention law of Single-pass", "affine", _SAME, _ONE),
    Entry("Sec. B", "Upsample MSE is not monotone", "monotone", _SAME, _ONE),
    Entry("ours", "Exact budgets per image", "exact", "-", _ONE),
    Entry("ours", "Fine cover of objects", "cover", "-", _ONE),
    Entry("ours", "Packed features against dense ones", "fidelity", "-", _ONE, "DeiT weights", DEIT_WEIGHTS),
    Entry("ours", "Whole frames against slicing", "slicing", "-", _ONE, _DETECTOR),
    Entry("ours", "The tiny detector learns eight scenes by heart", "overfit", "-", _DRAWN, _DETECTOR),
)
"""All 18 tables and 4 figures of the paper, then what its prose claims, then studies of our own."""


def load_study(name: str) -> Study:
    """The study of that name, refused with the names there are."""
    if name not in STUDIES:
        raise InputError(f"study '{name}': no such study; there are {', '.join(STUDIES)}")
    study = import_module(STUDIES[name]).STUDY
    assert isinstance(study, Study)
    return study


def data_kinds(study: str) -> tuple[str, ...]:
    """The data sets a study is made for, in the order they are looked for."""
    named = (name for entry in ENTRIES if entry.study == study for name in entry.data)
    return tuple(dict.fromkeys(name for name in named if name != RENDERED))


def data_present(name: str) -> bool:
    """Whether data of that name can be read here: scenes are rendered, a data set is opened to see."""
    return name == RENDERED or data_problem(name) is None


def last_run(study: str, results: Path) -> str | None:
    """The day the study was last written to a results folder, as its own file says."""
    try:
        document = read_json(results / f"{study}.json")
    except InputError:
        return None
    return str(document["ran_at"])[:10] if isinstance(document, dict) and "ran_at" in document else None
