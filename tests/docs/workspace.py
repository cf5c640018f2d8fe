"""A folder that holds what the documentation speaks of: frames, a data set in three layouts, results, a model."""

import json
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image

from tests.detect.small_models import small_detector
from tests.export.small_models import WINDOWED_VIT, traceable_detector
from tests.slicing.rasters import write_raster
from tests.slicing.yolo_files import columns
from tests.slicing.yolo_files import write_yolo as write_yolo_onnx
from tests.train.rendered_yolo import write_yolo
from tests.train.small import small_recipe
from vgtok.data.convert import convert_dataset
from vgtok.data.dataset import open_annotated
from vgtok.data.synthetic import SceneConfig, render_scene
from vgtok.detect.checkpoint import write_co_detr
from vgtok.detect.saving import save_detector
from vgtok.export.onnx_file import export_onnx
from vgtok.names import VISDRONE as NAMES
from vgtok.train.loop import train

SIZE = (320, 192)


def furnish(folder: Path) -> None:
    """Write all of it, small: every name a page uses without making it first."""
    scenes = [render_scene(seed, *SIZE, SceneConfig(layout="street", pixels_per_meter=8.0)) for seed in (0, 1)]
    for place in ("frames", "folder", "flight", "images"):
        (folder / place).mkdir()
    for name in ("frame.jpg", "frame.png", "photo.jpg", "flight/one.tif"):
        Image.fromarray(scenes[0].pixels).save(folder / name)
    bands = np.moveaxis(np.concatenate([scenes[0].pixels, scenes[0].pixels[..., :1]], axis=2), -1, 0)
    write_raster(folder / "ortho.tif", bands.astype(np.uint16) * 11)
    for number, scene in enumerate(scenes):
        for place in ("frames", "folder", "images"):
            Image.fromarray(scene.pixels).save(folder / place / f"{number}.jpg")
    writer = cv2.VideoWriter(str(folder / "clip.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 10, SIZE)
    for scene in scenes:
        writer.write(np.ascontiguousarray(scene.pixels[..., ::-1]))
    writer.release()
    for place in ("DIR", "PATH/VisDrone2019-DET-val"):
        (folder / place / "images").mkdir(parents=True)
        (folder / place / "annotations").mkdir()
        for number, scene in enumerate(scenes):
            Image.fromarray(scene.pixels).save(folder / place / "images" / f"{number}.jpg")
            lines = [
                f"{int(x0)},{int(y0)},{int(x1 - x0)},{int(y1 - y0)},1,{label + 1},0,0"
                for (x0, y0, x1, y1), label in zip(scene.boxes, scene.labels, strict=True)
                if label < len(NAMES)
            ]
            (folder / place / "annotations" / f"{number}.txt").write_text("\n".join([*lines, "0,0,60,40,0,0,0,0"]))
    yaml = write_yolo(folder / "yolo", 4, *SIZE).read_text(encoding="utf-8")
    (folder / "flights.yaml").write_text(f"path: yolo\n{yaml}", encoding="utf-8")
    (folder / "data.yaml").write_text("path: yolo\nval: images\nnames: [vehicle, ship]\n", encoding="utf-8")
    dataset = open_annotated(f"visdrone:{folder / 'DIR'}")
    for target in (folder / "instances.json", *(folder / f"DIR/annotations/aitodv2_{s}.json" for s in ("val", "test"))):
        convert_dataset(dataset, "coco", target)
    hits = [
        {"image_id": f"{number}.jpg", "category_id": 4, "bbox": [*map(float, box)], "score": 0.5}
        for number in range(len(scenes))
        for box in ((10, 10, 20, 12), (100, 80, 30, 15))
    ]
    (folder / "results.json").write_text(json.dumps(hits))
    rows = np.array([(8, 20, 24, 30, 0.9, 2), (40, 30, 60, 50, 0.2, 0)], dtype=np.float32)
    write_yolo_onnx(folder / "yolo.onnx", columns(rows, 80))
    # A model this small only loses by several threads.
    torch.set_num_threads(1)
    save_detector(small_detector(), folder / "model")
    export_onnx(traceable_detector("vit-tiny", WINDOWED_VIT), folder / "model.onnx")
    write_co_detr(small_detector(), folder / "released.pth")
    for name in ("run", "decayed"):
        train(small_recipe(steps=1, canvas=(64, 64)), folder / name)
