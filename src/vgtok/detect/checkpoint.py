"""Convert released Co-DETR checkpoints to detectors of this library and back; every tensor must match.

Names and shapes are checked in the public layout, against a model of this library written in that layout, before
anything is renamed. Errors so name tensors as the checkpoint does.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from vgtok.detect.config import DETECTORS, DetectorConfig
from vgtok.detect.detector import Detector
from vgtok.detect.model import CoDetr
from vgtok.detect.saving import model_from_state
from vgtok.encode.config import EncoderConfig
from vgtok.encode.loading import check_tensors, from_codetr, read_state
from vgtok.errors import InputError
from vgtok.files import replacing
from vgtok.names import COCO

LICENSE = (
    "Converted from a released Co-DETR checkpoint. The license of these weights is unresolved: "
    "their authors have not stated one for every part; ask them before you rely on it."
)

_RELEASED = replace(
    DETECTORS["co-detr-eva02-large"],
    encoder_overrides={"fusion": (), "grid_multiple": 2, "proportional": False},
    atss_suppression="soft",
)
"""The public release: no fusion of coarse tokens, images padded to a multiple of 32 px, attention as in the paper."""

_CANVAS = (2048, 1280)
"""The canvas the release is evaluated at."""

_LVIS_CLASSES = 1203

_IGNORED = re.compile(r"ema_.*|backbone\.rope_win\..*|backbone\.blocks\.\d+\.attn\.rope\..*")
"""Tensors to skip: copies of averaged weights, which the plain keys hold, and rotations, which depend on the input."""

_ENCODER = "query_head.transformer.encoder.layers.#."
_DECODER = "query_head.transformer.decoder.layers.#."
_NAMES = [
    (f"{_ENCODER}attentions.0.", f"{_ENCODER}attention."),
    (f"{_DECODER}attentions.0.attn.", f"{_DECODER}self_attention."),
    (f"{_DECODER}attentions.1.", f"{_DECODER}cross_attention."),
    *((f"{layer}ffns.0.layers.0.0.", f"{layer}ffn.0.") for layer in (_ENCODER, _DECODER)),
    *((f"{layer}ffns.0.layers.1.", f"{layer}ffn.2.") for layer in (_ENCODER, _DECODER)),
    # Positives of the RoI head come first, those of the ATSS head second.
    ("query_head.transformer.aux_pos_trans.0.", "query_head.transformer.aux_pos_trans.roi."),
    ("query_head.transformer.aux_pos_trans.1.", "query_head.transformer.aux_pos_trans.atss."),
    ("query_head.transformer.aux_pos_trans_norm.0.", "query_head.transformer.aux_pos_trans_norm.roi."),
    ("query_head.transformer.aux_pos_trans_norm.1.", "query_head.transformer.aux_pos_trans_norm.atss."),
    ("roi_head.0.bbox_head.", "roi_head."),
    ("bbox_head.0.scales.#.scale", "atss_head.scales.#"),
    ("bbox_head.0.", "atss_head."),
]
"""Prefixes of names, public and ours, # for a number; all other names are the same in both."""


@dataclass(frozen=True)
class Conversion:
    """A converted checkpoint; `reinitialized` names the tensors initialized for another number of classes."""

    detector: Detector
    tensors: int
    reinitialized: tuple[str, ...]


def load_co_detr(path: Path) -> Detector:
    """Load a released checkpoint file as a detector."""
    return convert_co_detr(read_state(path), str(path)).detector


def convert_co_detr(
    state: Mapping[str, Tensor],
    origin: str,
    names: Sequence[str] | None = None,
    like: DetectorConfig = _RELEASED,
    *,
    proportional: bool = False,
) -> Conversion:
    """Convert a state dict in the public layout to a detector; errors call it `origin`.

    `names` are the classes. If they are as many as the checkpoint's they rename those; if not, the tensors shaped by
    the number of classes are re-initialized. `like` is the configuration, up to its classes. With `proportional` a
    coarse token weighs in attention as many keys as the cells it covers, which the paper's does not; at budget 1 there
    is no difference. The default budget of the detector is 1, as no released checkpoint was trained on coarse tokens.
    """
    public = {name: tensor for name, tensor in state.items() if not _IGNORED.fullmatch(name)}
    config = _config_of(public, like)
    if proportional:
        config = replace(config, encoder_overrides={**config.encoder_overrides, "proportional": True})
    if config.classes == _LVIS_CLASSES:
        raise InputError(
            f"{origin}: a Co-DETR checkpoint for LVIS ({_LVIS_CLASSES} classes), which this library cannot run: its "
            "windows, its region head and its padding are not those of the COCO release; use a checkpoint for COCO or "
            "Objects365"
        )
    wanted = to_public(_shapes(config), config.encoder_config())
    check_tensors(public, wanted, f"{origin}: not a Co-DETR checkpoint of this kind")
    tensors = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in public.items()}
    ours = from_public(tensors, config.encoder_config())
    if names is None or len(names) == config.classes:
        anew: dict[str, Tensor] = {}
        config = config if names is None else replace(config, names=tuple(names))
    else:
        kept, config = _shapes(config), replace(config, names=tuple(names))
        anew = _fresh(config, [name for name, tensor in _shapes(config).items() if kept[name].shape != tensor.shape])
    model = model_from_state(config, ours | anew, origin)
    detector = Detector(model, canvas=_CANVAS, license=LICENSE, budget=1.0)
    return Conversion(detector, len(public), tuple(anew))


