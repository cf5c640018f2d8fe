"""Classes of a model that stand for classes of the data."""

import pytest

from vgtok import InputError
from vgtok.evaluate.classes import label_map, map_text, named_map, parse_class_map

MODEL = ("car", "van", "truck", "pedestrian")
DATA = ("vehicle", "Pedestrian", "car")


def test_mapped_classes_win_over_names() -> None:
    assert label_map(MODEL, DATA).tolist() == [2, -1, -1, 1]
    labels = label_map(MODEL, DATA, parse_class_map(["vehicle=car + van", "vehicle=truck"]))
    assert labels.tolist() == [0, 0, 0, 1]
    named = named_map(labels, MODEL, DATA)
    assert named == {"vehicle": ("car", "van", "truck"), "Pedestrian": ("pedestrian",)}
    assert map_text(named) == "vehicle = car + van + truck, Pedestrian"


def test_a_class_cannot_stand_for_two() -> None:
    with pytest.raises(InputError, match="'car' stands for both 'vehicle' and 'car'"):
        label_map(MODEL, DATA, {"vehicle": ("car",), "car": ("Car",)} | {"car": ("car",)})
