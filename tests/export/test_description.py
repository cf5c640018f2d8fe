"""What an exported file says about itself: there and back, and damage in one line."""

import json

import pytest

from tests.export.small_models import WINDOWED_VIT
from vgtok import InputError
from vgtok.encode.config import configuration
from vgtok.export.description import Description

WHOLE = Description(
    "small", ("car",), 192, 128, 38, False, configuration("vit-tiny", **WINDOWED_VIT), (), "query", "none"
).to_properties()


def test_a_description_returns() -> None:
    assert Description.from_properties(WHOLE, "x.onnx").to_properties() == WHOLE


def test_the_license_of_a_file_by_an_earlier_release_is_read() -> None:
    properties = WHOLE | {"licence": WHOLE["license"]}
    del properties["license"]
    assert Description.from_properties(properties, "a.onnx").license == WHOLE["license"]


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": "[]"},
        {"encoder": "[" * 100_000},
        {"encoder": json.dumps(json.loads(WHOLE["encoder"]) | {"heads": 0})},
        {"encoder": json.dumps(json.loads(WHOLE["encoder"]) | {"window": "8"})},
        {"names": "5"},
        {"names": "[1]"},
        {"canvas": "0x-1"},
        {"tokens": "-4"},
        {"buckets": "[[1]]"},
        {"buckets": '[["a", null]]'},
        {"head": "mask"},
    ],
)
def test_a_damaged_description_is_one_line(changes: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"x\.onnx: damaged description"):
        Description.from_properties(WHOLE | changes, "x.onnx")
