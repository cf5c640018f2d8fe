"""Image sizes that hosts accept."""

from collections.abc import Mapping
from typing import Any

from vgtok.errors import InputError

TRAINED_SIZE = "the trained one; any with interpolate_pos_encoding=True"


def check_trained_size(model: Any, size: tuple[int, int], options: Mapping[str, Any]) -> None:
    """Refuse a (height, width) other than that of the position table, unless the model is asked to resize the table."""
    side = model.config.image_size
    trained = tuple(side) if isinstance(side, list | tuple) else (side, side)
    if not options.get("interpolate_pos_encoding") and size != trained:
        raise InputError(
            f"pixel_values: images of {size[0]} x {size[1]} px, but this model takes {trained[0]} x {trained[1]}; "
            "resize them, or let the model resize its position table with interpolate_pos_encoding=True"
        )


def check_windows(size: tuple[int, int], patch: int, windows: int) -> None:
    """Refuse a (height, width) whose patches do not make `windows` x `windows` equal windows."""
    if any(side // patch % windows for side in size):
        raise InputError(
            f"pixel_values: images of {size[0]} x {size[1]} px do not make {windows} x {windows} equal windows of "
            f"{patch}-px patches; use multiples of {windows * patch} px"
        )
