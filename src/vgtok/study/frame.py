"""The frame a picture study shows: a file of the caller's, one of a data set, or a rendered scene."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vgtok.data.synthetic import render_scene
from vgtok.errors import InputError
from vgtok.study.result import RENDERED, Inputs
from vgtok.tokenize.images import read_image

PAPER_FRAME = "0000295_02400_d_0000033"
"""The VisDrone frame of the paper's first figure: 317 boxes, 280 of them under 32 x 32 px."""


@dataclass(frozen=True)
class PictureFrame:
    """An image (H, W, 3) of some `data` with its boxes (N, 4) in its own pixels, none where they are not known."""

    data: str
    name: str
    image: NDArray[np.uint8]
    boxes: NDArray[np.float64]


def picture_frame(inputs: Inputs) -> PictureFrame:
    """The frame asked for; without one the paper's, if the data set holds it, else its first; else a rendered one."""
    if inputs.dataset is None:
        if inputs.frame is not None:
            return PictureFrame("a file", Path(inputs.frame).stem, read_image(inputs.frame), np.zeros((0, 4)))
        scene = render_scene(seed=7)
        return PictureFrame(RENDERED, "rendered scene", scene.pixels, scene.boxes.astype(np.float64))
    stems = [path.stem for path in inputs.dataset.images]
    wanted = inputs.frame or (PAPER_FRAME if PAPER_FRAME in stems else stems[0])
    if wanted not in stems:
        raise InputError(
            f"--frame: '{wanted}' is not an image of {inputs.dataset.name}; give a file stem, e.g. {stems[0]}"
        )
    index = stems.index(wanted)
    boxes = inputs.dataset.annotations(index).boxes if inputs.dataset.names else np.zeros((0, 4))
    return PictureFrame(inputs.dataset.name, wanted, read_image(inputs.dataset.images[index]), boxes)
