"""Training samples: the same for the same number, strict partitions, objects inside, crops in their place."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from vgtok.data.convert import write_rendered
from vgtok.data.dataset import AnnotatedDataset, open_annotated
from vgtok.data.synthetic import SceneConfig
from vgtok.errors import InputError
from vgtok.names import VISDRONE as NAMES
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.train.samples import TrainingSample, TrainingSamples

from .small import small_recipe


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> AnnotatedDataset:
    """Three rendered frames of 400 x 260 px."""
    return open_annotated(write_rendered(tmp_path_factory.mktemp("set"), [1, 2, 3], 400, 260, SceneConfig(traffic=1.0)))


@pytest.fixture(scope="module")
def crops(rendered: AnnotatedDataset) -> TrainingSamples:
    recipe = small_recipe(
        data="set", canvas=(512, 320), crop=128, scale_min=0.8, scale_max=1.25, synthetic=0.25, photometric=True
    )
    return TrainingSamples(recipe, NAMES, rendered, range(3))


def test_every_sample_is_a_strict_partition_with_its_objects_inside(crops: TrainingSamples) -> None:
    seen = 0
    for number in range(40):
        sample = crops[number]
        sample.tokens.validate()
        height, width = sample.image.shape[1:]
        assert (height, width) == (sample.tokens.height, sample.tokens.width)
        assert 32 <= min(height, width) <= max(height, width) <= 128
        assert (sample.boxes[:, 2:] > sample.boxes[:, :2]).all()
        assert (sample.boxes >= 0).all()
        assert (sample.boxes[:, 2] <= width).all()
        assert (sample.boxes[:, 3] <= height).all()
        assert ((sample.labels >= 0) & (sample.labels < len(NAMES))).all()
        assert sample.crop.y + height <= sample.crop.canvas_height
        assert sample.crop.x + width <= sample.crop.canvas_width
        seen += len(sample.labels)
    assert seen > 40


def test_a_number_always_gives_the_same_sample(crops: TrainingSamples) -> None:
    for number in (0, 7, 13):
        first, again = crops[number], crops[number]
        assert (first.crop, first.budget) == (again.crop, again.budget)
        assert (first.image == again.image).all()
        assert (first.boxes == again.boxes).all()
        assert (first.tokens.sizes == again.tokens.sizes).all()


def test_prefetched_samples_come_in_order(crops: TrainingSamples) -> None:
    made = list(crops.prefetch([5, 2, 9, 11, 3, 4]))
    assert [sample.number for sample in made] == [5, 2, 9, 11, 3, 4]
    assert (made[2].image == crops[9].image).all()
    assert list(crops.prefetch([])) == []


def test_an_epoch_shows_every_image_once(rendered: AnnotatedDataset) -> None:
    samples = TrainingSamples(small_recipe(data="set", canvas=(256, 192), flip=False), NAMES, rendered, range(3))
    first = [samples[number] for number in range(3)]
    assert len({sample.image.float().mean().item() for sample in first}) == 3


def test_a_crop_has_the_tokens_and_pixels_of_its_frame(rendered: AnnotatedDataset) -> None:
    recipe = small_recipe(data="set", canvas=(512, 320), crop=128, flip=False, budgets=(0.5,))
    sample: TrainingSample = TrainingSamples(recipe, NAMES, rendered, [1])[0]
    tokenizer = Tokenizer(0.5, canvas=(512, 320))
    canvas = tokenizer.to_canvas(rendered.images[1])
    whole = tokenizer.partition(canvas)
    x, y = sample.crop.x, sample.crop.y
    height, width = sample.image.shape[1:]
    assert np.array_equal(sample.image.permute(1, 2, 0).numpy(), canvas.image[y : y + height, x : x + width])
    corners = {tuple(box) for box in whole.boxes.tolist()}
    assert {(a + x, b + y, c + x, d + y) for a, b, c, d in sample.tokens.boxes.tolist()} <= corners
    assert (sample.crop.canvas_height, sample.crop.canvas_width) == (canvas.height, canvas.width)


def test_ignored_regions_are_painted_over(tmp_path: Path) -> None:
    spec = write_rendered(tmp_path / "set", [4], 256, 192, SceneConfig(traffic=1.0))
    dataset = open_annotated(spec)

    class WithRegion:
        images, names = dataset.images, dataset.names

        def annotations(self, index: int) -> object:
            from dataclasses import replace

            return replace(dataset.annotations(index), ignored=np.array([[16.0, 32.0, 80.0, 96.0]]))

    recipe = small_recipe(data="set", canvas=(256, 192), flip=False)
    sample = TrainingSamples(recipe, NAMES, WithRegion(), [0])[0]  # type: ignore[arg-type]
    assert sample.image[:, 32:96, 16:80].unique(dim=1).shape[1] == 1
    assert sample.image[:, 96:, 80:].float().std() > 1


def test_no_images_are_refused(rendered: AnnotatedDataset) -> None:
    with pytest.raises(InputError, match="no image is left"):
        TrainingSamples(small_recipe(data="set"), NAMES, rendered, [])


def test_the_thread_that_prefetches_samples_ends_with_them() -> None:
    recipe = small_recipe()
    before = threading.active_count()
    with closing(TrainingSamples(recipe, recipe.classes, None, ()).prefetch(range(50))) as queue:
        assert next(queue).number == 0
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_loader_processes_make_the_same_samples_and_end_with_their_parent(tmp_path: Path) -> None:
    script = """