def write_co_detr(detector: Detector, path: Path) -> tuple[str, ...]:
    """Write a detector as a checkpoint in the public layout; return the names of the tensors left out."""
    config = detector.model.config
    if set(config.auxiliary) != {"roi", "atss"}:
        raise InputError("model: saved without its auxiliary heads, which the public layout has; use a full save")
    state = {name: tensor.detach().cpu() for name, tensor in detector.model.state_dict().items()}
    left_out = tuple(name for name in state if name.startswith(("encoder.embedding.fusion.", "encoder.spread.")))
    public = to_public({name: t for name, t in state.items() if name not in left_out}, config.encoder_config())
    with replacing(path) as temporary:
        if path.suffix == ".safetensors":
            from safetensors.torch import save_file

            permissions = temporary.stat().st_mode
            save_file({name: tensor.contiguous() for name, tensor in public.items()}, temporary)
            # safetensors writes a private file; restore the usual permissions.
            temporary.chmod(permissions)
        else:
            torch.save({"state_dict": {name: tensor.clone() for name, tensor in public.items()}}, temporary)
    return left_out


def from_public(state: Mapping[str, Tensor], encoder: EncoderConfig) -> dict[str, Tensor]:
    """Rename tensors from the public layout to ours."""
    backbone = {f"encoder.{name}": tensor for name, tensor in from_codetr(state, encoder).items()}
    heads = {_renamed(n, _NAMES): tensor for n, tensor in state.items() if not n.startswith("backbone.")}
    return backbone | heads


def to_public(state: Mapping[str, Tensor], encoder: EncoderConfig) -> dict[str, Tensor]:
    """Rename tensors from our layout to the public one; the position of the class token, which is unused, is zero."""
    if not (encoder.rope and encoder.mlp == "swiglu" and encoder.mlp_norm and not encoder.key_bias):
        raise InputError("model: only EVA-02 encoders from the base size on have a place in the public layout")
    swapped = [(ours, public) for public, ours in _NAMES]
    public: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.startswith("encoder."):
            public.update(_public_backbone(name.removeprefix("encoder."), tensor, encoder))
        else:
            public[_renamed(name, swapped)] = tensor
    return public


def _public_backbone(name: str, tensor: Tensor, encoder: EncoderConfig) -> dict[str, Tensor]:
    """Return one tensor of the encoder as its tensors in the public layout."""
    if name == "embedding.prefix":
        return {}
    if name == "embedding.table":
        # (rows, columns, D) to (1, 1 + rows * columns, D)
        cells = tensor.flatten(0, 1)
        return {"backbone.pos_embed": torch.cat([torch.zeros_like(cells[:1]), cells])[None]}
    if name == "embedding.projection.weight":
        square = torch.unflatten(tensor, 1, (3, encoder.patch, encoder.patch))
        return {"backbone.patch_embed.proj.weight": square}
    if name.endswith("attention.qkv.weight"):
        stem = name.removesuffix("attention.qkv.weight")
        return {
            f"backbone.{stem}attn.{letter}_proj.weight": part
            for letter, part in zip("qkv", tensor.chunk(3), strict=True)
        }
    for ours, public in (
        ("embedding.projection.", "patch_embed.proj."),
        (".attention.query_bias", ".attn.q_bias"),
        (".attention.value_bias", ".attn.v_bias"),
        (".attention.out.", ".attn.proj."),
        (".mlp.gate.", ".mlp.w1."),
        (".mlp.expand.", ".mlp.w2."),
        (".mlp.norm.", ".mlp.ffn_ln."),
        (".mlp.contract.", ".mlp.w3."),
    ):
        name = name.replace(ours, public)
    return {f"backbone.{name}": tensor}


def _renamed(name: str, names: Sequence[tuple[str, str]]) -> str:
    for old, new in names:
        found = re.match(re.escape(old).replace(r"\#", r"(\d+)"), name)
        if found:
            opening = new.replace("#", found.group(1)) if "#" in new else new
            return opening + name[found.end() :]
    return name


def _config_of(state: Mapping[str, Tensor], like: DetectorConfig) -> DetectorConfig:
    """Return the configuration with the number of classes most classifiers have; one of them may be damaged."""
    lengths = [t.numel() for name, t in state.items() if re.fullmatch(r"query_head\.cls_branches\.\d+\.bias", name)]
    classes = Counter(lengths).most_common(1)[0][0] if lengths else like.classes
    if classes in (0, like.classes):
        return like
    names = COCO if classes == len(COCO) else tuple(f"class {number}" for number in range(classes))
    return replace(like, names=names)


def _shapes(config: DetectorConfig) -> dict[str, Tensor]:
    """Return the tensors of a model without values."""
    with torch.device("meta"):
        return CoDetr(config).state_dict()


def _fresh(config: DetectorConfig, chosen: Sequence[str]) -> dict[str, Tensor]:
    """Return newly initialized values of some tensors of the heads."""
    # The heads do not depend on the encoder; a small one is initialized quickly.
    small = CoDetr(replace(config, encoder="vit-tiny", encoder_overrides={"depth": 1})).state_dict()
    return {name: small[name] for name in chosen}
