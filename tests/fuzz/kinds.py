"""What is fuzzed: for every kind of input its seeds, how they are changed, and the public call that reads the result.

A call may return or raise the project's own errors; anything else that leaves it is a failure.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from tests.data.folders import write_visdrone
from tests.detect.small_models import SMALL, small_detector
from tests.fuzz.arguments import make_arguments, run_arguments
from tests.fuzz.mutations import Mutate, mutate_bytes, mutate_fields, mutate_json, mutate_lines
from vgtok import InputError, RetentionTable, Tokenizer
from vgtok.cli.detections import Job, is_record, write_coco, write_csv
from vgtok.cli.pictures import Pictures
from vgtok.cli.video import logged_frames
from vgtok.data.coco import open_coco
from vgtok.data.dataset import AnnotatedDataset
from vgtok.data.visdrone import category_of, line_of, open_visdrone
from vgtok.data.yolo import open_yolo
from vgtok.detect.saving import load_detector, save_detector
from vgtok.encode.loading import read_state
from vgtok.evaluate.detections import ground_truth, read_predictions
from vgtok.export.description import Description
from vgtok.journal import Journal
from vgtok.tokenize.calibrate import Sweep, _is_measured, merged_table
from vgtok.tokenize.canvas import read_image
from vgtok.train.recipe import Recipe, read_recipe
from vgtok.train.run_to_model import training_history

SEEDS = Path(__file__).parent / "seeds"
IMAGE = "image"


@dataclass(frozen=True)
class Kind:
    """One kind of input: `run` is given a case's bytes and a folder of its own; of 50,000 cases it gets `share`."""

    name: str
    seeds: Sequence[bytes]
    mutate: Mutate
    run: Callable[[bytes, Path], None]
    share: int

    def make(self, seed: int, number: int) -> bytes:
        """The bytes of a case: always the same for the same seed and number."""
        return self.mutate(Random(f"{seed}/{self.name}/{number}"), self.seeds)


def kinds(folder: Path) -> dict[str, Kind]:
    """Every kind by name; `folder` holds what their cases need beside themselves."""
    files = [path.read_bytes() for path in sorted(SEEDS.iterdir())]
    write_visdrone(folder, {"a": ""})
    # Its digest is part of a seed, so its weights must be the same in every process.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_detector(small_detector(), folder / "model")
    tensors = {"weight": torch.zeros(3, 2), "bias": torch.arange(3.0), "steps": torch.tensor(4)}
    torch.save({"state_dict": tensors}, folder / "seed.pth")
    torch.save(tensors, folder / "old.pth", _use_new_zipfile_serialization=False)
    save_file(tensors, folder / "seed.safetensors")
    made = [
        Kind(IMAGE, files, mutate_bytes, _image, 0),
        Kind("visdrone", _VISDRONE, mutate_fields, _visdrone, 4000),
        Kind("coco", [_json(_COCO)], mutate_json, _coco, 5000),
        Kind("yolo-labels", [b"0 0.5 0.5 0.1 0.2\n1 0.25 0.25 1e-1 .5\n"], mutate_fields, _yolo_labels, 3500),
        Kind("yolo-yaml", [_YAML, _YAML.replace(b"[car, van]", b"{0: car, 7: van}")], mutate_fields, _yolo_yaml, 4000),
        Kind("predictions", [_json(_PREDICTIONS)], mutate_json, _predictions, 5000),
        Kind("table", [_json(_TABLE.to_document())], mutate_json, _retention, 4000),
        Kind("recipe", _RECIPE, mutate_fields, _recipe, 4000),
        Kind("recipe-file", [_json(Recipe("fuzz", "co-detr-vit-tiny").to_dict())], mutate_json, _recipe_file, 1000),
        Kind("metrics", [_lines(*_METRICS)], mutate_lines, _metrics, 1000),
        Kind("journal-pictures", [_lines(_SETTINGS, *_ENTRIES)], mutate_lines, _pictures, 2000),
        Kind("journal-frames", [_lines(_HEADER, *_FRAMES)], mutate_lines, _frames, 2000),
        Kind("journal-calibrate", [_lines(_SWEPT, *_MEASURED)], mutate_lines, _measured, 2000),
        Kind("onnx", [_json(_DESCRIPTION)], mutate_json, _description, 4000),
        Kind("model", [(folder / "model" / "config.json").read_bytes()], mutate_json, _model, 1500),
        Kind("safetensors", [(folder / "seed.safetensors").read_bytes()], mutate_bytes, _safetensors, 2500),
        Kind("pth", [(folder / f"{n}.pth").read_bytes() for n in ("seed", "old")], mutate_bytes, _pth, 1500),
        Kind("arguments", [b""], make_arguments, run_arguments, 3000),
    ]
    return {kind.name: kind for kind in made}


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _lines(*documents: Any) -> bytes:
    return b"".join(_json(document) + b"\n" for document in documents)