import os, sys, time
from vgtok.train.recipe import recipe_named
from vgtok.train.samples import TrainingSamples
if __name__ == "__main__":
    recipe = recipe_named("synthetic-smoke")
    samples = TrainingSamples(recipe, recipe.classes, None, ())
    queue = samples.prefetch(range(40), loaders=2)
    for number in range(3):
        ready = next(queue)
        assert ready.number == number and (ready.image == samples[number].image).all()
    # Killed without a word: nothing of this process can end them.
    print(*(path for path in os.popen(f"ps -o pid= --ppid {os.getpid()}").read().split()), flush=True)
    os.kill(os.getpid(), 9)
"""
    (tmp_path / "load.py").write_text(script)
    ended = subprocess.run([sys.executable, tmp_path / "load.py"], capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    children = [int(word) for word in ended.stdout.split()]
    assert len(children) >= 2
    until = time.monotonic() + 30
    while any(Path(f"/proc/{child}/cmdline").is_file() and _is_loader(child) for child in children):
        assert time.monotonic() < until, "a loader outlived its parent"
        time.sleep(0.1)


def _is_loader(process: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def test_tokenizers_are_drawn_among_those_that_reach_the_budget(rendered: AnnotatedDataset) -> None:
    recipe = small_recipe(data="", canvas=(256, 192), budgets=(0.2, 0.5), tokenizers=("compact", "single-pass"))
    samples = TrainingSamples(recipe, NAMES, rendered, range(3))
    drawn = [samples[number] for number in range(24)]
    assert {sample.budget for sample in drawn} == {0.2, 0.5}
    # Single-pass has no 64-px tokens, and cannot keep as few as a fifth.
    coarse = {
        budget: [bool((sample.tokens.sizes == 64).any()) for sample in drawn if sample.budget == budget]
        for budget in (0.2, 0.5)
    }
    assert all(coarse[0.2])
    assert any(coarse[0.5])
    assert not all(coarse[0.5])


def test_a_budget_no_tokenizer_reaches_is_refused(rendered: AnnotatedDataset) -> None:
    with pytest.raises(InputError, match=r"budget: 0.2 is outside"):
        TrainingSamples(small_recipe(budgets=(0.2,), tokenizers=("single-pass",)), NAMES, rendered, range(3))
