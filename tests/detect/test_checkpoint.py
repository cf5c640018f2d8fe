"""The converter's names: every tensor of the public release has its place, and one fault is enough to be refused."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.detect.public_layout import public_layout
from tests.detect.small_models import SMALL, small_detector
from vgtok.detect import checkpoint
from vgtok.detect.checkpoint import convert_co_detr, to_public, write_co_detr
from vgtok.detect.detector import Detector
from vgtok.encode.loading import read_state
from vgtok.errors import InputError
from vgtok.names import COCO
from vgtok.tokenize.canvas import fitted_size

RUNTIME = {
    "ema_backbone_pos_embed": (3,),
    "backbone.rope_win.freqs_cos": (576, 64),
    "backbone.blocks.3.attn.rope.freqs_sin": (4096, 64),
}


@pytest.fixture(scope="module")
def released() -> dict[str, Tensor]:
    """The public release without its values."""
    return {name: torch.empty(shape, device="meta") for name, shape in public_layout().items()}


def test_the_public_release_fits_whole(released: dict[str, Tensor]) -> None:
    extra = {name: torch.empty(shape, device="meta") for name, shape in RUNTIME.items()}
    converted = convert_co_detr(released | extra, "released.pth")
    assert converted.tensors == len(released) == 854
    assert converted.reinitialized == ()
    assert converted.detector.names == COCO
    assert "unresolved" in converted.detector.license
    # It was tested at this scale and never saw a coarse token.
    assert (converted.detector.canvas, converted.detector.budget) == ((2048, 1280), 1.0)
    model = converted.detector.model
    assert model.config.queries == 1500
    # Coarse keys weigh as in the paper unless asked otherwise.
    assert not model.config.encoder_config().proportional
    asked = convert_co_detr(released, "released.pth", proportional=True).detector.model
    assert asked.config.encoder_config().proportional
    # Nothing was left as built: every tensor of the model is one of the checkpoint's, and all of them are used.
    back = to_public(model.state_dict(), model.config.encoder_config())
    assert {name: t.shape for name, t in back.items()} == {name: t.shape for name, t in released.items()}


def test_other_classes_start_nineteen_tensors_anew(released: dict[str, Tensor]) -> None:
    converted = convert_co_detr(released, "released.pth", names=[f"thing {number}" for number in range(10)])
    assert len(converted.reinitialized) == 19
    state = converted.detector.model.state_dict()
    for name in converted.reinitialized:
        assert not state[name].is_meta
        assert any(side in (10, 11) for side in state[name].shape)
    assert all(state[name].is_meta for name in state.keys() - set(converted.reinitialized))
    renamed = convert_co_detr(released, "released.pth", names=[f"thing {number}" for number in range(80)])
    assert renamed.reinitialized == ()
    assert renamed.detector.names[79] == "thing 79"


def test_a_small_image_is_read_at_the_scale_of_the_release(released: dict[str, Tensor]) -> None:
    canvas = convert_co_detr(released, "released.pth").detector.canvas
    assert fitted_size(480, 640, canvas) == (1280, 1707)


def test_the_lvis_checkpoint_is_refused_as_what_it_is(released: dict[str, Tensor]) -> None:
    lvis = {
        name: torch.empty(1203, *tensor.shape[1:], device="meta") if "query_head.cls_branches" in name else tensor
        for name, tensor in released.items()
    }
    with pytest.raises(InputError, match=r"lvis.pth: a Co-DETR checkpoint for LVIS .* use a checkpoint for COCO"):
        convert_co_detr(lvis, "lvis.pth")


def test_each_fault_is_named(released: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = checkpoint._shapes(checkpoint._config_of(released, checkpoint._RELEASED))
    monkeypatch.setattr(checkpoint, "_shapes", lambda _: wanted)
    for name in list(released)[::9]:
        fewer = {key: tensor for key, tensor in released.items() if key != name}
        with pytest.raises(InputError, match=rf"released.pth: .*missing: {name}\."):
            convert_co_detr(fewer, "released.pth")
        shape = (*released[name].shape[:-1], released[name].shape[-1] + 1) if released[name].ndim else (2,)
        with pytest.raises(InputError, match=rf"of another shape: {name} \("):
            convert_co_detr(released | {name: torch.empty(shape, device="meta")}, "released.pth")
    for name in ("neck.p7.0.weight", "backbone.blocks.24.norm1.weight", "roi_head.1.bbox_head.fc_cls.bias"):
        with pytest.raises(InputError, match=rf"extra: {name}\."):
            convert_co_detr(released | {name: torch.empty(4, device="meta")}, "released.pth")


def small_public(detector: Detector) -> dict[str, Tensor]:
    model = detector.model
    return to_public(model.state_dict(), model.config.encoder_config())


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_there_and_back_is_the_same(tmp_path: Path, suffix: str) -> None:
    original = small_detector()
    path = tmp_path / f"public{suffix}"
    assert write_co_detr(original, path) == ()
    public = read_state(path)
    returned = convert_co_detr(public, str(path), original.names, SMALL).detector
    state = returned.model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in original.model.state_dict().items())
    again = small_public(returned)
    assert public.keys() == again.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in public.items())


def test_half_precision_arrives_in_full() -> None:
    public = {name: tensor.half() for name, tensor in small_public(small_detector()).items()}
    state = convert_co_detr(public, "half.pth", like=SMALL).detector.model.state_dict()
    assert all(tensor.dtype == torch.float32 for tensor in state.values())


def test_what_has_no_place_is_told(tmp_path: Path) -> None:
    with_fusion = small_detector(encoder_overrides={**SMALL.encoder_overrides, "fusion": (32,)})
    left_out = write_co_detr(with_fusion, tmp_path / "public.pth")
    assert left_out
    assert all(name.startswith("encoder.embedding.fusion.") for name in left_out)
    with pytest.raises(InputError, match="saved without its auxiliary heads"):
        write_co_detr(small_detector(auxiliary=("atss",)), tmp_path / "public.pth")
    plain = {"dim": 48, "heads": 3, "hidden": 64, "depth": 1, "prefix": 0, "fusion": ()}
    with pytest.raises(InputError, match="only EVA-02 encoders"):
        write_co_detr(small_detector(encoder="vit-tiny", encoder_overrides=plain), tmp_path / "public.pth")
