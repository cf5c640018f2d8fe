"""Finetunes by seed: Tables 4, A4 and A5, procedure only, and Table A10, the seed floor.

The paper's grid is 72 finetunes of a large detector on eight GPUs. Here the same grid runs on the synthetic recipe: one
model is trained densely, then finetuned per cell and scored on unseen scenes, read by the tokenizer of the cell. Given
training data and days, a saved model is finetuned on those instead and scored on images kept apart. Each finetune
resumes after a stop; finished ones are reused by the same code. The seed floor is recomputed from the cells the paper
prints. Only rounded numbers are printed, so each result has the lowest and highest value they allow.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from vgtok.detect.saving import is_saved, save_detector
from vgtok.errors import InputError
from vgtok.evaluate.resampling import (
    RUNS,
    mean_and_deviation,
    pooled_deviation,
    seed_floor,
    standard_error_of_difference,
)
from vgtok.files import read_json, write_text
from vgtok.journal import is_number
from vgtok.study.cells import TRAINING, code_digest
from vgtok.study.paper import BUDGETS, FUSED, FUSED_GATED, GATED, SINGLE_PASS, TOP_HAT, TRAINED, TRAINED_EFFECT
from vgtok.study.result import RENDERED, Draw, Inputs, Line, Panel, Read, Result, Row, Study, line_plot
from vgtok.study.tokenizers import SETTINGS
from vgtok.train.loop import train
from vgtok.train.recipe import Recipe, recipe_named
from vgtok.train.run_to_model import detector_from_run
from vgtok.train.validation import open_data, score, validation_images

_METRICS = ("AP", "AP50")
_FINETUNE, _SCENES = 20, 24
_REAL_FINETUNE, _REAL_IMAGES = 400, 100
"""Steps of a finetune and images kept apart on real data."""
_CONTROLS = {GATED: TOP_HAT, FUSED_GATED: FUSED}


@dataclass(frozen=True)
class Grid:
    """A grid of finetunes of `base`: its tokenizers, budgets and seeds, steps per finetune and scenes to score.

    They start from `model`, or from a model that `base` trains densely if it is None.
    """

    base: Recipe
    tokenizers: Sequence[str]
    budgets: Sequence[float]
    seeds: Sequence[int]
    finetune: int
    scenes: int
    model: str | None = None

    def cells(self) -> list[tuple[str, float]]:
        """Return every tokenizer at every budget the paper prints; Single-pass cannot reach the lowest."""
        return [(name, budget) for name in self.tokenizers for budget in self.budgets if budget in TRAINED[name]]


def grid(inputs: Inputs) -> Result:
    """Run the whole grid, scored on `--limit` scenes, or on so many images kept apart from `--data`."""
    folder = inputs.out / "grid" / code_digest(TRAINING)[:16]
    seeds = tuple(range(RUNS))
    if inputs.dataset is None:
        whole = Grid(
            recipe_named("synthetic-smoke"), tuple(TRAINED), BUDGETS, seeds, _FINETUNE, inputs.limit or _SCENES
        )
        return report(whole, measure(whole, folder))
    if inputs.source is None or ":" not in inputs.source:
        raise InputError("--data: this study trains; name a training split, e.g. visdrone:VisDrone2019-DET-train")
    images = inputs.limit or _REAL_IMAGES
    # Recipes know a data set by its place, and other data are another grid.
    recipe = replace(recipe_named("tiny-visdrone"), data=inputs.source, held_out=images, validation="")
    whole = Grid(recipe, tuple(TRAINED), BUDGETS, seeds, _REAL_FINETUNE, images, inputs.model)
    place = folder / hashlib.sha256(f"{inputs.source} {inputs.model} {images}".encode()).hexdigest()[:12]
    return report(whole, measure(whole, place))


def measure(grid: Grid, folder: Path) -> dict[tuple[str, float], list[dict[str, float]]]:
    """Return the scores of every seed of every cell; read finished ones back and resume stopped ones."""
    base = replace(grid.base, budgets=(1.0,), evaluate_every=0)
    start = str(folder / "base-model") if grid.model is None else grid.model
    if grid.model is None and not is_saved(Path(start)):
        train(base, folder / "base")
        save_detector(detector_from_run(folder / "base"), Path(start))
    console, cells = Console(stderr=True), grid.cells()
    scores: dict[tuple[str, float], list[dict[str, float]]] = {}
    for number, (name, budget) in enumerate(cells):
        for seed in grid.seeds:
            scores.setdefault((name, budget), []).append(_finetuned(grid, base, start, folder, name, budget, seed))
        best = max(entry["AP"] for entry in scores[name, budget])
        console.print(f"grid: {number + 1} of {len(cells)}, {name} at {budget:.0%}: AP {best:.2f}", highlight=False)
    return scores


def _finetuned(
    grid: Grid, base: Recipe, start: str, folder: Path, name: str, budget: float, seed: int
) -> dict[str, float]:
    label = name.lower().replace(" (+) ", "-").replace(" + ", "-").replace(" ", "-")
    place = folder / f"{label}-{budget:.2f}-{seed}"
    # The number of scenes changes the scores, not the finetune.
    done = place / f"scores-{grid.scenes}.json"
    if (known := _known_scores(done)) is not None:
        return known
    recipe = replace(
        base,
        name=place.name,
        init_from=start,
        budgets=(budget,),
        steps=grid.finetune,
        learning_rate=base.learning_rate / 3,
        warmup_steps=min(10, grid.finetune),
        # Samples are drawn from the seed, so each run is finetuned on its own scenes.
        seed=1 + seed,
        evaluate_budget=budget,
        evaluate_images=grid.scenes,
        **{**SETTINGS[name], "tokenizers": ()},
    )
    train(recipe, place)
    data = open_data(recipe)
    images = validation_images(recipe, folder / f"{grid.scenes}-scenes", data.dataset, data.held_out)
    assert images is not None
    detector = detector_from_run(place)
    found = score(detector.model.config, detector.model.state_dict(), recipe, images)
    write_text(done, json.dumps(found) + "\n")
    return found


def _known_scores(path: Path) -> dict[str, float] | None:
    """Return the scores in a file, None if it is missing or damaged."""
    try:
        scores = read_json(path)
    except InputError:
        return None
    if not isinstance(scores, dict) or not all(is_number(scores.get(metric)) for metric in _METRICS):
        return None
    return {metric: float(value) for metric, value in scores.items() if is_number(value)}


def report(grid: Grid, scores: Mapping[tuple[str, float], Sequence[Mapping[str, float]]]) -> Result:
    """Return means, deviations and gate effects beside the paper's, with the floor below which none is significant."""
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
    rendered = grid.model is None
    begun = f"trained densely for {grid.base.steps} steps, " if rendered else f"from {Path(str(grid.model)).name}, "
    scored_on = "rendered scenes" if rendered else "images kept apart"
    notes = [
        f"{len(scores)} cells x {len(grid.seeds)} seeds of {grid.base.name}: {begun}finetuned for {grid.finetune} "
        f"steps, scored on {grid.scenes} {scored_on}",
        "procedure only: the paper's columns are its large detector on VisDrone val, finetuned for eight epochs; "
        "nothing measured here confirms or contradicts them",
        *_trends(means),
        *(f"seed floor of {metric}: {floor:.2f} points between two means" for metric, floor in floors.items()),
    ]
    return Result(
        rows,
        notes,
        plot=_plot(means),
        also={"runs": _runs(scores)},
        read=Read(RENDERED if rendered else grid.base.data.partition(":")[0], grid.scenes),
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
    """Yield how the gate effect changes as the budget tightens, here and in the paper, for each gated tokenizer."""
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


def _plot(means: Mapping[Any, tuple[float, float]]) -> Draw:
    lines = []
    for number, name in enumerate(dict.fromkeys(cell[0] for cell, _ in means)):
        points = sorted((cell[1], *means[cell, "AP"]) for cell, metric in means if cell[0] == name and metric == "AP")
        budgets, values, spread = zip(*points, strict=True)
        lines.append(Line([100 * budget for budget in budgets], values, name, number, errors=spread))
    return line_plot(Panel(lines, {"xlabel": "tokens, % of dense", "ylabel": "AP, mean and deviation over seeds"}))


_HALF_STEP = 0.005
"""Half the last printed digit: the rounding error of a printed value."""

_DEVIATION_STEP = _HALF_STEP * math.sqrt((RUNS - 1 / RUNS) / (RUNS - 1))
"""The largest rounding error of the deviation of RUNS rounded runs."""

_RUNS_AT_40: dict[str, dict[str, tuple[tuple[float, float, float], float, float]]] = {
    "AP": {
        TOP_HAT: ((43.66, 43.76, 43.77), 43.73, 0.06),
        GATED: ((44.11, 44.26, 44.30), 44.22, 0.10),
        FUSED: ((43.65, 43.90, 43.99), 43.85, 0.18),
        FUSED_GATED: ((43.96, 43.95, 43.91), 43.94, 0.03),
    },
    "APS": {
        TOP_HAT: ((34.89, 34.93, 35.16), 34.99, 0.15),
        GATED: ((35.35, 35.65, 35.68), 35.56, 0.18),
        FUSED: ((34.88, 35.13, 35.29), 35.10, 0.21),
        FUSED_GATED: ((35.24, 35.09, 35.21), 35.18, 0.08),
    },
}
"""Table A10: three runs, their printed mean and deviation."""

_DEVIATIONS = {
    "AP": {
        SINGLE_PASS: (0.06, 0.06, 0.12, 0.09),
        TOP_HAT: (0.17, 0.16, 0.12, 0.06, 0.07),
        GATED: (0.10, 0.03, 0.07, 0.10, 0.11),
        FUSED: (0.04, 0.08, 0.13, 0.18, 0.12),
        FUSED_GATED: (0.02, 0.08, 0.05, 0.03, 0.04),
    },
    "APS": {
        SINGLE_PASS: (0.04, 0.06, 0.09, 0.11),
        TOP_HAT: (0.26, 0.18, 0.18, 0.15, 0.07),
        GATED: (0.21, 0.08, 0.11, 0.18, 0.08),
        FUSED: (0.06, 0.12, 0.17, 0.21, 0.09),
        FUSED_GATED: (0.05, 0.11, 0.16, 0.08, 0.02),
    },
}
"""Tables A4 and A5: the printed deviations at 80, 70, 60, 40 and 20%; Single-pass cannot reach 20%."""

_FLOORS = {"AP": (0.0974, 0.0795, 0.16), "APS": (0.1342, 0.1095, 0.22)}
"""Pooled deviation, standard error of a difference and seed floor, from the caption of Table A10."""


def seeds(_: Inputs) -> Result:
    """Recompute means, deviations and the floor from the printed cells; no data is needed."""
    rows = [row for metric in _FLOORS for row in (*_printed_cells(metric), *_pooled(metric))]
    outside = [row for row in rows if not row["lowest"] <= row["paper"] <= row["highest"]]
    notes = [
        "lowest and highest are what the printed digits allow: runs, means and deviations are printed to 0.01",
        f"{len(rows) - len(outside)} of {len(rows)} printed values lie between them",
        *(f"{row['quantity']}, {row['metric']}: the printed cells do not allow {row['paper']}" for row in outside),
        *(_reach(metric) for metric in _FLOORS),
        *(_separation(metric) for metric in _FLOORS),
    ]
    return Result(rows, notes, plot=line_plot(*map(_deviation_panel, _FLOORS), sharey=True), read=None)


def _printed_cells(metric: str) -> list[Row]:
    rows: list[Row] = []
    for name, (runs, printed_mean, printed_deviation) in _RUNS_AT_40[metric].items():
        mean, deviation = mean_and_deviation(runs)
        # The printed value is rounded once more, by up to half a step.
        rows.append(_checked(f"mean at 40%, {name}", metric, printed_mean, mean, 2 * _HALF_STEP, 2 * _HALF_STEP))
        slack = _DEVIATION_STEP + _HALF_STEP
        rows.append(_checked(f"deviation at 40%, {name}", metric, printed_deviation, deviation, slack, slack))
    return rows


def _pooled(metric: str) -> list[Row]:
    deviations = _all_deviations(metric)
    pooled = pooled_deviation(deviations)
    lowest, highest = _bounds(deviations)
    printed = _FLOORS[metric]
    steps: tuple[tuple[str, Callable[[float], float], float], ...] = (
        ("pooled deviation of 24 cells", float, 0.00005),
        ("standard error of a difference", standard_error_of_difference, 0.00005),
        ("seed floor", seed_floor, _HALF_STEP),
    )
    return [
        _checked(
            quantity,
            metric,
            paper,
            step(pooled),
            step(pooled) - step(lowest) + rounding,
            step(highest) - step(pooled) + rounding,
        )
        for (quantity, step, rounding), paper in zip(steps, printed, strict=True)
    ]


def _checked(quantity: str, metric: str, paper: float, computed: float, below: float, above: float) -> Row:
    return {
        "quantity": quantity,
        "metric": metric,
        "paper": paper,
        "computed": computed,
        "lowest": computed - below,
        "highest": computed + above,
    }


def _all_deviations(metric: str) -> list[float]:
    return [value for values in _DEVIATIONS[metric].values() for value in values]


def _bounds(deviations: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and highest pooled deviation the rounding of the cells allows."""
    low = pooled_deviation([max(0.0, value - _HALF_STEP) for value in deviations])
    return low, pooled_deviation([value + _HALF_STEP for value in deviations])


def _reach(metric: str) -> str:
    """Say how far rounding limits the reproduction."""
    deviations = _all_deviations(metric)
    lowest, highest = _bounds(deviations)
    pooled, printed = pooled_deviation(deviations), _FLOORS[metric][0]
    floor, printed_floor = seed_floor(pooled), _FLOORS[metric][2]
    agrees = "is" if f"{floor:.2f}" == f"{printed_floor:.2f}" else "is NOT"
    return (
        f"{metric}: {len(deviations)} cells at two digits pool to {pooled:.4f} where the paper's unrounded ones gave"
        f" {printed}; rounding only determines it to between {lowest:.4f} and {highest:.4f}. The floor {agrees} the"
        f" {printed_floor} printed"
    )


def _separation(metric: str) -> str:
    worst = min(_RUNS_AT_40[metric][GATED][0])
    best = max(_RUNS_AT_40[metric][TOP_HAT][0])
    verb = "do not overlap" if worst > best else "overlap"
    return f"{metric} at 40%: gated and ungated runs {verb}, worst gated {worst} against best ungated {best}"


def _deviation_panel(metric: str) -> Panel:
    """Return the printed deviations of every tokenizer, and the pooled one."""
    names = list(_DEVIATIONS[metric])
    lines = [Line(values, [i] * len(values), None, i, "o") for i, values in enumerate(_DEVIATIONS[metric].values())]
    pooled = _FLOORS[metric][0]
    lines.append(Line([pooled, pooled], [-0.5, len(names) - 0.5], None, "0.25", "--"))
    axes = {"xlabel": f"deviation of {metric} over three seeds", "xlim": (0, 0.3), "ylim": (len(names) - 0.5, -0.5)}
    return Panel(
        lines, {**axes, "yticks": range(len(names)), "yticklabels": names, "title": f"pooled, paper: {pooled}"}
    )


STUDIES = (
    Study(
        "grid",
        "Tables 4, A4 and A5, procedure only: finetunes of every tokenizer at every budget, by seed, with the seed "
        "floor",
        grid,
        takes=("data", "model", "limit"),
        frames=0,
    ),
    Study("seeds", "Table A10: seed replicates and the seed floor", seeds, takes=()),
)
