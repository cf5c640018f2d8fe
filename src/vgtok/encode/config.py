"""The configuration of an encoder, and all sizes of both families by name; imports no torch."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from vgtok.errors import InputError, check_fields
from vgtok.tokenize.geometry import CELL, NODE, ROOT, Extent

Position = Literal["center", "corner", "mean"]
"""Where a coarse token reads its position: at its center, at its first cell, or (table only) as the mean over cells."""

Resampling = Literal["area", "bilinear", "bicubic"]
"""How a coarse region is resized to one patch: block means, two-tap bilinear, or antialiased bicubic."""

Padding = Literal["exact", "scaled", "dropped"]
"""How many of the zero cells that pad an edge window act as keys.

In released dense models all of them do. 'exact' keeps that number, 'scaled' multiplies it by the share of tokens the
window keeps, 'dropped' ignores padding.
"""

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class EncoderConfig:
    """One vision transformer.

    `window` is the side of attention windows in cells, `global_blocks` the blocks that attend over the whole image;
    without a window all blocks do. `table` is the (rows, columns) of the position table, `prefix` the number of tokens
    that stand for no region (class, registers), `hidden` the width inside the MLP. Without `out_norm_eps` there is no
    norm after the last block. `fusion` lists the coarse sizes in pixels that fuse the base patches they cover: both for
    a quadtree, 32 alone for Single-pass. With `proportional` the logit of a coarse key is raised by the logarithm of
    the cells it covers. Rows and columns are rounded up to a multiple of `grid_multiple` cells; cells beyond the image
    hold zeros and run like all others. With `spread`, the rank of a map, a coarse token gives each cell it covers a
    vector of its own.
    """

    dim: int
    depth: int
    heads: int
    hidden: int
    mlp: Literal["gelu", "swiglu"] = "gelu"
    mlp_norm: bool = False
    key_bias: bool = True
    rope: bool = False
    layer_scale: bool = False
    prefix: int = 1
    patch: int = 16
    table: tuple[int, int] = (14, 14)
    window: int | None = None
    global_blocks: tuple[int, ...] = ()
    drop_path: float = 0.0
    norm_eps: float = 1e-6
    out_norm_eps: float | None = 1e-6
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    fusion: tuple[int, ...] = (NODE, ROOT)
    position: Position = "center"
    resampling: Resampling = "bicubic"
    proportional: bool = False
    padding: Padding = "exact"
    grid_multiple: int = 1
    spread: int = 0

    def __post_init__(self) -> None:
        # Files written before 0.2 spell it the British way.
        if self.position == "centre":  # type: ignore[comparison-overlap]
            object.__setattr__(self, "position", "center")
        check_fields(self, positive=("dim", "depth", "heads", "hidden", "patch", "grid_multiple"))
        if self.dim % self.heads or self.dim // self.heads % 4:
            raise InputError(f"dim: {self.dim} does not give {self.heads} heads a width that is a multiple of 4")
        if self.window is not None and (self.window < 4 or self.window % 4):
            raise InputError(f"window: {self.window} cells is not a multiple of 4, so a 64-px token would straddle two")
        if self.window is not None and self.prefix:
            raise InputError("prefix: a class token belongs to no window; use prefix=0 with windows")
        if self.window is not None and self.rope and self.key_bias:
            raise InputError("key_bias: with windows and RoPE padded keys are one virtual key only if k has no bias")
        if self.window is None and self.global_blocks:
            raise InputError("global_blocks: without a window every block is global; name none")
        if any(not 0 <= block < self.depth for block in self.global_blocks):
            raise InputError(f"global_blocks: {self.global_blocks} are not all below the depth of {self.depth}")
        if self.fusion not in ((), (NODE,), (NODE, ROOT)):
            raise InputError(f"fusion: {self.fusion} is not (), (32,) or (32, 64): a stage reduces the one before it")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.dim // self.heads

    def grid_of(self, extent: Extent) -> tuple[int, int]:
        """Return the rows and columns of cells a canvas of this extent is run as."""
        step = self.grid_multiple
        return -(-extent.rows(CELL) // step) * step, -(-extent.columns(CELL) // step) * step

    def is_global(self, block: int) -> bool:
        """Return whether a block attends over the whole image."""
        return self.window is None or block in self.global_blocks

    def windowed(self, window: int = 24) -> "EncoderConfig":
        """Return the configuration for detection: windows, every third block global, no class token.

        It sets `proportional`, which `vgtok study fidelity` finds better inside windows.
        """
        every_third = tuple(range(2, self.depth, 3))
        return replace(self, window=window, global_blocks=every_third, prefix=0, proportional=True)


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
        # With windows this keeps features closer to dense ones: vgtok study fidelity.
        proportional=True,
    )


def _vit(dim: int, depth: int, heads: int) -> EncoderConfig:
    return EncoderConfig(dim=dim, depth=depth, heads=heads, hidden=4 * dim)


CONFIGS: dict[str, EncoderConfig] = {
    # EVA-02 normalizes inside the MLP from the base size on; its two smaller sizes do not.
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
    """Return the configuration called `name`, with fields changed by keyword."""
    if name not in CONFIGS:
        raise InputError(f"config: '{name}' is not one of {', '.join(CONFIGS)}")
    return replace(CONFIGS[name], **changes)
