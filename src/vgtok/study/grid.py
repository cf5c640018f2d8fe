"""Tables 4, A4 and A5, procedure only: every tokenizer finetuned at every budget from every seed, and the seed floor.

The paper's grid is 72 finetunes of a large detector on eight GPUs. Here the same grid runs on the synthetic recipe: one
model is trained densely, then finetuned per cell and scored on scenes it has not seen, read by the cell's own
tokenizer. Each finetune is a training run that goes on after a stop; finished ones are not run again by the same code.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vgtok.detect.saving import is_saved, save_detector
from vgtok.errors import InputError
from vgtok.evaluate.statistics import RUNS, mean_and_deviation, pooled_deviation, seed_floor
from vgtok.files import read_json, write_text
from vgtok.journal import is_number
from vgtok.study.paper_accuracy import FUSED, FUSED_GATED, GATED, SINGLE_PASS, TOP_HAT, TRAINED, TRAINED_EFFECT
from vgtok.study.result import PALETTE, RENDERED, Inputs, Read, Result, Row, Study
from vgtok.study.sources import TRAINING, code_digest
from vgtok.train.loop import train
from vgtok.train.outcome import detector_of
from vgtok.train.recipe import Recipe
from vgtok.train.recipes import recipe_named
from vgtok.train.validation import score, validation_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOKENIZERS: Mapping[str, Mapping[str, Any]] = {
    SINGLE_PASS: {"splitter": "single_pass", "rank": 0.0},
    TOP_HAT: {"rank": 0.0},
    GATED: {"rank": 0.20},
    FUSED: {"scorer": "fused", "rank": 0.0},
    FUSED_GATED: {"scorer": "fused", "rank": 0.20},
}
_METRICS = ("AP", "AP50")
_FINETUNE, _SCENES = 20, 24
_CONTROLS = {GATED: TOP_HAT, FUSED_GATED: FUSED}


@dataclass(frozen=True)
class Grid:
    """The cells of a grid: what is finetuned from `base`, how often, and on how many scenes it is scored."""

    base: Recipe
    tokenizers: Sequence[str]
    budgets: Sequence[float]
    seeds: Sequence[int]
    finetune: int
    scenes: int

    def cells(self) -> list[tuple[str, float]]:
        """Every tokenizer at every budget it is printed at: Single-pass cannot reach the lowest."""
        return [(name, budget) for name in self.tokenizers for budget in self.budgets if budget in TRAINED[name]]


def run(inputs: Inputs) -> Result:
    """The whole grid, on as many scenes as `--limit` says."""
    grid = Grid(
        recipe_named("synthetic-smoke"),
        tuple(TOKENIZERS),
        (0.80, 0.70, 0.60, 0.40, 0.20),
        tuple(range(RUNS)),
        _FINETUNE,
        inputs.limit or _SCENES,
    )
    return report(grid, measure(grid, inputs.out / "grid" / code_digest(TRAINING)[:16]))


def measure(grid: Grid, folder: Path) -> dict[tuple[str, float], list[dict[str, float]]]:
    """Scores of every seed of every cell; what is finished is read back, what was stopped goes on."""
    base = replace(grid.base, budgets=(1.0,), evaluate=0)
    start = folder / "base-model"
    if not is_saved(start):
        train(base, folder / "base")
        save_detector(detector_of(folder / "base"), start)
    console, cells = Console(stderr=True), grid.cells()
    scores: dict[tuple[str, float], list[dict[str, float]]] = {}
    for number, (name, budget) in enumerate(cells):
        for seed in grid.seeds:
            scores.setdefault((name, budget), []).append(_finetuned(grid, base, start, folder, name, budget, seed))
        best = max(entry["AP"] for entry in scores[name, budget])
        console.print(f"grid: {number + 1} of {len(cells)}, {name} at {budget:.0%}: AP {best:.2f}", highlight=False)
    return scores


def _finetuned(
    grid: Grid, base: Recipe, start: Path, folder: Path, name: str, budget: float, seed: int
) -> dict[str, float]:
    label = name.lower().replace(" (+) ", "-").replace(" + ", "-").replace(" ", "-")
    place = folder / f"{label}-{budget:.2f}-{seed}"
    # Finetunes do not depend on how many scenes they are scored on; scores do.
    done = place / f"scores-{grid.scenes}.json"
    if (known := _known_scores(done)) is not None:
        return known
    recipe = replace(
        base,
        name=place.name,
        start=str(start),
        budgets=(budget,),
        steps=grid.finetune,
        rate=base.rate / 3,
        warmup=min(10, grid.finetune),
        # Lessons are drawn from the seed, so each run is finetuned on scenes of its own.
        seed=1 + seed,
        evaluate_budget=budget,
        evaluate_images=grid.scenes,
        **TOKENIZERS[name],
    )
    train(recipe, place)
    images = validation_images(recipe, folder / f"{grid.scenes}-scenes", None, ())
    assert images is not None
    detector = detector_of(place)
    found = score(detector.model.config, detector.model.state_dict(), recipe, images)
    write_text(done, json.dumps(found) + "\n")
    return found


def _known_scores(path: Path) -> dict[str, float] | None:
    """The scores in a file; None where there is none, or a damaged one."""
    try:
        scores = read_json(path)
    except InputError:
        return None
    if not isinstance(scores, dict) or not all(is_number(scores.get(metric)) for metric in _METRICS):
        return None
    return {metric: float(value) for metric, value in scores.items() if is_number(value)}


def report(grid: Grid, scores: Mapping[tuple[str, float], Sequence[Mapping[str, float]]]) -> Result:
    """Means, deviations and what the gate adds, beside the paper's, with the floor below which nothing is read."""
    means = {
        (cell, metric): mean_and_deviation([entry[metric] for entry in runs])
        for cell, runs in scores.items()
        for metric in _METRICS
    }
    floors = {
        metric: seed_floor(pooled_deviation([means[cell, metric][1] for cell in scores]), len(grid.seeds))
        for metric in _METRICS
    }
    rows = [_row(cell, means, floors) for cell in scores]
    notes = [
        f"{len(scores)} cells x {len(grid.seeds)} seeds of {grid.base.name}: trained densely for {grid.base.steps} "
        f"steps, finetuned for {grid.finetune}, scored on {grid.scenes} rendered scenes",
        "procedure only: the paper's columns are its large detector on VisDrone val, finetuned for eight epochs; "
        "nothing measured here confirms or contradicts them",
        *_trends(means),
        *(f"seed floor of {metric}: {floor:.2f} points between two means" for metric, floor in floors.items()),
    ]
    return Result(
        rows,
        notes,
        plot=lambda figure: _plot(figure, means),
        also={"runs": _runs(scores)},
        read=Read(RENDERED, grid.scenes),
    )


