"""Every table and figure of the paper with the study that reproduces it and what the study needs, and what is here.

A name enters, a study or a data set leaves. Studies are imported on first use. VGTOK_VISDRONE and VGTOK_AITODV2 name
folders of data, VGTOK_WEIGHTS a folder of starting checkpoints; each counts as present only if it can be opened.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal

from vgtok.data.dataset import Dataset, open_dataset
from vgtok.errors import InputError
from vgtok.files import read_json
from vgtok.study.result import DEIT_WEIGHTS, RENDERED, Study

_STUDIES = {
    "budgets": ("inversion", "budget-audit", "affine", "exact", "monotone"),
    "gates": ("auroc", "coarsened"),
    "cover": ("cover",),
    "encoder": ("compute", "fidelity"),
    "figures": ("teaser", "method"),
    "training": ("dense-epochs", "overfit"),
    "ladder": ("ladder", "pareto"),
    "scorers": ("scorers", "rank"),
    "resolution": ("resolution", "published"),
    "bands": ("bands",),
    "slicing": ("slicing",),
    "seams": ("seams",),
    "slicer": ("slicer",),
    "kept": ("kept",),
    "grid": ("grid", "seeds"),
}
STUDIES = {name: f"vgtok.study.{module}" for module, names in _STUDIES.items() for name in names}
"""The module of every study; its STUDIES hold it under that name."""

Compares = Literal["same model", "other model", "other data", "paper only", "-"]
"""What is compared with the paper's figures: the same model or tokenizer, another model, another model on other data,
or nothing. Studies of our own compare with no table."""


@dataclass(frozen=True)
class Entry:
    """One table or figure: its label in the paper, what it shows, its study, and the data and model it needs.

    One data set of `data` is enough. `weights` is a file in the folder that VGTOK_WEIGHTS names.
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
        """The command that runs it; tables of AI-TOD-v2 alone name it, as VisDrone is the default."""
        return f"vgtok study {self.study}" + (" --data aitodv2" if self.data == _AITOD else "")

    def needs(self) -> tuple[str, ...]:
        """Return the names of what is missing here, empty if it can run."""
        lacking: list[str] = []
        if self.data and not self.data_optional and not any(map(data_present, self.data)):
            lacking.append(self.data[0])
        if self.weights is not None and weights_problem(self.weights):
            lacking.append("weights")
        return tuple(lacking)

    def compared(self) -> Compares:
        """Return what is compared with the paper here: nothing for AI-TOD-v2 without its data."""
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
    Entry("Tab. 3", "Forward-pass FLOPs, ms and GB at four budgets", "compute", _SAME, _ONE, "encoder"),
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
    Entry("ours", "Frames by windows against whole ones", "seams", "-", _ONE, _DETECTOR),
    Entry("ours", "A budget of tiles for any detector", "slicer", "-", _ONE, _DETECTOR),
    Entry("ours", "What a partition keeps, by any detector", "kept", "-", _ONE, _DETECTOR),
    Entry("ours", "The tiny detector learns eight scenes by heart", "overfit", "-", _DRAWN, _DETECTOR),
)
"""All 18 tables and 4 figures of the paper, then claims of its text, then studies of our own."""


def load_study(name: str) -> Study:
    """Return the study of that name; raise InputError with the known names if there is none."""
    if name not in STUDIES:
        raise InputError(f"study '{name}': no such study; there are {', '.join(STUDIES)}")
    study: Study = next(study for study in import_module(STUDIES[name]).STUDIES if study.name == name)
    return study


def data_kinds(study: str) -> tuple[str, ...]:
    """Return the data sets a study is made for, in the order of preference."""
    named = (name for entry in ENTRIES if entry.study == study for name in entry.data)
    return tuple(dict.fromkeys(name for name in named if name != RENDERED))


def data_present(name: str) -> bool:
    """Return whether data of that name can be read here: scenes are rendered, a data set is opened."""
    return name == RENDERED or data_problem(name) is None


_PUBLISHED = Path("docs/results")
"""The results of this repository, in a checkout of it."""


def last_run(study: str, results: Path) -> str | None:
    """Return the day the study was last run, as its file in the results folder or in docs/results says, or None."""
    days = []
    for folder in (results, _PUBLISHED):
        try:
            document = read_json(folder / f"{study}.json")
        except InputError:
            continue
        if isinstance(document, dict) and "ran_at" in document:
            days.append(str(document["ran_at"])[:10])
    return max(days, default=None)


DATA = ("visdrone", "aitodv2")


def variable(name: str) -> str:
    """Return the environment variable that names the folder of a data set."""
    return f"VGTOK_{name.upper()}"


def named_dataset(data: str | None, kinds: tuple[str, ...]) -> Dataset | None:
    """Return the data set of `--data`; without it the first of `kinds` the environment names, or None.

    A bare 'visdrone' or 'aitodv2' is the one the environment names.
    """
    if data is None:
        present = next((kind for kind in kinds if os.environ.get(variable(kind))), None)
        return None if present is None else _from_environment(present)
    if data in DATA and not Path(data).exists():
        return _from_environment(data)
    return open_dataset(data)


@cache
def data_problem(name: str) -> str | None:
    """Return why the data set cannot be read by name alone, None if it can."""
    try:
        _from_environment(name)
    except InputError as error:
        return str(error)
    return None


def weights_problem(name: str) -> str | None:
    """Return why the checkpoint file of that name cannot be read, None if it can."""
    try:
        weights_file(name)
    except InputError as error:
        return str(error)
    return None


def weights_file(name: str) -> Path:
    """Return a checkpoint file in the folder that VGTOK_WEIGHTS names."""
    folder = os.environ.get("VGTOK_WEIGHTS")
    if not folder:
        raise InputError(f"VGTOK_WEIGHTS: names no folder; set it to one that holds {name}")
    path = Path(folder) / name
    if not path.is_file():
        raise InputError(f"VGTOK_WEIGHTS: {folder} does not hold {name}")
    return path


def _from_environment(name: str) -> Dataset:
    folder = os.environ.get(variable(name))
    if not folder:
        raise InputError(f"--data: '{name}' has no folder; write {name}:DIR or set {variable(name)}")
    try:
        return open_dataset(f"{name}:{folder}")
    except InputError as error:
        raise InputError(f"{variable(name)}: {error}") from None
