"""Configurations survive JSON, refuse nonsense and build the encoder they name."""

import json
from dataclasses import asdict, replace

import pytest

from vgtok.detect.config import DETECTORS, DetectorConfig, detector_configuration
from vgtok.errors import InputError


@pytest.mark.parametrize("name", DETECTORS)
def test_a_configuration_survives_json(name: str) -> None:
    config = DETECTORS[name]
    read = DetectorConfig.from_dict(json.loads(json.dumps(asdict(config))))
    assert read == config
    assert read.encoder_config() == config.encoder_config()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ()}, "at least one class"),
        ({"dim": 250}, "multiple"),
        ({"strides": (4, 16)}, "consecutive"),
        ({"strides": ()}, "consecutive"),
        ({"auxiliary": ("fcos",)}, "fcos"),
        ({"auxiliary_norm": "batch"}, "auxiliary_norm: 'batch' is not one of group, channel"),
    ],
)
def test_nonsense_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(DETECTORS["co-detr-vit-tiny"], **change)


def test_unknown_names_and_fields_are_refused() -> None:
    with pytest.raises(InputError, match="co-detr-vit-tiny"):
        detector_configuration("yolo")
    with pytest.raises(InputError, match="colour"):
        DetectorConfig.from_dict({"encoder": "vit-tiny", "names": ["car"], "colour": 1})
