"""A recipe small enough to be followed many times over: rendered scenes of 128 px, a few steps."""

from dataclasses import replace

from vgtok.train.recipe import Recipe, recipe_named


def small_recipe(**changes: object) -> Recipe:
    base = replace(
        recipe_named("synthetic-smoke"),
        canvas=(128, 128),
        steps=6,
        batch=2,
        warmup_steps=2,
        checkpoint_every=2,
        evaluate_every=0,
        precision="fp32",
    )
    return replace(base, **changes)  # type: ignore[arg-type]
