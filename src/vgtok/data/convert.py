"""Write data sets: convert between VisDrone, COCO and YOLO, and write rendered scenes as COCO.

A data set in any format enters; files of the other format leave, with a `Conversion` that counts what was written and
lists what the new format cannot hold.
"""

import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from vgtok.data import visdrone
from vgtok.data.coco import KEPT_KEYS
from vgtok.data.dataset import AnnotatedDataset, Problem, Role, Row, common_folder, summarize
from vgtok.errors import InputError
from vgtok.files import write_bytes, write_text
from vgtok.names import VISDRONE

if TYPE_CHECKING:
    from vgtok.data.synthetic import Scene, SceneConfig


@dataclass(frozen=True)
class Conversion:
    """What was written, its spec for the command line, what was lost, and the problems of the source."""

    spec: str
    images: int
    objects: int
    crowds: int
    regions: int
    others: int
    lost: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass
class _Loss:
    """Count what the target cannot hold, by reason."""

    counts: Counter[str]

    def add(self, reason: str) -> None:
        self.counts[reason] += 1

    def sentences(self) -> tuple[str, ...]:
        return tuple(f"{count} x {reason}" for reason, count in sorted(self.counts.items()))


Rows = list[tuple[Row, ...]]
Writer = Callable[[AnnotatedDataset, Rows, Path, _Loss], tuple[str, list[Row]]]


def convert_dataset(dataset: AnnotatedDataset, target: str, out: Path) -> Conversion:
    """Write a data set as `target`: a folder for 'visdrone' and 'yolo', a json file for 'coco'."""
    if target not in WRITERS:
        raise InputError(f"--to: '{target}' is not a format; there are {', '.join(WRITERS)}")
    stems = Counter(path.stem for path in dataset.images)
    if target != "coco" and (twice := [stem for stem, count in stems.items() if count > 1]):
        raise InputError(f"{target}: keeps one text file per image name, but '{twice[0]}' belongs to several images")
    rows: Rows = []
    problems: list[Problem] = list(dataset.problems)
    for index in range(len(dataset.images)):
        parsed = dataset.parse(index)
        rows.append(parsed.rows)
        problems.extend(parsed.problems)
    loss = _Loss(Counter())
    spec, written = WRITERS[target](dataset, rows, out, loss)
    roles = Counter(row.role for row in written)
    return Conversion(
        spec=spec,
        images=len(dataset.images),
        objects=roles[Role.OBJECT],
        crowds=roles[Role.CROWD],
        regions=roles[Role.REGION],
        others=roles[Role.OTHERS],
        lost=loss.sentences(),
        problems=tuple(summarize(problems)),
    )


def _to_visdrone(dataset: AnnotatedDataset, rows: Rows, out: Path, loss: _Loss) -> tuple[str, list[Row]]:
    labels = {label: VISDRONE.index(name) for label, name in enumerate(dataset.names) if name in VISDRONE}
    if not labels:
        raise InputError(f"visdrone: knows none of the classes {', '.join(dataset.names)}, only its own ten")
    written = []
    for path, image_rows in zip(dataset.images, rows, strict=True):
        lines = []
        for row in image_rows:
            if row.label >= 0 and row.label not in labels:
                loss.add(f"box of class '{dataset.names[row.label]}', which VisDrone does not have, left out")
                continue
            if row.role is Role.CROWD:
                loss.add("crowd written as an object VisDrone does not score (score 0)")
            if row.role is Role.OBJECT and row.area != row.box[2] * row.box[3]:
                loss.add("area of an outline: only the box is kept")
            whole = _whole(row, loss)
            own = Row(whole.box, whole.role, labels.get(row.label, -1), whole.area, whole.extra)
            lines.append(visdrone.line_of(own, visdrone.category_of(own)))
            written.append(own)
        write_text(out / "annotations" / f"{path.stem}.txt", "".join(f"{line}\n" for line in lines))
    _link_images(dataset, out / "images")
    return f"visdrone:{out}", written


def _to_coco(dataset: AnnotatedDataset, rows: Rows, out: Path, loss: _Loss) -> tuple[str, list[Row]]:
    identities = dataset.image_ids
    folder = common_folder(dataset.images)
    document: dict[str, list[dict[str, Any]]] = {
        "images": [
            dict(zip(("id", "file_name", "width", "height"), (identity, name, *dataset.size(index)), strict=True))
            for index, (identity, name) in enumerate(
                zip(identities, (path.relative_to(folder).as_posix() for path in dataset.images), strict=True)
            )
        ],
        "categories": [
            {"id": category, "name": name} for category, name in zip(dataset.category_ids, dataset.names, strict=True)
        ],
        "annotations": [],
        "ignored_regions": [],
    }
    written = [(identity, row) for identity, image_rows in zip(identities, rows, strict=True) for row in image_rows]
    for number, (identity, row) in enumerate(written, start=1):
        scored = row.role in (Role.OBJECT, Role.CROWD)
        category = dataset.category_ids[row.label] if row.label >= 0 else visdrone.category_of(row)
        entry = {
            "id": number,
            "image_id": identity,
            "category_id": category,
            "bbox": list(row.box),
            "area": row.area,
            "iscrowd": int(row.role is Role.CROWD),
            **{key: row.extra[key] for key in KEPT_KEYS if key in row.extra},
        }
        document["annotations" if scored else "ignored_regions"].append(entry)
        if not scored:
            loss.add(
                "region of no scored class, kept in the list 'ignored_regions', which only this library reads back"
            )
    write_text(out, json.dumps(document) + "\n")
    return f"coco:{out}:{folder}", [row for _, row in written]


