"""In how many bits to compute: what a recipe asks for, or what the device is made for."""

from typing import Literal

import torch


def best_precision() -> Literal["fp32", "bf16"]:
    """The faster of the two where matrices are multiplied."""
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"
