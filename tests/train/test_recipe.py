"""Recipes: what the command line may set, what they refuse, and the paper's own numbers."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from vgtok.errors import InputError
from vgtok.train.recipe import RECIPES, Recipe, recipe_named
from vgtok.train.validation import validation_images


def test_fields_are_set_from_text_as_their_kind() -> None:
    recipe = recipe_named("tiny-visdrone").with_settings(
        {
            "batch": "8",
            "learning_rate": "1e-3",
            "flip": "false",
            "budgets": "1.0,0.4",
            "canvas": "1024x640",
            "data": "visdrone:x",
        }
    )
    assert (recipe.batch, recipe.learning_rate, recipe.flip, recipe.budgets) == (8, 1e-3, False, (1.0, 0.4))
    assert (recipe.canvas, recipe.data) == ((1024, 640), "visdrone:x")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("batches", "2", "no such setting; there are detector"),
        ("batch", "two", "expected a whole number"),
        ("batch", "0", "batch: 0 is not above 0"),
        ("flip", "maybe", "expected true or false"),
        ("budgets", "1.5", "are not shares"),
        ("crop", "100", "not a multiple of 64"),
        ("precision", "fp8", "is not one of auto, fp32, bf16"),
        ("schedule", "linear", "is not one of cosine, constant"),
        ("learning_rate", "nan", "learning_rate: nan is not a finite number"),
        ("weight_decay", "inf", "weight_decay: inf is not a finite number"),
        ("images_per_pass", "3", "does not divide the batch of 4"),
        ("tokenizers", "compact,tophat", "'tophat' is not one of single-pass, top-hat, top-hat.gate, compact"),
        ("synthetic", "2", "not a share between 0 and 1"),
    ],
)
def test_bad_settings_are_named(key: str, value: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        recipe_named("tiny-visdrone").with_settings({key: value})


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_survive_json(name: str) -> None:
    recipe = recipe_named(name)
    assert Recipe(**json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_the_paper_recipe_is_the_papers() -> None:
    finetune = recipe_named("paper-visdrone-finetune")
    assert (finetune.learning_rate, finetune.weight_decay, finetune.max_grad_norm, finetune.layer_decay) == (
        5e-5,
        0.01,
        0.1,
        0.8,
    )
    assert (finetune.warmup_steps, finetune.warmup_start, finetune.ema_momentum, finetune.ema_warmup) == (
        500,
        0.01,
        1e-4,
        2000,
    )
    assert (finetune.batch, finetune.epochs, finetune.detector) == (1, 8, "co-detr-eva02-large")


def test_an_epoch_of_each_data_set_is_kept_and_scored_at_the_budget_that_is_trained() -> None:
    images = {"paper-visdrone-dense": 6471, "paper-visdrone-finetune": 6471, "paper-aitodv2": 11214}
    for name, count in images.items():
        recipe = recipe_named(name)
        assert (recipe.batch, recipe.keep_every, recipe.evaluate_every) == (1, count, count)
        assert (recipe.evaluate_budget,) == recipe.budgets


def test_the_papers_recipes_evaluate_on_the_split_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_named("paper-visdrone-dense")
    monkeypatch.delenv("VGTOK_VISDRONE", raising=False)
    with pytest.raises(InputError, match="VGTOK_VISDRONE names, which is not set"):
        validation_images(recipe, tmp_path, None, ())
    assert validation_images(replace(recipe, validation=""), tmp_path, None, ()) is None
    monkeypatch.setenv("VGTOK_VISDRONE", str(tmp_path / "val"))
    with pytest.raises(InputError, match=str(tmp_path / "val")):
        validation_images(recipe, tmp_path, None, ())


def test_an_unknown_recipe_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="'paper' is not one of paper-visdrone-dense"):
        recipe_named("paper")


def test_every_field_has_help_and_a_group() -> None:
    groups = Recipe.describe()
    assert list(groups) == ["model", "data", "tokens", "optimization", "saving and evaluation"]
    assert [name for group in groups.values() for name in group] == [item.name for item in fields(Recipe)][1:]
    assert all(text.endswith(".") for group in groups.values() for text in group.values())


def test_old_names_of_settings_are_accepted_with_a_notice(caplog: pytest.LogCaptureFixture) -> None:
    recipe = recipe_named("tiny-visdrone")
    assert recipe.with_settings({"rate": "0.5", "keep": "7"}) == replace(recipe, learning_rate=0.5, keep_every=7)
    assert caplog.messages == ["--set rate: is now called learning_rate", "--set keep: is now called keep_every"]
    for settings in ({"rate": "1", "learning_rate": "2"}, {"learning_rate": "2", "rate": "1"}):
        with pytest.raises(InputError, match="--set rate: is the old name of learning_rate, which is set too"):
            recipe.with_settings(settings)
