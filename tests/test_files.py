"""Files: whole or not at all, nothing left behind for good, one writer at a time, errors that name them."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vgtok
from vgtok import InputError
from vgtok.files import drafted, locked, read_json, replacing, stamp, write_bytes, write_text

HOLD = """
import sys, time
from pathlib import Path
from vgtok.files import locked
with locked(Path(sys.argv[1]), Path("out")):
    print("held", flush=True)
    time.sleep(60)
"""


def drafts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def write_half(path: Path) -> None:
    with replacing(path) as draft:
        draft.write_bytes(b"half")
        raise KeyboardInterrupt


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"old")
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert drafts(tmp_path) == []


def test_what_a_kill_left_is_removed_by_a_later_run(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path; from vgtok.files import replacing\n"
    code += "with replacing(Path(sys.argv[1])) as draft: draft.write_bytes(b'half'); os.kill(os.getpid(), 9)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, tmp_path / "a.json"], check=False)
    fresh, abandoned = (tmp_path / name for name in drafts(tmp_path))
    hours_ago = time.time() - 7200
    os.utime(abandoned, (hours_ago, hours_ago))
    write_text(tmp_path / "b.json", "{}")
    # Another process may still be writing to the fresh one.
    assert drafts(tmp_path) == [fresh.name]


def test_a_draft_is_gone_unless_it_was_renamed(tmp_path: Path) -> None:
    with drafted(tmp_path / "a") as draft:
        draft.replace(tmp_path / "b")
    with drafted(tmp_path / "a"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_long_names_and_half_characters(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 250), "half a pair: \ud800")
    assert (tmp_path / ("n" * 250)).read_text() == "half a pair: \\ud800"


def test_one_writer_at_a_time_and_none_after_a_kill(tmp_path: Path) -> None:
    lock = tmp_path / "out" / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match="out: another run is writing there"), locked(lock, tmp_path / "out"):
        pass
    holder.kill()
    holder.communicate()
    assert lock.exists(), "the file of a killed run stays, and blocks nobody"
    with locked(lock, tmp_path / "out"):
        pass
    assert not lock.exists()


def test_a_place_that_cannot_be_locked_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"), locked(tmp_path / "file" / ".lock", tmp_path):
        pass


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5000])
def test_what_is_no_json_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(InputError, match=r"a\.json: not a retention table"):
        read_json(tmp_path / "a.json", "retention table")


def test_a_stamp_changes_with_its_file(tmp_path: Path) -> None:
    assert stamp(tmp_path / "a") == []
    write_text(tmp_path / "a", "1")
    first = stamp(tmp_path / "a")
    write_text(tmp_path / "a", "12")
    assert stamp(tmp_path / "a") != first


def test_text_is_read_and_written_in_an_encoding_that_is_named() -> None:
    """What a system takes for text by default differs: elsewhere a name with an umlaut would come back as another."""
    unnamed = []
    for path in sorted(Path(vgtok.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("read_text", "write_text") and "encoding" not in {word.arg for word in node.keywords}:
                unnamed.append(f"{path.name}:{node.lineno}")
    assert unnamed == []