def _row(cell: tuple[str, float], means: Mapping[Any, tuple[float, float]], floors: Mapping[str, float]) -> Row:
    name, budget = cell
    control = (_CONTROLS.get(name, ""), budget)
    effect = means[cell, "AP"][0] - means[control, "AP"][0] if (control, "AP") in means else None
    return {
        "tokenizer": name,
        "budget": budget,
        "AP": means[cell, "AP"][0],
        "paper_AP": TRAINED[name][budget]["AP"],
        "AP_sd": means[cell, "AP"][1],
        "AP50": means[cell, "AP50"][0],
        "AP50_sd": means[cell, "AP50"][1],
        "gate_adds": effect,
        "paper_gate_adds": None if effect is None else TRAINED_EFFECT[name][budget],
        "above_floor": None if effect is None else abs(effect) > floors["AP"],
    }


def _trends(means: Mapping[Any, tuple[float, float]]) -> Iterator[str]:
    """How the gate effect moves as the budget tightens, here and in the paper, for each gated tokenizer."""
    for name, control in _CONTROLS.items():
        cells = {cell for cell, _ in means}
        budgets = sorted((at for own, at in cells if own == name and (control, at) in cells), reverse=True)
        if len(budgets) < 2:
            continue
        measured = {at: means[(name, at), "AP"][0] - means[(control, at), "AP"][0] for at in budgets}
        rise = measured[budgets[-1]] - measured[budgets[0]]
        printed = TRAINED_EFFECT[name][budgets[-1]] - TRAINED_EFFECT[name][budgets[0]]
        against = "as in the paper" if rise * printed > 0 else "the reverse of the paper's trend"
        yield (
            f"gate effect of {name} at {', '.join(f'{budget:.0%}' for budget in budgets)}: "
            f"{', '.join(f'{measured[budget]:+.2f}' for budget in budgets)}; paper "
            f"{', '.join(f'{TRAINED_EFFECT[name][budget]:+.2f}' for budget in budgets)}: it "
            f"{'rises' if rise > 0 else 'falls'} as the budget tightens here, {against}"
        )


def _runs(scores: Mapping[tuple[str, float], Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    return [
        {"tokenizer": name, "budget": budget, "seed": seed, **entry}
        for (name, budget), runs in scores.items()
        for seed, entry in enumerate(runs)
    ]


def _plot(figure: "Figure", means: Mapping[Any, tuple[float, float]]) -> None:
    axes = figure.subplots()
    names = dict.fromkeys(cell[0] for cell, _ in means)
    for colour, name in zip(PALETTE, names, strict=False):
        points = sorted((cell[1], *means[cell, "AP"]) for cell, metric in means if cell[0] == name and metric == "AP")
        budgets, values, spread = zip(*points, strict=True)
        axes.errorbar([100 * b for b in budgets], values, yerr=spread, color=colour, label=name, capsize=3, marker="o")
    axes.set(xlabel="tokens, % of dense", ylabel="AP, mean and deviation over seeds")
    axes.legend()


STUDY = Study(
    "grid",
    "Tables 4, A4 and A5, procedure only: finetunes of every tokenizer at every budget, by seed, with the seed floor",
    run,
    takes=("limit",),
)
