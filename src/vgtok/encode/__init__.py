"""Encode tokens and pixels to dense feature maps with packed vision transformers."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.encode.attention import BACKENDS, attend, best_backend
    from vgtok.encode.config import CONFIGS, EncoderConfig, configuration
    from vgtok.encode.encoder import Encoder, Features, build_encoder
    from vgtok.encode.loading import WEIGHT_FILTERS, load_weights
    from vgtok.encode.modes import RUN_MODES, Flops, encode_control, encode_dense, encoder_flops
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
        "encoder": ["Encoder", "Features", "build_encoder"],
        "loading": ["WEIGHT_FILTERS", "load_weights"],
        "modes": ["Flops", "RUN_MODES", "encode_control", "encode_dense", "encoder_flops"],
        "packing": ["Crop", "Packing", "pack"],
    },
)
