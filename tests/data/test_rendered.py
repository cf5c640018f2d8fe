"""Rendered sets: what is on disk is what was rendered, and a complete set is left alone."""

from pathlib import Path

import numpy as np

from vgtok.data.dataset import open_annotated
from vgtok.data.rendered import write_rendered
from vgtok.data.synthetic import SceneConfig, render_scene


def test_the_set_holds_the_scenes(tmp_path: Path) -> None:
    dataset = open_annotated(write_rendered(tmp_path, [5, 2**31], 192, 128, SceneConfig(traffic=1.0)))
    assert [path.stem for path in dataset.images] == ["0000000005", "2147483648"]
    for index, seed in enumerate((5, 2**31)):
        scene = render_scene(seed, 192, 128, SceneConfig(traffic=1.0))
        np.testing.assert_allclose(dataset.annotations(index).boxes, scene.boxes, atol=1e-4)
        assert dataset.annotations(index).labels.tolist() == scene.labels.tolist()
        assert dataset.size(index) == (192, 128)


def test_a_complete_set_is_not_rendered_again(tmp_path: Path) -> None:
    spec = write_rendered(tmp_path, [5], 128, 128, SceneConfig())
    before = (tmp_path / "annotations.json").read_bytes()
    assert write_rendered(tmp_path, [6, 7], 128, 128, SceneConfig()) == spec
    assert (tmp_path / "annotations.json").read_bytes() == before