_VISDRONE = [b"684,8,273,116,0,0,0,0\n10,10,20,20,1,4,0,1\n", b"1,2,3,4,1,11,0,0,\n-5,70,20.5,20,1,1,0,0\n\n"]
_BOX = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40.5], "area": 1215, "iscrowd": 0}
_COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 80}, {"id": 2, "file_name": "b.jpg"}],
    "categories": [{"id": 1, "name": "car"}, {"id": 3, "name": "van"}],
    "annotations": [_BOX, {**_BOX, "id": 2, "line": "1,2,30,40.5,1,4,0,0", "score": 1, "iscrowd": 1}],
    "ignored_regions": [{**_BOX, "id": 3, "category_id": 0}],
}
_YAML = b"path: .\ntrain: images\nval: [images]\ntest: list.txt\nnames: [car, van]\n"
_PREDICTIONS = [{"image_id": "a", "category_id": 4, "bbox": [1, 2, 3, 4.5], "score": 0.5}] * 2
_TABLE = RetentionTable.from_document(
    {
        "format": "vgtok-retention-table",
        "version": 1,
        "name": "own",
        "measured_on": {"images": 3, "canvas": [128, 64], "gate": "lambda_min"},
        "curves": [{"scorer": "tophat", "rank": 0.2, "percentiles": [0, 50, 100], "retained": [0.8, 0.5, 0.1]}],
    },
    "seed",
)
_RECIPE = [
    b"learning_rate=0.001",
    b"budgets=1.0,0.4",
    b"canvas=256x128",
    b"flip=true",
    b"steps=4",
    b"weight_decay=0.1",
    b"rank=.2",
]
_METRICS = [
    {
        "step": 1,
        "lessons": 2,
        "seconds": 0.5,
        "objects": 9,
        "tokens": 80,
        "query/class": 1.5,
        "loss": 3.5,
        "rate": 1e-3,
    },
    {"step": 1, "lessons": 2, "AP": 0.5, "AP50": 1.5},
    {
        "step": 2,
        "lessons": 4,
        "seconds": 1.0,
        "objects": 7,
        "tokens": 80,
        "query/class": 1.0,
        "loss": 2.5,
        "rate": 1e-3,
    },
]
_SETTINGS = {"model": "small", "budget": 0.4}
_RECORD = {
    "tokens": 5,
    "retained": 0.4,
    "ms": {"tokenizer": 1.0, "encoder": 2.0, "head": 3.0},
    "objects": [{"name": "car", "label": 0, "category_id": 1, "bbox": [1.0, 2.0, 3.0, 4.0], "score": 0.5}],
}
_ENTRIES = [{"item": f"{n}.png", "stamp": [1, n], "source": "x.png", "written": ["a.jpg"], **_RECORD} for n in range(3)]
_HEADER = {"input": "a.mp4", "settings": _SETTINGS}
_FRAMES = [{"frame": n, "seconds": n / 25, "item": f"a.mp4#{n}", **_RECORD} for n in range(3)]
_SWEEP = Sweep(("tophat",), (0.2,), (10.0, 50.0))
_SWEPT = {"sweep": "seed"}
_MEASURED = [{"item": f"{n}.png", "stamp": [1, n], "dense": 40, "tokens": [[[30, 20]]]} for n in range(3)]
_DESCRIPTION = Description(
    "small", SMALL.names, 192, 128, 38, False, SMALL.encoder_config(), (), "query", "none"
).to_properties()


def _image(data: bytes, folder: Path) -> None:
    pixels = read_image(data)
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3


