"""Configurations by name and the one builder: `build_encoder("eva02-large")`, any field overridden by keyword."""

from dataclasses import replace
from typing import Any

from vgtok.encode.config import EncoderConfig
from vgtok.encode.encoder import Encoder
from vgtok.errors import InputError


def _eva02(dim: int, depth: int, heads: int, global_blocks: tuple[int, ...], *, mlp_norm: bool) -> EncoderConfig:
    return EncoderConfig(
        dim=dim,
        depth=depth,
        heads=heads,
        hidden=dim * 8 // 3,
        mlp="swiglu",
        mlp_norm=mlp_norm,
        key_bias=False,
        rope=True,
        prefix=0,
        table=(32, 32),
        window=24,
        global_blocks=global_blocks,
        out_norm_eps=1e-5,
        # With windows it keeps features nearer to dense ones: vgtok study fidelity.
        proportional=True,
    )


def _vit(dim: int, depth: int, heads: int) -> EncoderConfig:
    return EncoderConfig(dim=dim, depth=depth, heads=heads, hidden=4 * dim)


CONFIGS: dict[str, EncoderConfig] = {
    # EVA-02 normalises inside the MLP from the base size on; its two smaller sizes do not.
    "eva02-tiny": _eva02(192, 12, 3, (2, 5, 8, 11), mlp_norm=False),
    "eva02-small": _eva02(384, 12, 6, (2, 5, 8, 11), mlp_norm=False),
    "eva02-base": _eva02(768, 12, 12, (2, 5, 8, 11), mlp_norm=True),
    "eva02-large": replace(_eva02(1024, 24, 16, (3, 7, 11, 15, 19, 23), mlp_norm=True), drop_path=0.4),
    "vit-tiny": _vit(192, 12, 3),
    "vit-small": _vit(384, 12, 6),
    "vit-base": _vit(768, 12, 12),
    "vit-large": _vit(1024, 24, 16),
}


def configuration(name: str, **changes: Any) -> EncoderConfig:
    """The configuration called `name`, with fields changed by keyword."""
    if name not in CONFIGS:
        raise InputError(f"config: '{name}' is not one of {', '.join(CONFIGS)}")
    return replace(CONFIGS[name], **changes)


def build_encoder(name: str, **changes: Any) -> Encoder:
    """An encoder with freshly initialised weights."""
    return Encoder(configuration(name, **changes))
