"""Saved models and their cards: what goes in comes out, a kill leaves the old model, and damage is refused by name."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

from tests.detect.small_models import ENCODER, small_detector
from tests.tokenize.test_tokenizer import random_image
from vgtok.detect import saving
from vgtok.detect.detector import Detector
from vgtok.detect.saving import file_digest, load_detector, model_card, read_config, save_detector
from vgtok.errors import InputError
from vgtok.tokenize.retention import load_table
from vgtok.tokenize.tokenizer import Tokenizer, preset


def edited(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(document | changes))


def replace_weights(folder: Path, state: dict[str, torch.Tensor]) -> None:
    path = next(folder.glob("*.safetensors"))
    # Older safetensors map the file they read: written over, it would change under the tensors.
    path.unlink()
    save_file(state, path)
    edited(folder, weights={"file": path.name, "sha256": file_digest(path)})


def test_a_relative_folder_keeps_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        save_detector(small_detector(seed), "model")
    assert len(list(Path("model").glob("*.safetensors"))) == 1
    assert load_detector("model").names == ("car", "van", "bus")


def test_a_save_carries_everything(tmp_path: Path) -> None:
    original = Detector(small_detector().model, canvas=(192, 128), table=load_table("visdrone"), license="ask first")
    save_detector(original, tmp_path / "model")
    loaded = load_detector(tmp_path / "model")
    assert loaded.model.config == original.model.config
    assert (loaded.canvas, loaded.license, loaded.names) == ((192, 128), "ask first", ("car", "van", "bus"))
    assert loaded.table is not None
    assert original.table is not None
    assert loaded.table == original.table
    state = loaded.model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in original.model.state_dict().items())
    assert not loaded.model.training
    assert len({file.stat().st_mode for file in (tmp_path / "model").iterdir()}) == 1


def test_keys_of_earlier_releases_are_read_and_the_present_ones_written(tmp_path: Path) -> None:
    save_detector(small_detector(), tmp_path)
    path = tmp_path / "config.json"
    document = json.loads(path.read_text())
    assert (document["license"], document["preprocessing"]["color"]) == ("for tests only", "RGB")
    document["licence"] = document.pop("license")
    document["preprocessing"]["colour"] = document["preprocessing"].pop("color")
    path.write_text(json.dumps(document))
    assert load_detector(tmp_path).license == "for tests only"
    assert "RGB, mean" in model_card(read_config(tmp_path), "old")


def test_the_default_budget_is_part_of_a_model(tmp_path: Path) -> None:
    never = Detector(small_detector().model, canvas=(192, 128), budget=1.0)
    save_detector(never, tmp_path / "model")
    assert load_detector(tmp_path / "model").budget == 1.0
    edited(tmp_path / "model", budget="all")
    with pytest.raises(InputError, match="damaged model configuration"):
        load_detector(tmp_path / "model")


def test_a_model_knows_the_tokenizer_it_is_read_by(tmp_path: Path) -> None:
    compact = Detector(small_detector().model, canvas=(192, 128), tokenizer_name="compact")
    save_detector(compact, tmp_path / "model")
    loaded = load_detector(tmp_path / "model")
    expected = Tokenizer(0.4, canvas=(192, 128), **preset("compact"))
    assert loaded.tokenizer() == compact.tokenizer(0.4) == expected
    image = random_image(128, 192, 5)
    boxes = loaded(image, score_threshold=0).tokens.boxes
    np.testing.assert_array_equal(boxes, expected(image).boxes)
    np.testing.assert_array_equal(loaded.prepare(image).tokens.boxes, boxes)
    assert not np.array_equal(boxes, Tokenizer(0.4, canvas=(192, 128))(image).boxes)
    document = json.loads((tmp_path / "model" / "config.json").read_text())
    # A model of an earlier version
    del document["tokenizer"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(document))
    assert load_detector(tmp_path / "model").tokenizer_name == "top-hat+gate"
    edited(tmp_path / "model", tokenizer="by taste")
    with pytest.raises(InputError, match=r"damaged model configuration .*'by taste' is not one of single-pass"):
        load_detector(tmp_path / "model")


@pytest.mark.parametrize(("fusion", "budget"), [((), 1.0), ((32, 64), 0.4)])
def test_a_folder_that_names_no_budget_has_that_of_its_fusion(
    tmp_path: Path, fusion: tuple[int, ...], budget: float
) -> None:
    save_detector(small_detector(encoder_overrides={**ENCODER, "fusion": fusion}), tmp_path / "model")
    document = json.loads((tmp_path / "model" / "config.json").read_text())
    del document["budget"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(document))
    assert load_detector(tmp_path / "model").budget == budget


def test_heads_that_only_train_can_be_left_out(tmp_path: Path) -> None:
    original = small_detector()
    save_detector(original, tmp_path / "query", auxiliary=())
    save_detector(original, tmp_path / "atss", auxiliary=("atss",))
    query, atss = load_detector(tmp_path / "query"), load_detector(tmp_path / "atss")
    assert not {"rpn_head", "roi_head", "atss_head"} & query.model.parts().keys()
    assert "atss_head" in atss.model.parts()
    image = torch.randint(0, 256, (3, 96, 128), dtype=torch.uint8)
    for head, saved in (("query", query), ("query", atss), ("atss", atss)):
        mine, theirs = original(image, head=head), saved(image, head=head)
        torch.testing.assert_close(torch.from_numpy(mine.scores), torch.from_numpy(theirs.scores))
    with pytest.raises(InputError, match="has no roi head to keep"):
        save_detector(query, tmp_path / "again", auxiliary=("roi",))


def test_half_is_half_the_size_and_loads_in_full(tmp_path: Path) -> None:
    original = small_detector()
    full = save_detector(original, tmp_path / "full").stat().st_size
    half = save_detector(original, tmp_path / "half", half=True).stat().st_size
    assert half < 0.65 * full
    loaded = load_detector(tmp_path / "half").model.state_dict()
    for name, tensor in original.model.state_dict().items():
        assert loaded[name].dtype == torch.float32
        torch.testing.assert_close(loaded[name], tensor.half().float())
    with torch.no_grad():
        original.model.query_head.label_embedding.weight[0, 0] = 1e6
    with pytest.raises(InputError, match=r"query_head.label_embedding.weight holds values beyond fp16"):
        save_detector(original, tmp_path / "half", half=True)


def test_a_kill_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    save_detector(small_detector(seed=1), folder)
    before = load_detector(folder).model.state_dict()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(saving, "_document", killed)
        with pytest.raises(KeyboardInterrupt):
            save_detector(small_detector(seed=2), folder)
    after = load_detector(folder).model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    save_detector(small_detector(seed=2), folder)
    assert len(list(folder.glob("*.safetensors"))) == 1
    assert len(list(folder.iterdir())) == 2


def test_every_tensor_must_fit(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    path = save_detector(small_detector(), folder)
    state = load_file(path)
    dropped = {name: tensor for name, tensor in state.items() if name != "neck.p4.0.weight"}
    for wrong, message in (
        (dropped, "missing: neck.p4.0.weight"),
        (state | {"neck.p9.weight": torch.zeros(2)}, "extra: neck.p9.weight"),
        (state | {"neck.p4.1.bias": torch.zeros(2)}, r"of another shape: neck.p4.1.bias \(2,\) instead of \(32,\)"),
    ):
        replace_weights(folder, wrong)
        with pytest.raises(InputError, match=message):
            load_detector(folder)


def test_damage_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(InputError, match="not a saved model"):
        load_detector(tmp_path)
    path = save_detector(small_detector(), folder)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="sha256 differs"):
        load_detector(folder)
    path.unlink()
    with pytest.raises(InputError, match="are not there; copy the whole folder"):
        load_detector(folder)
    edited(folder, weights={"file": "../model.safetensors", "sha256": ""})
    with pytest.raises(InputError, match="are not there"):
        load_detector(folder)
    edited(folder, preprocessing={"canvas": "native", "mean": [0, 0, 0], "std": [1, 1, 1]})
    with pytest.raises(InputError, match="mean and std differ"):
        load_detector(folder)
    edited(folder, config={"encoder": "eva02-large", "names": ["car"], "colour": "red"})
    with pytest.raises(InputError, match="unknown fields colour"):
        load_detector(folder)
    edited(folder, version=9)
    with pytest.raises(InputError, match="model of version 9"):
        load_detector(folder)
    (folder / "config.json").write_text('{"format": "other"}')
    with pytest.raises(InputError, match="not the configuration of a vgtok detector"):
        load_detector(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="not a json file"):
        load_detector(folder)


def test_the_head_a_model_prefers_is_saved_with_it(tmp_path: Path) -> None:
    detector = Detector(small_detector().model, canvas=(128, 128), head="atss")
    save_detector(detector, tmp_path / "whole")
    save_detector(detector, tmp_path / "bare", auxiliary=())
    whole, bare = load_detector(tmp_path / "whole"), load_detector(tmp_path / "bare")
    assert (whole.head, bare.head) == ("atss", "query")
    image = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    own, named, other = (whole(image, head=head, score_threshold=0.0) for head in (None, "atss", "query"))
    assert np.array_equal(own.scores, named.scores)
    assert not np.array_equal(own.scores, other.scores)
    with pytest.raises(InputError, match="without its ATSS head"):
        Detector(bare.model, head="atss")


@pytest.mark.parametrize(
    "changes",
    [
        {"config": []},
        {"config": {"encoder_layers": "6"}},
        {"config": {"heads": 0}},
        {"config": {"dim": -8}},
        {"config": {"encoder_overrides": {"depth": 3.5}}},
        {"config": {"encoder_overrides": {"nonsense": 1}}},
        {"config": {"encoder_layers": 1_000_000}},
        {"config": {"names": [1, 2, 3]}},
        {"preprocessing": {"canvas": [float("inf"), 1]}},
        {"preprocessing": {"canvas": [192, "128"]}},
        {"license": None, "weights": []},
        {"head": ["query"]},
        {"budget": 10**400},
        {"budget": 7},
    ],
)
def test_a_damaged_configuration_is_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    save_detector(small_detector(), tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    edited(
        tmp_path,
        **{key: document[key] | value if isinstance(value, dict) else value for key, value in changes.items()},
    )
    began = time.process_time()
    with pytest.raises(InputError):
        load_detector(tmp_path)
    assert time.process_time() - began < 5


def test_a_configuration_nested_deeply_is_one_line(tmp_path: Path) -> None:
    save_detector(small_detector(), tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"config\.json: not a json file"):
        load_detector(tmp_path)
    assert not saving.is_saved(tmp_path)


@pytest.mark.parametrize("kind", [torch.int8, torch.bool])
def test_weights_of_another_kind_are_refused(tmp_path: Path, kind: torch.dtype) -> None:
    save_detector(small_detector(), tmp_path)
    state = load_file(next(tmp_path.glob("*.safetensors")))
    name = next(name for name, tensor in state.items() if tensor.is_floating_point())
    replace_weights(tmp_path, state | {name: torch.zeros(state[name].shape, dtype=kind)})
    with pytest.raises(InputError, match=f"{name} holds {kind}"):
        load_detector(tmp_path)


def test_weights_in_other_precisions_become_full(tmp_path: Path) -> None:
    save_detector(small_detector(), tmp_path)
    state = load_file(next(tmp_path.glob("*.safetensors")))
    replace_weights(tmp_path, {name: t.double() if t.is_floating_point() else t for name, t in state.items()})
    assert {tensor.dtype for tensor in load_detector(tmp_path).model.parameters()} == {torch.float32}


def test_nan_weights_are_refused(tmp_path: Path) -> None:
    save_detector(small_detector(), tmp_path)
    state = load_file(next(tmp_path.glob("*.safetensors")))
    name = next(name for name, tensor in state.items() if tensor.is_floating_point())
    replace_weights(tmp_path, state | {name: torch.full_like(state[name], float("nan"))})
    with pytest.raises(InputError, match="NaN or infinite"):
        load_detector(tmp_path)


def card(folder: Path, **changes: Any) -> str:
    save_detector(Detector(small_detector().model, **changes), folder)
    return model_card(read_config(folder), "someone/small")


def test_the_hub_reads_the_front_matter(tmp_path: Path) -> None:
    data = ModelCard(card(tmp_path)).data
    assert (data.library_name, data.pipeline_tag) == ("vgtok", "object-detection")
    assert {"vgtok", "co-detr", "object-detection"} <= set(data.tags or ())


@pytest.mark.parametrize(("license", "known"), [("Apache-2.0", "apache-2.0"), ("ask first", "other"), ("", "unknown")])
def test_a_license_is_an_identifier_or_a_note(tmp_path: Path, license: str, known: str) -> None:
    text = card(tmp_path, license=license)
    assert ModelCard(text).data.license == known
    note = text.partition("## License\n\n")[2]
    assert note.strip() == (license or "Not stated; ask whoever trained it before you rely on it.")


def test_the_card_tells_what_the_model_is(tmp_path: Path) -> None:
    text = card(tmp_path, canvas=(192, 128), table=load_table("visdrone"))
    parameters = sum(small_detector().model.parts().values()) / 1e6
    for expected in (
        "# small\n",
        'vgtok.load("someone/small")',
        "3 classes, encoder eva02-large",
        f"| parameters | {parameters:.2f}M (encoder ",
        "| canvas | fits inside 192 x 128 px |",
        "| auxiliary heads | roi, atss |",
        "| retention table | yes |",
        "## Classes\n\ncar, van, bus\n",
    ):
        assert expected in text, expected
    assert "measured" not in text
    save_detector(small_detector(), tmp_path, auxiliary=())
    assert "| auxiliary heads | none, for inference only |" in model_card(read_config(tmp_path), "small")


def test_what_was_measured_is_a_table(tmp_path: Path) -> None:
    rows = [{"data": "visdrone", "budget": 0.4, "AP": 21.37129}, {"data": "a|b", "AP50": 40}]
    text = card(tmp_path, evaluations=rows)
    assert (
        "| data | budget | AP | AP50 |\n| --- | --- | --- | --- |\n"
        "| visdrone | 0.4 | 21.37 |  |\n| a\\|b |  |  | 40 |\n"
    ) in text
