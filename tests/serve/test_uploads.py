"""The upload folder: a quota, an hour, and no trace of a server that was killed."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from vgtok.serve.uploads import MARKER, SECONDS_KEPT, Uploads, upload_folder

HOLD = """
import sys, time
from vgtok.serve.uploads import upload_folder
with upload_folder(1000) as uploads:
    print(uploads.keep(b"upload", "frame.png"), flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_beyond_the_quota_the_oldest_go(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads", quota=1000)
    paths = [Path(uploads.keep(bytes([number]) * 300, f"{number}.png")) for number in range(3)]
    for age, path in zip((30, 20, 10), paths, strict=True):
        os.utime(path, (time.time() - age,) * 2)
    paths.append(Path(uploads.keep(bytes(600), "large.png")))
    assert [path.exists() for path in paths] == [False, False, True, True]
    assert not paths[0].parent.exists()
    assert sum(path.stat().st_size for path in paths if path.exists()) <= 1000


def test_after_an_hour_they_are_gone(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads", quota=1000)
    old, new = (Path(uploads.keep(b"data", name)) for name in ("old.png", "new.png"))
    os.utime(old, (time.time() - SECONDS_KEPT - 1,) * 2)
    left_by_the_framework = uploads.folder / "tmp1"
    left_by_the_framework.touch()
    os.utime(left_by_the_framework, (time.time() - 61,) * 2)
    uploads.make_room()
    assert (old.exists(), new.exists(), left_by_the_framework.exists()) == (False, True, False)


def test_two_uploads_of_one_name_do_not_meet(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads", quota=1000)
    first, second = (uploads.keep(data, "frame.png") for data in (b"one", b"two"))
    assert (Path(first).read_bytes(), Path(second).read_bytes()) == (b"one", b"two")


@pytest.mark.skipif(sys.platform == "win32", reason="needs the locks of POSIX")
def test_what_a_killed_server_left_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    def hold() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout as announced:
            return process, Path(announced.readline().strip()).parents[1]

    killed, left = hold()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    live, used = hold()
    try:
        assert (left.exists(), used.exists()) == (False, True), "the next server deletes what is left"
        strange = tmp_path / "vgtok-serve-strange"
        strange.mkdir()
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / MARKER).touch()
        (tmp_path / "vgtok-serve-link").symlink_to(precious)
        with upload_folder(1000) as uploads:
            assert uploads.folder.exists()
        assert not uploads.folder.exists()
        # Another server's, one without a marker, and what a link leads to.
        assert used.exists()
        assert strange.exists()
        assert (precious / MARKER).exists()
    finally:
        live.kill()
        live.wait()
