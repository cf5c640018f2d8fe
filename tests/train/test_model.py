"""What a run starts from: a converted release made ready for coarse tokens, and what the paper's recipes ask for."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

from tests.detect.public_layout import public_layout
from tests.detect.small_models import ENCODER, SMALL, small_detector, small_model
from tests.encode.small import frame, partition
from vgtok.data.dataset import AnnotatedDataset
from vgtok.data.visdrone import NAMES
from vgtok.detect.checkpoint import convert_co_detr
from vgtok.detect.detector import Detector
from vgtok.detect.model import CoDetr
from vgtok.detect.saving import load_detector, save_detector
from vgtok.errors import InputError
from vgtok.train import loop
from vgtok.train.model import initial_model, prepared
from vgtok.train.outcome import detector_of
from vgtok.train.recipe import Recipe
from vgtok.train.recipes import RECIPES, recipe_named
from vgtok.train.validation import score

from .small import small_recipe

PADDED = {**ENCODER, "grid_multiple": 2}


def parameters(model: CoDetr) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("changes", "millions"),
    [
        ({}, 376.27),
        ({"splitter": "single_pass"}, 371.02),
        ({"budgets": (1.0, 0.4)}, 376.27),
        ({"budgets": (1.0,)}, 364.99),
    ],
)
def test_a_converted_release_gains_the_fusion_a_recipe_trains(changes: dict[str, object], millions: float) -> None:
    released = {name: torch.empty(shape, device="meta") for name, shape in public_layout().items()}
    model = convert_co_detr(released, "released.pth", NAMES).detector.model
    recipe = replace(recipe_named("paper-visdrone-finetune"), **changes)  # type: ignore[arg-type]
    assert parameters(prepared(model, recipe)) / 1e6 == pytest.approx(millions, abs=0.006)


def started(model: CoDetr, folder: Path, **changes: object) -> CoDetr:
    """The model a run would start from, with `model` saved as its start."""
    detector = small_detector()
    detector.model = model
    save_detector(detector, folder)
    recipe = small_recipe(start=str(folder), classes=SMALL.names, **changes)
    return initial_model(recipe, SMALL.names).eval()


def test_predictions_at_the_start_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    model = started(small_model(encoder_overrides=PADDED), tmp_path / "start", budgets=(0.4,))
    # As loaded: where in memory a weight lies decides how its products are rounded.
    converted = load_detector(tmp_path / "start").model
    assert model.config.encoder_config().fusion == (32, 64)
    assert parameters(model) > parameters(converted)
    image = frame(128, 192)
    tokens = [partition(image, 0.4)]
    assert len(set(tokens[0].sizes.tolist())) == 3
    with torch.inference_mode():
        before, after = (each.predict([image], tokens, 20)[0] for each in (converted, model))
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_a_model_with_a_fusion_keeps_its_own(tmp_path: Path) -> None:
    trained = small_model(encoder_overrides={**ENCODER, "fusion": (32, 64)})
    model = started(trained, tmp_path / "start", budgets=(0.4,))
    assert model.config == trained.config
    state = model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in trained.state_dict().items())


@pytest.mark.parametrize(("budgets", "default"), [((1.0,), 1.0), ((1.0, 0.5, 0.3), 0.5), ((0.7,), 0.7)])
def test_a_finetuned_release_is_read_at_what_it_was_trained_at(
    tmp_path: Path, budgets: tuple[float, ...], default: float
) -> None:
    detector = small_detector(names=("car",), encoder_overrides=PADDED)
    save_detector(detector, tmp_path / "start")
    recipe = small_recipe(start=str(tmp_path / "start"), budgets=budgets, steps=1, head="query", canvas=(80, 80))
    loop.train(recipe, tmp_path / "run")
    outcome = detector_of(tmp_path / "run")
    assert outcome.budget == default
    # Lessons are not padded, so neither is what they made.
    assert outcome.model.config.encoder_config().grid_multiple == 1


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("paper-")])
def test_the_papers_recipes_say_what_they_start_from(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VGTOK_WEIGHTS", raising=False)
    recipe = recipe_named(name)
    command = "vgtok train paper-visdrone-dense" if name.endswith("finetune") else "vgtok convert co-detr released.pth"
    with pytest.raises(InputError, match=rf"start: {name} starts from .*{command}.*--set start=MODEL"):
        initial_model(recipe, ("car", "van"))


def test_a_start_may_lie_in_the_folder_of_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_detector(small_detector(), tmp_path / "converted-co-detr")
    monkeypatch.setenv("VGTOK_WEIGHTS", str(tmp_path))
    recipe: Recipe = recipe_named("paper-visdrone-dense")
    assert initial_model(recipe, SMALL.names).config.names == SMALL.names
    with pytest.raises(InputError, match="knows other classes than the data"):
        initial_model(recipe, ("car",))


def test_a_start_is_not_loaded_onto_the_first_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of several processes each would, before it takes the model to a GPU of its own.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = started(small_model(), tmp_path / "start")
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def test_validation_takes_the_model_to_where_its_weights_are(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, moved = small_model().state_dict(), []

    def to(detector: Detector, device: torch.device) -> Detector:
        moved.append(device)
        raise InputError("that is all that is looked at")

    monkeypatch.setattr(Detector, "to", to)
    with pytest.raises(InputError, match="that is all"):
        score(SMALL, weights, small_recipe(head="query"), cast(AnnotatedDataset, None))
    assert moved == [torch.device("cpu")]
