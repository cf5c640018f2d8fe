"""Every code block of README and docs: sessions run as doctests, the rest here, in a folder that holds what they name.

A shell command is read by the command line's own parser, so that no page can name an option that does not exist; then
it is run, unless it takes minutes, opens a port, starts a cluster or needs a model that is not here. Python that
speaks to a server or starts a cluster is compiled only.
"""

import re
import shlex
import shutil
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer

import vgtok
from tests.detect.small_models import SMALL
from tests.docs.pages import ROOT, SHELL, Block, blocks, name_of, pages, spans
from tests.docs.workspace import furnish
from vgtok.cli import main
from vgtok.detect import checkpoint
from vgtok.detect.loading import shipped_models

LONG = frozenset({"bench", "train", "finetune", "serve"})
"""Verbs that measure, learn or wait for visitors: parsed here, run by tests of their own."""

WHOLE_CANVAS = (("study", "all"), ("export", "onnx", "vgtok-tiny"))
"""First words of commands that take minutes on the whole canvas of the model in the package: parsed here too."""

HUB_NAME = "owner/name"
"""What pages call a model on the hub; here it is the one in the workspace."""

OTHERS = frozenset({"pip", "make", "python", "export", "cd", "curl", "pre-commit", "ray"})
"""What a page may use beside the package's own command."""

PAGES = [pytest.param(page, id=name_of(page)) for page in pages()]


def plain_blocks(page: Path) -> list[Block]:
    """What pytest does not already run as doctests."""
    return [block for block in blocks(page) if block.language in ("python", *SHELL) and not block.session]


WITH_BLOCKS = [pytest.param(page, id=name_of(page)) for page in pages() if plain_blocks(page)]


@pytest.fixture(scope="module")
def parser() -> Any:
    """The whole command line, with nothing behind its verbs."""
    command = typer.main.get_command(main.app)
    _disconnect(command)
    return command


def _disconnect(command: Any) -> None:
    for inner in command.commands.values():
        inner.callback = lambda **_: None
        if hasattr(inner, "commands"):
            _disconnect(inner)


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_shell_commands_are_parsed(page: Path, parser: Any) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shell = [block for block in plain_blocks(page) if block.language in SHELL]
    for program, *arguments in chain.from_iterable(block.commands for block in shell):
        if program == "accelerate":
            # A launcher starts the package as a module; what follows is an ordinary command.
            program, *arguments = arguments[arguments.index("vgtok") :]
        if program == "vgtok":
            parser.main(args=arguments, standalone_mode=False)
            continue
        assert program in OTHERS, f"'{program}' is not among the programs a page may use"
        if program == "make":
            assert set(arguments) <= set(targets)
        if program == "pip":
            asked = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
            assert {extra for extra in ",".join(asked).split(",") if extra} <= set(extras)
        if program == "python" and arguments[0].endswith(".py"):
            assert (ROOT / arguments[0]).is_file()


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_prose_exist(page: Path) -> None:
    for span in spans(page):
        command = typer.main.get_command(main.app)
        words = span.split()[1:]
        # NAME and the like stand for any word.
        while hasattr(command, "commands") and words and words[0].islower() and words[0][0] != "-":
            if words[0] not in command.commands:
                # `convert` takes a data set where no inner verb stands.
                command = command.commands.get("annotations")
                assert command is not None, span
                break
            command = command.commands[words.pop(0)]
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= options, span


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "workspace"
    folder.mkdir()
    furnish(folder)
    return folder


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_blocks_run_in_the_order_of_the_page(
    page: Path, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shutil.copytree(template, tmp_path / "workspace"))
    # A released checkpoint of the size of the one in the workspace, and a hub that is this folder.
    monkeypatch.setattr(checkpoint.convert_co_detr, "__defaults__", (None, SMALL))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(template / "model"))
    monkeypatch.setattr("vgtok.detect.loading.push", lambda *_, **__: "address", raising=False)
    # A page must not find data its commands did not name.
    for name in ("VGTOK_VISDRONE", "VGTOK_AITODV2"):
        monkeypatch.delenv(name, raising=False)
    names: dict[str, Any] = {"vgtok": vgtok}
    for block in plain_blocks(page):
        if block.language == "python":
            code = compile(block.text, name_of(page), "exec")
            if "http://" not in block.text and "ray.init" not in block.text:
                exec(code, names)
            continue
        for words in _runnable(block):
            monkeypatch.setattr("sys.argv", words)
            with pytest.raises(SystemExit) as stopped:
                main.run()
            assert not stopped.value.code, f"{shlex.join(words)}\n{capfd.readouterr().err}"


def _runnable(block: Block) -> list[list[str]]:
    commands = [words for words in block.commands if words[0] == "vgtok" and words[1] not in LONG]
    commands = [
        words for words in commands if not any(tuple(words[1:])[: len(first)] == first for first in WHOLE_CANVAS)
    ]
    return [words for words in commands if "--engine" not in words and _model(words)]


def _model(words: list[str]) -> bool:
    """Whether the model a command names, if any, is in the workspace, on its hub or in the package."""
    if "--model" not in words:
        return True
    name = words[words.index("--model") + 1]
    return Path(name).exists() or name == HUB_NAME or name in shipped_models()
