"""Names, folders, globs, cameras and addresses to files."""

from pathlib import Path

import pytest

from vgtok.cli.inputs import Found, absolute_inputs, find_inputs, output_names, passed_over_text

SUFFIXES = frozenset({".jpg", ".avif", ".mp4"})


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("b.JPG", "a.avif", "c.heic", "d.heic", "notes.txt", "LICENSE", ".hidden", "in/e.jpg", "in/deep/f.jpg"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).touch()
    return tmp_path / "photos"


def found(*arguments: object, recursive: bool = False, cameras: bool = False) -> tuple[Found, dict[str, str]]:
    failed: dict[str, str] = {}
    inputs = find_inputs(
        [str(word) for word in arguments], SUFFIXES, failed.__setitem__, recursive=recursive, cameras=cameras
    )
    return inputs, failed


def test_a_folder_says_what_it_passes_over(photos: Path) -> None:
    inputs, failed = found(photos, photos / "b.JPG")
    assert not failed
    assert [path.name for path in inputs.files] == ["a.avif", "b.JPG"]
    assert inputs.passed_over == {".heic": 2, ".txt": 1, "without suffix": 1, "folders": 1}
    said = passed_over_text(inputs.passed_over)
    assert said.startswith("passed over: 2 .heic, 1 .txt, 1 folder, 1 without suffix")
    assert "--recursive" in said
    assert "pip install 'vgtok[heif]' to read HEIC" in said
    assert passed_over_text({}) == ""


def test_recursive_reads_every_folder(photos: Path) -> None:
    inputs, _ = found(photos, recursive=True)
    assert [path.relative_to(photos).as_posix() for path in inputs.files] == [
        "a.avif",
        "b.JPG",
        "in/e.jpg",
        "in/deep/f.jpg",
    ]
    assert "folders" not in inputs.passed_over


def test_globs_match_files_and_folders(photos: Path) -> None:
    assert [path.name for path in found(photos / "i*")[0].files] == ["e.jpg"]
    assert [path.name for path in found(photos / "**" / "*.jpg")[0].files] == ["f.jpg", "e.jpg"]
    # A file whose name looks like a pattern is that file.
    (photos / "x[1].jpg").touch()
    assert [path.name for path in found(photos / "x[1].jpg")[0].files] == ["x[1].jpg"]


def test_what_is_not_there_is_said_per_argument(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "heic").mkdir()
    (tmp_path / "heic" / "a.heic").touch()
    words = (
        photos / "no.jpg",
        photos / "no*.jpg",
        "rtsp://camera/1",
        tmp_path / "empty",
        tmp_path / "heic",
        "a\0b",
        "0",
    )
    inputs, failed = found(*words, photos / "in")
    assert [path.name for path in inputs.files] == ["e.jpg"]
    messages = ("no such file", "matches no file", "nothing is fetched", "but nothing", "but 1 .heic", "no such file")
    for word, message in zip(map(str, words), (*messages, "no such file"), strict=True):
        assert message in failed[word]


def test_numbers_are_cameras_where_there_is_no_such_file(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos)
    assert found("0", "12", cameras=True)[0].cameras == [0, 12]
    (photos / "0").touch()
    assert found("0", cameras=True)[0] == Found([Path("0")])
    assert absolute_inputs(["in/../in/e.jpg"]) == absolute_inputs([str(photos / "in" / "e.jpg")])


def test_results_of_equal_names_are_numbered() -> None:
    names = output_names([Path("a/1.jpg"), Path("b/1.png"), Path("c/2.jpg")])
    assert list(names.values()) == ["1", "1-2", "2"]
