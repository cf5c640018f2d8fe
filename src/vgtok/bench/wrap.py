"""Time wrapped models of transformers against the same models unwrapped: an encoder and a whole detector.

Random weights of released sizes run on one rendered frame; a budget changes their cost, not their weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from vgtok.bench.timing import Cost, frame_pixels, interleaved_medians
from vgtok.errors import VGTokError
from vgtok.hosts.wrapping import unwrap, wrap
from vgtok.tokenize.canvas import fit_canvas


@dataclass(frozen=True)
class WrapRow:
    """One model dense and at a budget: milliseconds, GFLOPs, and the speed-up over the ratio of GFLOPs."""

    model: str
    side: int
    budget: float
    tokens: int
    dense_tokens: int
    dense_ms: float
    ms: float
    tokenizer_ms: float
    dense_gflops: float
    gflops: float

    @property
    def speedup(self) -> float:
        """How many times faster the wrapped model is."""
        return self.dense_ms / self.ms

    @property
    def flop_ratio(self) -> float:
        """How many times fewer operations it needs."""
        return self.dense_gflops / self.gflops

    @property
    def realized(self) -> float:
        """The speed-up over the ratio of operations."""
        return self.speedup / self.flop_ratio

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, for JSON."""
        return {**vars(self), "speedup": self.speedup, "flop_ratio": self.flop_ratio, "realized": self.realized}


@dataclass(frozen=True)
class WrapCost(Cost):
    """The rows of all models; `compiled` names the compiler backend both sides ran with."""

    repeats: int
    threads: int
    compiled: str | None
    rows: Sequence[WrapRow]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in JSON."""
        return {**vars(self), "rows": [row.to_dict() for row in self.rows]}


def _dinov2() -> Any:
    from transformers import Dinov2Config, Dinov2Model

    return Dinov2Model(Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14))


def _vit() -> Any:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536, image_size=1024)
    return ViTModel(config, add_pooling_layer=False)


def _rf_detr() -> Any:
    from transformers import RfDetrConfig, RfDetrForObjectDetection

    return RfDetrForObjectDetection(RfDetrConfig())


MODELS: dict[str, tuple[Callable[[], Any], int]] = {
    "dinov2-small": (_dinov2, 1036),
    "rf-detr": (_rf_detr, 1120),
    "vit-small": (_vit, 1024),
}
"""The models and the side of their square images, 1024 px or more."""


def measure_wrap(names: Sequence[str], budget: float, repeats: int, backend: str | None = None) -> WrapCost:
    """Time each model unwrapped and at a budget in turn, both compiled if a backend is named."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise VGTokError("transformers is not installed; pip install 'vgtok[hosts]'") from None
    rows = [_measure(name, budget, repeats, backend) for name in names]
    return WrapCost(repeats, torch.get_num_threads(), backend, rows)


def _measure(name: str, budget: float, repeats: int, backend: str | None) -> WrapRow:
    build, side = MODELS[name]
    torch.manual_seed(0)
    plain = build().eval().requires_grad_(False)
    torch.manual_seed(0)
    wrapped: Any = wrap(build().eval().requires_grad_(False), budget)
    images = _images(side, wrapped.vgtok.mean, wrapped.vgtok.std)
    dense_gflops, gflops = (_gflops(model, images) for model in (plain, wrapped))
    tokens = wrapped.vgtok.partitions(images)[0]
    calls = [torch.compile(model, backend=backend) if backend else model for model in (plain, wrapped)]
    runs = {"dense": lambda: calls[0](pixel_values=images), "wrapped": lambda: calls[1](pixel_values=images)}
    with torch.inference_mode():
        times = interleaved_medians({**runs, "tokenizer": lambda: wrapped.vgtok.partitions(images)}, repeats)
    unwrap(wrapped)
    return WrapRow(
        model=name,
        side=side,
        budget=budget,
        tokens=len(tokens),
        dense_tokens=tokens.dense,
        dense_ms=times["dense"],
        ms=times["wrapped"],
        tokenizer_ms=times["tokenizer"],
        dense_gflops=dense_gflops,
        gflops=gflops,
    )


def _images(side: int, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return the middle of a rendered frame as a batch of one normalized square image."""
    pixels = frame_pixels(None)
    left = (pixels.shape[1] - pixels.shape[0]) // 2
    square = fit_canvas(pixels[:, left : left + pixels.shape[0]], (side, side)).image
    image = torch.from_numpy(square.copy()).permute(2, 0, 1) / 255
    batch: Tensor = ((image - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1))[None]
    return batch


@torch.inference_mode()
def _gflops(model: Any, images: Tensor) -> float:
    """Count the products of one pass, attention included."""
    with FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION) as counter:
        model(pixel_values=images)
    return float(counter.get_total_flops()) / 1e9


def _attention_flops(query: Any, key: Any, value: Any, *arguments: Any, **options: Any) -> int:
    """Count q k and the mixing of v from (B, heads, N, head_dim) shapes."""
    batch, heads, queries, width = query
    return 2 * int(batch * heads * queries * key[2] * (width + value[3]))


_CPU_ATTENTION = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}
"""The kernel of attention on processors, which torch's own counter leaves out."""