def _read(dataset: AnnotatedDataset) -> None:
    for index in range(len(dataset.images)):
        for row in dataset.parse(index).rows:
            line_of(row, category_of(row))
        with suppress(InputError):
            dataset.annotations(index)
    ground_truth(dataset, frozenset())


def _visdrone(data: bytes, folder: Path) -> None:
    (folder / "annotations" / "a.txt").write_bytes(data)
    _read(open_visdrone(folder))


def _coco(data: bytes, folder: Path) -> None:
    (folder / "coco.json").write_bytes(data)
    _read(open_coco(folder / "coco.json", folder / "images"))


def _yolo_labels(data: bytes, folder: Path) -> None:
    (folder / "labels").mkdir(exist_ok=True)
    (folder / "labels" / "a.txt").write_bytes(data)
    (folder / "whole.yaml").write_bytes(_YAML)
    _read(open_yolo(folder / "whole.yaml"))


def _yolo_yaml(data: bytes, folder: Path) -> None:
    (folder / "data.yaml").write_bytes(data)
    with suppress(InputError):
        open_yolo(folder / "data.yaml", "test")
    open_yolo(folder / "data.yaml")


def _predictions(data: bytes, folder: Path) -> None:
    (folder / "predictions.json").write_bytes(data)
    read_predictions(folder / "predictions.json", open_visdrone(folder))


def _retention(data: bytes, folder: Path) -> None:
    (folder / "table.json").write_bytes(data)
    Tokenizer.calibrated(folder / "table.json", 0.4)


def _recipe(data: bytes, folder: Path) -> None:
    name, _, text = data.decode(errors="replace").partition("=")
    changed = Recipe("fuzz", "co-detr-vit-tiny").with_settings({name: text})
    for value in changed.to_dict().values():
        for number in value if isinstance(value, tuple) else (value,):
            assert not isinstance(number, float) or math.isfinite(number), f"{name}={text} is taken"


def _recipe_file(data: bytes, folder: Path) -> None:
    (folder / "recipe.json").write_bytes(data)
    read_recipe(folder / "recipe.json")


def _metrics(data: bytes, folder: Path) -> None:
    (folder / "metrics.jsonl").write_bytes(data)
    training_history(folder / "step-000002")


def _pictures(data: bytes, folder: Path) -> None:
    (folder / "journal.jsonl").write_bytes(data)
    pictures = Pictures(Job(None, _SETTINGS, frozenset(), folder), {folder})  # type: ignore[arg-type]
    pictures.rows()
    for item in pictures.journal.entries:
        pictures._finished(folder / "x.png", item)
    write_coco(folder / "detections.json", pictures.journal.entries.values())
    write_csv(folder / "detections.csv", pictures.journal.entries.values())


def _frames(data: bytes, folder: Path) -> None:
    path = folder / "a.frames.jsonl"
    path.write_bytes(data)
    write_csv(folder / "frames.csv", logged_frames(folder, _SETTINGS))
    log = Journal(path, _HEADER, is_record, number_field="frame", restart=True)
    for entry in log.entries.values():
        sum((entry["tokens"], entry["retained"], *entry["ms"].values()))


def _measured(data: bytes, folder: Path) -> None:
    (folder / "t.partial").write_bytes(data)
    entries = Journal(folder / "t.partial", _SWEPT, partial(_is_measured, sweep=_SWEEP)).entries
    if entries:
        counted = ((entry["item"], entry["dense"], np.array(entry["tokens"])) for entry in entries.values())
        merged_table("t", counted, "x", _SWEEP)


def _description(data: bytes, folder: Path) -> None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InputError("no properties; the case says nothing")
    # Properties of an ONNX file are text; what they hold is JSON of its own.
    properties = {name: value if isinstance(value, str) else json.dumps(value) for name, value in document.items()}
    assert Description.from_properties(properties, "fuzz").extent.dense > 0


def _model(data: bytes, folder: Path) -> None:
    (folder / "model" / "config.json").write_bytes(data)
    load_detector(folder / "model")


def _safetensors(data: bytes, folder: Path) -> None:
    (folder / "a.safetensors").write_bytes(data)
    read_state(folder / "a.safetensors")


def _pth(data: bytes, folder: Path) -> None:
    (folder / "a.pth").write_bytes(data)
    read_state(folder / "a.pth")
