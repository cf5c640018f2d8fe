"""Can the detector learn at all: co-detr-vit-tiny on eight synthetic scenes, with and without its auxiliary heads.

Not a table of the paper. Each run keeps its state beside the results and goes on from it after a stop, until the query
head's AP50 passes the goal or its steps or its time are up.
"""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from vgtok.data.synthetic import NAMES, Scene, SceneConfig, render_scene
from vgtok.detect.config import detector_configuration
from vgtok.detect.model import CoDetr
from vgtok.evaluate.detections import Detections, GroundTruth
from vgtok.evaluate.protocols import EVERYTHING
from vgtok.evaluate.scoring import precision_curves
from vgtok.files import replacing
from vgtok.study.result import PALETTE, RENDERED, Inputs, Read, Result, Row, Study
from vgtok.study.sources import TRAINING, code_digest
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIG = "co-detr-vit-tiny"
GOAL = 0.95
SECONDS = 1800.0
"""Training time a run may take, evaluation left out."""

_SCENES, _SIDE, _BUDGET, _EVERY = 8, 256, 0.7, 100
_SMALLEST = 4.0
"""Scenes where the frame cuts an object to fewer pixels than this are passed over."""
_QUERIES = 150
"""Proposals that are trained at a time: a scene this small needs no more, and each costs the decoder."""
_RATE, _WARM_UP, _STEPS, _CLIP, _DECAY = 3e-4, 100, 1500, 1.0, 1e-4
_SETTINGS: dict[str, tuple[str, ...]] = {"auxiliary": ("roi", "atss"), "query-only": ()}


@dataclass(frozen=True)
class Lesson:
    """One scene ready to train on: `frame` (3, H, W) uint8, its partition, and its boxes and labels."""

    scene: Scene
    frame: Tensor
    tokens: Tokens
    target: Mapping[str, Tensor]


