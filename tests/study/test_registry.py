"""The map of the paper: every study is in it, and what it calls ready can be run by name alone."""

import json
import shutil
from pathlib import Path

import pytest

from vgtok.cli import main
from vgtok.data.convert import write_rendered
from vgtok.data.dataset import Dataset, open_dataset
from vgtok.data.synthetic import SceneConfig
from vgtok.errors import InputError
from vgtok.study.registry import ENTRIES, STUDIES, data_kinds, data_problem, load_study, named_dataset, weights_file
from vgtok.study.result import DEIT_WEIGHTS, RENDERED

VARIABLES = ("VGTOK_VISDRONE", "VGTOK_AITODV2", "VGTOK_WEIGHTS")


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    data_problem.cache_clear()


@pytest.fixture(scope="module")
def aitod(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rendered scenes where AI-TOD-v2 keeps its val split."""
    folder = tmp_path_factory.mktemp("aitodv2")
    write_rendered(folder, range(2), 256, 192, SceneConfig())
    (folder / "images").rename(folder / "val")
    (folder / "annotations").mkdir()
    (folder / "annotations.json").rename(folder / "annotations" / "aitodv2_val.json")
    assert len(open_dataset(f"aitodv2:{folder}").images) == 2
    return folder


def study(*words: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["vgtok", "study", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        main.run()
    return int(stopped.value.code or 0), *capsys.readouterr()


def entries(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    data_problem.cache_clear()
    _, out, _ = study("--json", monkeypatch=monkeypatch, capsys=capsys)
    return {entry["title"]: entry for entry in json.loads(out)["entries"]}


def test_aitod_named_by_the_environment_is_opened(
    tmp_path: Path, aitod: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    title = "Inverted retention tables"
    assert not entries(monkeypatch, capsys)[title]["ready"]
    monkeypatch.setenv("VGTOK_AITODV2", str(aitod))
    assert entries(monkeypatch, capsys)[title]["ready"]
    words = ("inversion", "--workers", 1, "--out", tmp_path, "--json")
    code, out, err = study(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, err
    document = json.loads(out)
    assert (document["data"], document["images"]) == ("aitodv2", 2)


def test_every_command_of_the_map_opens_the_data_of_its_entry(
    dataset: Dataset, aitod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGTOK_VISDRONE", str(dataset.images[0].parent.parent))
    monkeypatch.setenv("VGTOK_AITODV2", str(aitod))
    for entry in ENTRIES:
        words = entry.command.split()
        data = words[words.index("--data") + 1] if "--data" in words else None
        opened = named_dataset(data, data_kinds(entry.study))
        if set(entry.data) <= {RENDERED}:
            assert opened is None
        else:
            assert opened is not None
            assert opened.name in entry.data


def test_a_folder_that_is_no_data_set_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VGTOK_VISDRONE", str(tmp_path))
    found = entries(monkeypatch, capsys)
    assert found["Token-budget audit at 40%"]["needs"] == ["visdrone"]
    # Pictures are drawn of a rendered scene where there is no data.
    assert found["Score, split, gate, pack"]["ready"]
    assert found["Gate ablation at five budgets, procedure only"]["data"] == [RENDERED]
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = study(monkeypatch=monkeypatch, capsys=capsys)
    assert f"VGTOK_VISDRONE: {tmp_path}" in out.replace("\n", "")


def test_the_map_says_what_each_table_is_measured_with(
    aitod: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = entries(monkeypatch, capsys)
    for title, expected in (
        ("Token-budget audit at 40%", "same model"),
        ("Zero-shot gate effect", "other model"),
        ("Gate ablation at five budgets, procedure only", "other data"),
        ("Seed replicates and the seed floor", "paper only"),
        ("AI-TOD-v2 area bands", "paper only"),
    ):
        assert found[title]["measured_on"] == expected
    monkeypatch.setenv("VGTOK_AITODV2", str(aitod))
    assert entries(monkeypatch, capsys)["AI-TOD-v2 area bands"]["measured_on"] == "other model"


def test_the_map_fits_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = study(monkeypatch=monkeypatch, capsys=capsys)
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    for entry in ENTRIES:
        assert any(f" {entry.label} " in line and f" {entry.study} " in line for line in out.splitlines())


def test_fidelity_is_ready_only_with_its_weights(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    title = "Packed features against dense ones"
    monkeypatch.setenv("VGTOK_VISDRONE", str(dataset.images[0].parent.parent))
    assert entries(monkeypatch, capsys)[title]["needs"] == ["weights"]
    monkeypatch.setenv("VGTOK_WEIGHTS", str(tmp_path))
    assert entries(monkeypatch, capsys)[title]["needs"] == ["weights"]
    with pytest.raises(InputError, match=f"VGTOK_WEIGHTS: .* does not hold {DEIT_WEIGHTS}"):
        weights_file(DEIT_WEIGHTS)
    (tmp_path / DEIT_WEIGHTS).touch()
    assert entries(monkeypatch, capsys)[title]["ready"]


def test_a_bare_name_without_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="'aitodv2' has no folder; write aitodv2:DIR or set VGTOK_AITODV2"):
        named_dataset("aitodv2", ("visdrone",))


def test_a_folder_of_that_name_is_meant_where_there_is_one(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "visdrone").mkdir()
    shutil.copy(dataset.images[0], tmp_path / "visdrone")
    monkeypatch.chdir(tmp_path)
    opened = named_dataset("visdrone", ())
    assert opened is not None
    assert opened.name == "folder"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("grid", "--frame", "a.jpg"), "study 'grid': does not take --frame; it takes --data and --model and --limit"),
        (("seeds", "--limit", 2), "study 'seeds': does not take --limit; it takes none of these options"),
        (("affine", "--frame", "a.jpg"), "study 'affine': does not take --frame; it takes --data"),
        (("inversion", "--model", "vgtok-tiny"), "study 'inversion': does not take --model; it takes --data"),
    ],
)
def test_an_option_a_study_would_ignore_is_refused(
    words: tuple[object, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = study(*words, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert message in err


def test_every_study_is_in_the_map() -> None:
    assert set(STUDIES) == {entry.study for entry in ENTRIES}
    assert all(load_study(name).name == name for name in STUDIES)


def test_an_unknown_study_is_refused_with_the_names() -> None:
    with pytest.raises(InputError, match="study 'tables': no such study; there are inversion, budget-audit"):
        load_study("tables")
