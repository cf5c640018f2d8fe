"""`vgtok tokenize` as a user runs it: results on disk, one line per error, nothing half-written."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vgtok import Tokenizer


def vgtok(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from vgtok.cli.main import run; run()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    folder = tmp_path / "frames"
    folder.mkdir()
    for seed in range(3):
        pixels = np.random.default_rng(seed).integers(0, 256, (90, 160, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"frame{seed}.png")
    return folder


def test_a_folder_gives_overlays_arrays_and_json(frames: Path, tmp_path: Path) -> None:
    writes = [word for output in ("overlay", "npz", "json") for word in ("--write", output)]
    done = vgtok("tokenize", "frames", "--budget", 0.3, "--canvas", "320x180", *writes, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [Path(row["image"]).name for row in document["images"]] == ["frame0.png", "frame1.png", "frame2.png"]
    expected = Tokenizer(budget=0.3, canvas=(320, 180))(frames / "frame1.png")
    arrays = np.load(tmp_path / "vgtok-runs" / "tokenize" / "frame1.tokens.npz", allow_pickle=False)
    np.testing.assert_array_equal(arrays["x"], expected.x)
    np.testing.assert_array_equal(arrays["size"], expected.sizes)
    assert json.loads((tmp_path / "vgtok-runs" / "tokenize" / "frame1.tokens.json").read_text()) == expected.to_dict()
    with Image.open(tmp_path / "vgtok-runs" / "tokenize" / "frame1.tokens.png") as overlay:
        assert np.array_equal(np.asarray(overlay), np.asarray(expected.overlay(frames / "frame1.png")))


def test_globs_percentiles_tables_and_splitters(frames: Path, tmp_path: Path) -> None:
    for options in (
        ("--percentile", 70, "--rank", 0),
        ("--table", "visdrone", "--budget", 0.4),
        ("--splitter", "single_pass", "--budget", 0.5),
        ("--scorer", "entropy", "--gate", "homogeneity", "--budget", 0.5),
    ):
        canvas = "2048x1152" if "--table" in options else "native"
        done = vgtok("tokenize", "frames/frame[01].png", "--canvas", canvas, *options, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(json.loads(done.stdout)["images"]) == 2


def test_a_table_for_people(frames: Path, tmp_path: Path) -> None:
    done = vgtok("tokenize", "frames/frame0.png", "--canvas", "native", cwd=tmp_path)
    assert done.returncode == 0
    assert "frame0.png" in done.stdout
    assert "retained" in done.stdout


def test_images_of_one_name_do_not_overwrite_each_other(frames: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    Image.new("RGB", (50, 50)).save(tmp_path / "other" / "frame0.jpg")
    done = vgtok("tokenize", "frames/frame0.png", "other", "--canvas", "native", cwd=tmp_path)
    assert done.returncode == 0
    assert sorted(path.name for path in (tmp_path / "vgtok-runs" / "tokenize").glob("*.png")) == [
        "frame0-2.tokens.png",
        "frame0.tokens.png",
    ]


def test_bad_files_cost_one_line_each_and_the_rest_is_done(frames: Path, tmp_path: Path) -> None:
    (frames / "a_empty.jpg").write_bytes(b"")
    (frames / "b_text.jpg").write_text("not a picture")
    whole = tmp_path / "whole.jpg"
    Image.effect_noise((300, 200), 90).convert("RGB").save(whole)
    (frames / "c_cut.jpg").write_bytes(whole.read_bytes()[:4000])
    (frames / "d_folder.png").mkdir()
    (frames / "e_dangling.png").symlink_to(tmp_path / "nothing.png")
    done = vgtok("tokenize", "frames", "missing.jpg", "no*match", "--canvas", "native", cwd=tmp_path)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "passed over: 1 folder" in done.stderr
    assert len(lines) == 6
    for name in ("a_empty.jpg", "b_text.jpg", "c_cut.jpg", "e_dangling.png", "missing.jpg", "no*match"):
        assert sum(name in line for line in lines) == 1
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "vgtok-runs" / "tokenize").glob("*.png")) == [
        f"frame{seed}.tokens.png" for seed in range(3)
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", 3), "budget: 3.0 is outside"),
        (("--canvas", "big"), "WIDTHxHEIGHT"),
        (("--scorer", "magic"), "scorer: 'magic'"),
        (("--table", "visdrone"), "--table: goes with --budget"),
        (("--table", "visdrone", "--budget", 0.9), "cannot be reached"),
    ],
)
def test_bad_options_are_one_line(frames: Path, tmp_path: Path, options: tuple[object, ...], message: str) -> None:
    done = vgtok("tokenize", "frames", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "vgtok-runs").exists()


def test_an_output_folder_that_cannot_be_is_one_line(frames: Path, tmp_path: Path) -> None:
    (tmp_path / "vgtok-runs").write_text("a file")
    for more in ((), ("--out", "vgtok-runs")):
        done = vgtok("tokenize", "frames/frame0.png", "--canvas", "native", *more, cwd=tmp_path)
        assert done.returncode == 1
        assert "cannot be written" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_the_same_command_resumes_and_another_has_its_own_folder(frames: Path, tmp_path: Path) -> None:
    words = ("tokenize", "frames", "--canvas", "native", "--json")
    first = json.loads(vgtok(*words, cwd=tmp_path).stdout)
    assert first["out"] == str(Path("vgtok-runs/tokenize"))
    folder = tmp_path / first["out"]
    untouched = (folder / "frame0.tokens.png").stat().st_mtime_ns
    (folder / "frame1.tokens.png").unlink()
    Image.new("RGB", (64, 64)).save(frames / "frame2.png")
    again = json.loads(vgtok(*words, cwd=tmp_path).stdout)
    assert again["out"] == first["out"]
    assert again["images"][:2] == first["images"][:2]
    assert again["images"][2]["dense"] == 16, "a changed image is read again"
    assert (folder / "frame1.tokens.png").is_file()
    assert (folder / "frame0.tokens.png").stat().st_mtime_ns == untouched
    other = json.loads(vgtok(*words, "--budget", 0.2, cwd=tmp_path).stdout)
    assert other["out"] == str(Path("vgtok-runs/tokenize-2"))
    done = vgtok(*words, "--budget", 0.2, "--out", first["out"], cwd=tmp_path)
    assert done.returncode == 1
    assert "differs in budget" in done.stderr


def test_one_pixel_and_a_very_large_image(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1), (9, 9, 9)).save(tmp_path / "one.png")
    Image.new("1", (20000, 20000)).save(tmp_path / "large.png")
    done = vgtok("tokenize", "one.png", "large.png", "--write", "npz", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # The large one is read by windows at its own size.
    assert [row["dense"] for row in json.loads(done.stdout)["images"]] == [72 * 72, 1250 * 1250]
    done = vgtok("tokenize", "large.png", "--canvas", "2048x1152", "--write", "npz", "--json", cwd=tmp_path)
    assert [row["dense"] for row in json.loads(done.stdout)["images"]] == [72 * 72]


def test_version_and_help(tmp_path: Path) -> None:
    assert vgtok("--version", cwd=tmp_path).stdout.strip() == "0.2.0"
    assert "tokenize" in vgtok("--help", cwd=tmp_path).stdout


def test_a_table_read_another_way_is_refused(frames: Path, tmp_path: Path) -> None:
    table = ("--table", "visdrone", "--budget", 0.4)
    done = vgtok("tokenize", frames, *table, "--canvas", "native", cwd=tmp_path)
    assert done.returncode == 1
    assert "measured at 2048x1152, not native" in done.stderr
    done = vgtok("tokenize", frames, *table, "--gate", "homogeneity", cwd=tmp_path)
    assert "was measured with gate 'lambda_min'" in done.stderr
    done = vgtok("tokenize", frames, *table, "--splitter", "single_pass", "--json", cwd=tmp_path)
    assert all(row["retained"] == pytest.approx(0.4, abs=0.003) for row in json.loads(done.stdout)["images"])


def test_calibrate_writes_a_table_tokenize_can_use(tmp_path: Path) -> None:
    (tmp_path / "frames").mkdir()
    for seed in range(2):
        pixels = np.random.default_rng(seed).integers(0, 256, (128, 192, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "frames" / f"{seed}.png")
    options = ("--data", "frames", "--rank", 0.2, "--rank", 0.3, "--canvas", "192x128", "--workers", 2)
    done = vgtok("calibrate", *options, "--out", "own.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["curves"]) == 2
    assert not (tmp_path / "own.json.partial").exists()
    done = vgtok("tokenize", "frames", "--table", "own.json", "--budget", 0.5, "--canvas", "192x128", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = vgtok("calibrate", *options, "--out", "own.json", cwd=tmp_path)
    assert "no percentile reaches this budget" in shown.stdout
