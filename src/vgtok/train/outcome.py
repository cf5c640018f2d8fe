"""What a run is for: its averaged weights as a detector."""

import json
from pathlib import Path

from safetensors.torch import load_file

from vgtok.detect.config import DetectorConfig
from vgtok.detect.detector import Detector
from vgtok.detect.saving import filled
from vgtok.errors import InputError
from vgtok.tokenize.retention import RetentionTable
from vgtok.train.state import MODEL_FILE, RECIPE_FILE, checkpoints


def detector_of(source: Path, table: RetentionTable | None = None, licence: str = "") -> Detector:
    """The detector of a run's last checkpoint, or of the checkpoint named."""
    found = checkpoints(source)
    run, checkpoint = (source, found[-1]) if found else (source.parent, source)
    try:
        config = DetectorConfig.from_dict(json.loads((run / MODEL_FILE).read_text()))
        canvas = tuple(json.loads((run / RECIPE_FILE).read_text())["canvas"])
        weights = load_file(checkpoint / "average.safetensors")
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{source}: neither a training run with a checkpoint nor one of them ({error})") from None
    model = filled(config, weights, str(checkpoint))
    return Detector(model, canvas=(int(canvas[0]), int(canvas[1])), table=table, licence=licence)