def _to_yolo(dataset: AnnotatedDataset, rows: Rows, out: Path, loss: _Loss) -> tuple[str, list[Row]]:
    written = []
    for index, image_rows in enumerate(rows):
        width, height = dataset.size(index)
        lines = []
        for row in image_rows:
            if row.role is not Role.OBJECT:
                loss.add(f"{row.role} left out: YOLO has nothing that is not scored")
                continue
            if row.extra.get("truncation") or row.extra.get("occlusion"):
                loss.add("truncation or occlusion mark")
            x, y, w, h = row.box
            # repr keeps every digit, so that the pixels come back to within rounding error.
            shares = ((x + w / 2) / width, (y + h / 2) / height, w / width, h / height)
            lines.append(" ".join((str(row.label), *map(repr, shares))))
            written.append(row)
        text = "".join(f"{line}\n" for line in lines)
        write_text(out / "labels" / f"{dataset.images[index].stem}.txt", text)
    _link_images(dataset, out / "images")
    splits = "train: images\nval: images\n"
    names = "".join(f"  {label}: {json.dumps(name)}\n" for label, name in enumerate(dataset.names))
    # Without `path` trainers look beside the YAML; they require both splits, and one was converted.
    write_text(out / "data.yaml", f"# One split: point `train` at another before training.\n{splits}names:\n{names}")
    return f"yolo:{out / 'data.yaml'}", written


WRITERS: dict[str, Writer] = {"visdrone": _to_visdrone, "coco": _to_coco, "yolo": _to_yolo}


def _whole(row: Row, loss: _Loss) -> Row:
    """Round a box to whole pixels, as VisDrone has them, and count it if that moves it."""
    if all(isinstance(value, int) for value in row.box):
        return row
    x, y, w, h = row.box
    left, top = round(x), round(y)
    width, height = max(1, round(x + w) - left), max(1, round(y + h) - top)
    if max(abs(left - x), abs(top - y), abs(width - w), abs(height - h)) > 1e-6:
        loss.add("box moved to whole pixels")
    return Row((left, top, width, height), row.role, row.label, width * height, row.extra)


def _link_images(dataset: AnnotatedDataset, folder: Path) -> None:
    """Link every image into `folder`: annotations change format, images need no second copy.

    Where links are not allowed, as for most users of Windows, images are copied.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in dataset.images:
            link = folder / path.name
            if link.is_symlink():
                link.unlink()
            if path.is_file() and not link.exists():
                _link(path.resolve(), link)
    except OSError as error:
        raise InputError(
            f"{folder}: images can be neither linked nor copied here ({error.strerror or error}); make room or choose "
            "another --out"
        ) from None


def _link(path: Path, link: Path) -> None:
    try:
        link.symlink_to(path)
    except (OSError, NotImplementedError):
        shutil.copyfile(path, link)


def write_rendered(folder: Path, seeds: Sequence[int], width: int, height: int, config: "SceneConfig") -> str:
    """Render a scene per seed into `folder` as COCO and return its spec; a complete folder is left unchanged."""
    from vgtok.data.synthetic import render_scene

    spec = f"coco:{folder / 'annotations.json'}:{folder / 'images'}"
    if (folder / "annotations.json").is_file():
        return spec
    scenes = []
    for seed in seeds:
        scene = render_scene(seed, width, height, config)
        buffer = io.BytesIO()
        Image.fromarray(scene.pixels).save(buffer, "PNG", compress_level=3)
        write_bytes(folder / "images" / f"{seed:010d}.png", buffer.getvalue())
        scenes.append((f"{seed:010d}.png", scene))
    # Written last: with it the set is complete.
    write_text(folder / "annotations.json", json.dumps(coco_document(scenes)) + "\n")
    return spec


def coco_document(scenes: "Iterable[tuple[str, Scene]]") -> dict[str, Any]:
    """Return the COCO document of scenes, each given with its file name."""
    from vgtok.data.synthetic import NAMES

    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (name, scene) in enumerate(scenes, start=1):
        height, width = scene.pixels.shape[:2]
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for (x0, y0, x1, y1), label in zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": label + 1,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                }
            )
    categories = [{"id": label + 1, "name": name} for label, name in enumerate(NAMES)]
    return {"images": images, "annotations": annotations, "categories": categories}
