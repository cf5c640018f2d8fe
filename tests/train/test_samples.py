"""Lessons: the same for the same number, strict partitions, objects inside, and crops that know their place."""

import threading
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
from vgtok.train.samples import Lesson, Lessons

from .small import small_recipe


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> AnnotatedDataset:
    """Three rendered frames of 400 x 260 px."""
    return open_annotated(write_rendered(tmp_path_factory.mktemp("set"), [1, 2, 3], 400, 260, SceneConfig(traffic=1.0)))


@pytest.fixture(scope="module")
def crops(rendered: AnnotatedDataset) -> Lessons:
    recipe = small_recipe(
        data="set", canvas=(512, 320), crop=128, smallest=0.8, largest=1.25, synthetic=0.25, photometric=True
    )
    return Lessons(recipe, NAMES, rendered, range(3))


def test_every_lesson_is_a_strict_partition_with_its_objects_inside(crops: Lessons) -> None:
    seen = 0
    for number in range(40):
        lesson = crops[number]
        lesson.tokens.validate()
        height, width = lesson.frame.shape[1:]
        assert (height, width) == (lesson.tokens.height, lesson.tokens.width)
        assert 32 <= min(height, width) <= max(height, width) <= 128
        assert (lesson.boxes[:, 2:] > lesson.boxes[:, :2]).all()
        assert (lesson.boxes >= 0).all()
        assert (lesson.boxes[:, 2] <= width).all()
        assert (lesson.boxes[:, 3] <= height).all()
        assert ((lesson.labels >= 0) & (lesson.labels < len(NAMES))).all()
        assert lesson.crop.y + height <= lesson.crop.canvas_height
        assert lesson.crop.x + width <= lesson.crop.canvas_width
        seen += len(lesson.labels)
    assert seen > 40


def test_a_number_always_gives_the_same_lesson(crops: Lessons) -> None:
    for number in (0, 7, 13):
        first, again = crops[number], crops[number]
        assert (first.crop, first.budget) == (again.crop, again.budget)
        assert (first.frame == again.frame).all()
        assert (first.boxes == again.boxes).all()
        assert (first.tokens.sizes == again.tokens.sizes).all()


def test_lessons_made_ahead_come_in_order(crops: Lessons) -> None:
    made = list(crops.ahead([5, 2, 9, 11, 3, 4]))
    assert [lesson.number for lesson in made] == [5, 2, 9, 11, 3, 4]
    assert (made[2].frame == crops[9].frame).all()
    assert list(crops.ahead([])) == []


def test_a_round_shows_every_frame_once(rendered: AnnotatedDataset) -> None:
    lessons = Lessons(small_recipe(data="set", canvas=(256, 192), flip=False), NAMES, rendered, range(3))
    first = [lessons[number] for number in range(3)]
    assert len({lesson.frame.float().mean().item() for lesson in first}) == 3


def test_a_crop_has_the_tokens_and_pixels_of_its_frame(rendered: AnnotatedDataset) -> None:
    recipe = small_recipe(data="set", canvas=(512, 320), crop=128, flip=False, budgets=(0.5,))
    lesson: Lesson = Lessons(recipe, NAMES, rendered, [1])[0]
    tokenizer = Tokenizer(0.5, canvas=(512, 320))
    canvas = tokenizer.to_canvas(rendered.images[1])
    whole = tokenizer.partition(canvas)
    x, y = lesson.crop.x, lesson.crop.y
    height, width = lesson.frame.shape[1:]
    assert np.array_equal(lesson.frame.permute(1, 2, 0).numpy(), canvas.image[y : y + height, x : x + width])
    corners = {tuple(box) for box in whole.boxes.tolist()}
    assert {(a + x, b + y, c + x, d + y) for a, b, c, d in lesson.tokens.boxes.tolist()} <= corners
    assert (lesson.crop.canvas_height, lesson.crop.canvas_width) == (canvas.height, canvas.width)


def test_ignored_regions_are_painted_over(tmp_path: Path) -> None:
    spec = write_rendered(tmp_path / "set", [4], 256, 192, SceneConfig(traffic=1.0))
    dataset = open_annotated(spec)

    class WithRegion:
        images, names = dataset.images, dataset.names

        def annotations(self, index: int) -> object:
            from dataclasses import replace

            return replace(dataset.annotations(index), ignored=np.array([[16.0, 32.0, 80.0, 96.0]]))

    recipe = small_recipe(data="set", canvas=(256, 192), flip=False)
    lesson = Lessons(recipe, NAMES, WithRegion(), [0])[0]  # type: ignore[arg-type]
    assert lesson.frame[:, 32:96, 16:80].unique(dim=1).shape[1] == 1
    assert lesson.frame[:, 96:, 80:].float().std() > 1


def test_no_images_are_refused(rendered: AnnotatedDataset) -> None:
    with pytest.raises(InputError, match="no image is left"):
        Lessons(small_recipe(data="set"), NAMES, rendered, [])


def test_the_thread_that_makes_lessons_ends_with_them() -> None:
    recipe = small_recipe()
    before = threading.active_count()
    with closing(Lessons(recipe, recipe.classes, None, ()).ahead(range(50))) as queue:
        assert next(queue).number == 0
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_tokenizers_are_drawn_among_those_that_reach_the_budget(rendered: AnnotatedDataset) -> None:
    recipe = small_recipe(data="", canvas=(256, 192), budgets=(0.2, 0.5), tokenizers=("compact", "single-pass"))
    lessons = Lessons(recipe, NAMES, rendered, range(3))
    drawn = [lessons[number] for number in range(24)]
    assert {lesson.budget for lesson in drawn} == {0.2, 0.5}
    # Single-pass has no 64-px tokens, and cannot keep as few as a fifth.
    coarse = {
        budget: [bool((lesson.tokens.sizes == 64).any()) for lesson in drawn if lesson.budget == budget]
        for budget in (0.2, 0.5)
    }
    assert all(coarse[0.2])
    assert any(coarse[0.5])
    assert not all(coarse[0.5])


def test_a_budget_no_tokenizer_reaches_is_refused(rendered: AnnotatedDataset) -> None:
    with pytest.raises(InputError, match=r"budget: 0.2 is outside"):
        Lessons(small_recipe(budgets=(0.2,), tokenizers=("single-pass",)), NAMES, rendered, range(3))
