"""The study of tiles: looks are cached and reused, rows are what the slicer itself finds."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.slicing.yolo_files import columns, write_yolo
from vgtok import InputError, Slicer, Tokenizer, load
from vgtok.data.dataset import Dataset
from vgtok.slicing.guides import GUIDES
from vgtok.study import looks
from vgtok.study.looks import COARSE, FINE, OVERLAP, TILE, Reader, read_frames
from vgtok.study.registry import load_study
from vgtok.study.result import Inputs
from vgtok.tokenize.canvas import read_image

ROWS = np.array([(8, 20, 24, 30, 0.9, 2), (40, 30, 44, 36, 0.2, 0)], dtype=np.float32)


@pytest.fixture
def yolo(tmp_path: Path) -> str:
    return str(write_yolo(tmp_path / "yolo.onnx", columns(ROWS, 80)))


def test_rows_for_every_share_and_guide_and_an_interrupted_run_goes_on(
    dataset: Dataset, tmp_path: Path, yolo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Inputs(dataset, 1, out=tmp_path, models=(yolo,), limit=2, class_map=("pedestrian=person",))
    result = load_study("slicer").run(given)
    assert [(row["share"], row["guide"]) for row in result.rows] == [
        (0.0, "-"),
        *((share, guide) for share in (0.25, 0.5) for guide in (*GUIDES, "random")),
        (1.0, "-"),
    ]
    assert {"ap", "aps", "megapixels", "ms"} <= result.rows[0].keys()
    megapixels = [row["megapixels"] for row in result.rows if row["guide"] in ("-", "both")]
    assert megapixels == sorted(megapixels)
    assert any("pedestrian = person" in note for note in result.notes)
    stored = list((tmp_path / "looks").rglob("*.npz"))
    assert len(stored) == 2
    # A damaged file is read again, the other is not.
    stored[0].write_bytes(b"cut short")
    read: list[Path] = []
    real = looks._read
    monkeypatch.setattr(looks, "_read", lambda job, reader: (read.append(job.path), real(job, reader)))
    again = load_study("slicer").run(given)
    assert len(read) == 1
    assert [row["ap"] for row in again.rows] == [row["ap"] for row in result.rows]


def test_looks_give_what_the_slicer_gives(dataset: Dataset, tmp_path: Path, yolo: str) -> None:
    reader = Reader(yolo)
    frame = read_frames(yolo, reader, dataset.images[:1], tmp_path, 1)[0]
    for guide in GUIDES:
        slicer = Slicer(reader, budget=0.5, guide=guide, coarse=COARSE, fine=FINE, tile=TILE, overlap=OVERLAP)
        direct = slicer(read_image(dataset.images[0]))
        assert frame.order(guide).tolist() == direct.order.tolist()
        boxes, scores, labels = frame.found(direct.tiles_read.tolist())
        np.testing.assert_allclose(boxes, direct.boxes, atol=1e-3)
        np.testing.assert_allclose(scores, direct.scores, atol=1e-6)
        assert labels.tolist() == direct.labels.tolist()
        assert frame.megapixels(direct.read) == pytest.approx(direct.spent.megapixels)


def test_a_map_goes_to_the_model_that_has_its_classes(dataset: Dataset, tmp_path: Path, yolo: str) -> None:
    other = write_yolo(tmp_path / "other.onnx", columns(ROWS, 3), names="{0: 'car', 1: 'bus', 2: 'van'}")
    given = Inputs(dataset, 1, out=tmp_path, models=(yolo, str(other)), limit=1, class_map=("motor=motorcycle",))
    result = load_study("slicer").run(given)
    assert {row["model"] for row in result.rows} == {"yolo.onnx", "other.onnx"}
    assert "other.onnx, classes: car, van, bus" in result.notes
    with pytest.raises(InputError, match="unicorn"):
        load_study("slicer").run(Inputs(dataset, 1, out=tmp_path, models=(yolo,), limit=1, class_map=("car=unicorn",)))


def test_a_detector_of_this_library_reads_with_all_tokens(inputs: Inputs) -> None:
    reader = Reader(inputs.model)
    pixels = np.random.default_rng(0).integers(0, 256, (128, 192, 3), dtype=np.uint8)
    expected = load(inputs.model)(pixels, tokenizer=Tokenizer(budget=1.0, canvas="native"), score_threshold=0.0)
    found = reader(pixels)
    np.testing.assert_allclose(found.boxes[:5], expected.boxes[:5])
    assert reader.names == expected.class_names
