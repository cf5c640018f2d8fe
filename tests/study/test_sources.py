"""Kept results belong to the code that computed them: another tokenizer finds another folder, a comment does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vgtok
from vgtok.study.cells import CellStore
from vgtok.study.sources import DETECTION, TRAINING, code_digest
from vgtok.tokenize.tokenizer import Tokenizer

PACKAGE = Path(vgtok.__file__).parent
SCRIPT = """
from pathlib import Path
from vgtok.study.cells import CellStore
from vgtok.tokenize.tokenizer import Tokenizer
print(CellStore(Path("out"), "weights", "query", 50).cell(Tokenizer(budget=0.5)).name)
"""


def cell_of(folder: Path) -> str:
    """The name of a cell by the package in `folder`, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout.strip()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(PACKAGE, tmp_path / "vgtok", ignore=shutil.ignore_patterns("shipped", "__pycache__"))
    return tmp_path


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), encoding="utf-8")


def test_a_changed_tokenizer_does_not_find_the_cells_of_the_old_one(copy: Path) -> None:
    here = CellStore(Path("out"), "weights", "query", 50).cell(Tokenizer(budget=0.5)).name
    frame = copy / "vgtok" / "tokenize" / "frame.py"
    edit(frame, "LUMA_WEIGHTS = (77, 150, 29)", "# Of BT.601.\nLUMA_WEIGHTS = (77,  150,  29)")
    assert cell_of(copy) == here
    edit(frame, "(77,  150,  29)", "(76, 150, 30)")
    assert cell_of(copy) != here


def test_digests_are_of_what_they_name() -> None:
    assert code_digest(DETECTION) == code_digest(DETECTION)
    assert len({code_digest(DETECTION), code_digest(TRAINING), code_digest(("tokenize",))}) == 3
    assert all((PACKAGE / part).exists() for part in (*DETECTION, *TRAINING))
