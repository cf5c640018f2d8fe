"""A few rendered frames in VisDrone's layout."""

import cv2
import pytest

from vgtok.data.dataset import Dataset, open_dataset
from vgtok.data.synthetic import render_scene


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("visdrone")
    (folder / "images").mkdir()
    (folder / "annotations").mkdir()
    for seed in range(5):
        scene = render_scene(seed=seed, width=480, height=270)
        cv2.imwrite(str(folder / "images" / f"{seed}.jpg"), cv2.cvtColor(scene.pixels, cv2.COLOR_RGB2BGR))
        lines = [
            f"{int(x0)},{int(y0)},{int(x1 - x0)},{int(y1 - y0)},1,{min(label, 9) + 1},0,0"
            for (x0, y0, x1, y1), label in zip(scene.boxes, scene.labels, strict=True)
        ]
        (folder / "annotations" / f"{seed}.txt").write_text("\n".join(lines))
    return open_dataset(f"visdrone:{folder}")
