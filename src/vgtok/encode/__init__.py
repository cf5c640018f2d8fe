"""Encode tokens and pixels to dense feature maps with packed vision transformers."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.encode.attention import BACKENDS, attend, best_backend
    from vgtok.encode.config import CONFIGS, EncoderConfig, configuration
    from vgtok.encode.dense import RUN_MODES, encode_control, encode_dense
    from vgtok.encode.encoder import Encoder, Features, build_encoder
    from vgtok.encode.flops import Flops, encoder_flops
    from vgtok.encode.loading import WEIGHT_FILTERS, load_weights
    from vgtok.encode.packing import Crop, Packing, pack

__all__ = [
    "BACKENDS",
    "CONFIGS",
    "RUN_MODES",
    "WEIGHT_FILTERS",
    "Crop",
    "Encoder",
    "EncoderConfig",
    "Features",
    "Flops",
    "Packing",
    "attend",
    "best_backend",
    "build_encoder",
    "configuration",
    "encode_control",
    "encode_dense",
    "encoder_flops",
    "load_weights",
    "pack",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "attention": ["BACKENDS", "attend", "best_backend"],
        "config": ["CONFIGS", "EncoderConfig", "configuration"],
        "dense": ["RUN_MODES", "encode_control", "encode_dense"],
        "encoder": ["Encoder", "Features", "build_encoder"],
        "flops": ["Flops", "encoder_flops"],
        "loading": ["WEIGHT_FILTERS", "load_weights"],
        "packing": ["Crop", "Packing", "pack"],
    },
)
