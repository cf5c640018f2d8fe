"""The public surface: names and signatures are pinned, every facade imports in a moment and without heavy packages."""

import subprocess
import sys
from difflib import unified_diff
from importlib import import_module

import pytest

from tests.public_names import FACADES, FILE, public_names

HEAVY = ("torch", "gradio", "matplotlib", "transformers", "scipy", "cv2", "numpy")


def test_names_and_signatures_are_the_committed_ones() -> None:
    committed, current = FILE.read_text(encoding="utf-8"), public_names()
    changes = "\n".join(unified_diff(committed.splitlines(), current.splitlines(), "committed", "current", lineterm=""))
    assert not changes, f"public names changed; if on purpose, run python -m tests.public_names\n{changes}"


@pytest.mark.parametrize("facade", FACADES)
def test_importing_a_facade_imports_nothing_heavy(facade: str) -> None:
    # In a process of its own: here other tests have imported them already.
    code = f"import sys, {facade}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_every_facade_lists_what_it_offers() -> None:
    for facade in FACADES:
        module = import_module(facade)
        assert set(module.__all__) <= set(dir(module)), facade