@dataclass
class Progress:
    """Where a run stands: steps and seconds of training so far, and what was logged every hundred steps."""

    steps: int = 0
    seconds: float = 0.0
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the goal was passed, or the steps or the time are up."""
        passed = bool(self.log) and self.log[-1]["ap50"] >= GOAL
        return passed or self.steps >= _STEPS or self.seconds >= SECONDS


def run(inputs: Inputs) -> Result:
    """Train with and without auxiliary heads, each until AP50 passes the goal or its time is up."""
    lessons = scenes()
    runs = {name: train(name, heads, lessons, inputs.out) for name, heads in _SETTINGS.items()}
    rows = [_row(name, progress) for name, progress in runs.items()]
    boxes = sum(len(lesson.scene.boxes) for lesson in lessons)
    notes = [
        f"{CONFIG} from random weights, {_SCENES} scenes of {_SIDE} px with {boxes} objects, {_BUDGET:.0%} of tokens",
        f"scenes where an object is under {_SMALLEST:.0f} px wide or high, as the frame's border cuts them, or with "
        "fewer than three objects are passed over; the scenes have no people",
        f"a run stops at an AP50 of {GOAL}, after {_STEPS} steps or {SECONDS / 60:.0f} minutes of training",
        *(f"{name}: rose from first to last: {', '.join(rose)}" for name, p in runs.items() if (rose := risen(p.log))),
    ]
    also = {"logs": {name: progress.log for name, progress in runs.items()}}
    return Result(rows, notes, plot=lambda figure: _plot(figure, runs), also=also, read=Read(RENDERED, len(lessons)))


def scenes() -> list[Lesson]:
    """Eight seeded scenes of traffic without people, who at this density are slivers of a few pixels."""
    config = SceneConfig(pixels_per_meter=12.0, traffic=1.0, crowd=0.0)
    tokenizer = Tokenizer(budget=_BUDGET, canvas="native")
    lessons = []
    for seed in itertools.count():
        scene = render_scene(seed, _SIDE, _SIDE, config)
        sides = scene.boxes[:, 2:] - scene.boxes[:, :2]
        if len(sides) < 3 or sides.min() < _SMALLEST:
            continue
        frame = torch.from_numpy(scene.pixels).permute(2, 0, 1).contiguous()
        target = {"boxes": torch.from_numpy(scene.boxes), "labels": torch.from_numpy(scene.labels)}
        lessons.append(Lesson(scene, frame, tokenizer(scene.pixels), target))
        if len(lessons) == _SCENES:
            break
    return lessons


def train(name: str, auxiliary: tuple[str, ...], lessons: Sequence[Lesson], folder: Path) -> Progress:
    """Train one model, or go on with it, and log losses and AP50 every hundred steps."""
    torch.manual_seed(0)
    model = CoDetr(detector_configuration(CONFIG, names=NAMES, auxiliary=auxiliary))
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=_DECAY)
    # State of other code would go on as if this code had made it.
    progress, path = Progress(), folder / f"overfit-{name}-{code_digest(TRAINING)[:16]}.pt"
    if path.is_file():
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        progress = Progress(state["steps"], state["seconds"], state["log"])
    console = Console(stderr=True)
    while not progress.done:
        sums: dict[str, float] = {}
        start = time.perf_counter()
        for _ in range(_EVERY):
            lesson = lessons[_turn(progress.steps, len(lessons))]
            for group in optimiser.param_groups:
                group["lr"] = rate(progress.steps)
            for kind, value in step(model, optimiser, lesson).items():
                sums[kind] = sums.get(kind, 0.0) + value / _EVERY
            progress.steps += 1
        progress.seconds += time.perf_counter() - start
        ap50 = average_precision(model, lessons)
        progress.log.append({"step": progress.steps, "seconds": progress.seconds, "ap50": ap50, "losses": sums})
        console.print(
            f"overfit {name}: step {progress.steps}, {progress.seconds:.0f} s, "
            f"loss {sum(sums.values()):.2f}, AP50 {ap50:.3f}",
            highlight=False,
        )
        with replacing(path) as temporary:
            torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), **vars(progress)}, temporary)
    return progress


def rate(step: int) -> float:
    """The learning rate of a step: a warm-up, then half a cosine down to a hundredth."""
    share = min(step / _STEPS, 1.0)
    return _RATE * min(1.0, (step + 1) / _WARM_UP) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * share)))


def step(model: CoDetr, optimiser: torch.optim.Optimizer, lesson: Lesson) -> dict[str, float]:
    """One update on one scene; returns its losses by part, layers added up."""
    model.train()
    losses = model.loss([lesson.frame], [lesson.tokens], [lesson.target], queries=_QUERIES)
    optimiser.zero_grad()
    torch.autograd.backward(torch.stack(list(losses.values())).sum())
    torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
    optimiser.step()
    parts: dict[str, float] = {}
    for name, value in losses.items():
        part, *_, kind = name.split("/")
        parts[f"{part}/{kind}"] = parts.get(f"{part}/{kind}", 0.0) + float(value.detach())
    return parts


def average_precision(model: CoDetr, lessons: Sequence[Lesson]) -> float:
    """AP at an IoU of 0.5 of the query head over all scenes, the mean over classes present, from 0 to 1."""
    model.eval()
    with torch.inference_mode():
        found = model.predict([lesson.frame for lesson in lessons], [lesson.tokens for lesson in lessons], 100)
    boxes, scores, labels = (np.concatenate([part[i].numpy() for part in found]) for i in range(3))
    image = np.repeat(np.arange(len(lessons)), [len(part[1]) for part in found])
    detections = Detections(_sized(boxes), scores.astype(np.float64), labels, image)
    curves = precision_curves(_truth(lessons), detections, [EVERYTHING], 100)[0, :, :, 0]
    return float(curves[:, curves[0] >= 0].mean())


def risen(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """The losses that are not lower at the end of a log than at its start."""
    if not log:
        return []
    first, last = log[0]["losses"], log[-1]["losses"]
    return [kind for kind in first if not last[kind] < first[kind]]


def _turn(step: int, count: int) -> int:
    """The scene of a step: all in a new order every round, the same after a stop."""
    return int(np.random.default_rng(step // count).permutation(count)[step % count])


def _truth(lessons: Sequence[Lesson]) -> GroundTruth:
    boxes = _sized(np.concatenate([lesson.scene.boxes for lesson in lessons]))
    labels = np.concatenate([lesson.scene.labels for lesson in lessons])
    image = np.repeat(np.arange(len(lessons)), [len(lesson.scene.labels) for lesson in lessons])
    crowd = np.zeros(len(labels), dtype=np.bool_)
    regions = (np.zeros((0, 4)),) * len(lessons)
    areas = boxes[:, 2] * boxes[:, 3]
    return GroundTruth(NAMES, np.arange(len(lessons)), boxes, areas, labels, crowd, image, regions, 0, ())


def _sized(corners: Any) -> Any:
    """(N, 4) corners to x, y, width, height."""
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1).astype(np.float64)


def _row(name: str, progress: Progress) -> Row:
    first, last = progress.log[0], progress.log[-1]
    totals = [sum(entry["losses"].values()) for entry in (first, last)]
    return {
        "heads": name,
        "steps": progress.steps,
        "minutes": progress.seconds / 60,
        "ap50": last["ap50"],
        "goal": GOAL,
        "first_loss": totals[0],
        "last_loss": totals[1],
        "losses": len(last["losses"]),
        "losses_that_fell": len(last["losses"]) - len(risen(progress.log)),
    }


def _plot(figure: "Figure", runs: Mapping[str, Progress]) -> None:
    precision, loss = figure.subplots(1, 2)
    for colour, (name, progress) in zip(PALETTE, runs.items(), strict=False):
        steps = [entry["step"] for entry in progress.log]
        precision.plot(steps, [entry["ap50"] for entry in progress.log], color=colour, label=name)
        # The losses both runs have, so that the curves compare.
        queries = [sum(v for k, v in e["losses"].items() if k.startswith("queries/")) for e in progress.log]
        loss.plot(steps, queries, color=colour, label=name)
    precision.axhline(GOAL, color="0.4", linewidth=1, linestyle="--")
    precision.set(xlabel="steps", ylabel="AP50 of the query head", ylim=(0, 1))
    loss.set(xlabel="steps", ylabel="loss of the queries", yscale="log")
    precision.legend()


STUDY = Study("overfit", "co-detr-vit-tiny on eight scenes, with and without auxiliary heads", run, takes=())
