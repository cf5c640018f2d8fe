"""Small encoders with weights far from their initialization, and frames to run them on."""

from typing import Any

import numpy as np
import torch

from vgtok.encode.config import configuration
from vgtok.encode.encoder import Encoder
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens


def small_encoder(family: str, **changes: Any) -> Encoder:
    """Four blocks of a family, two of them global where it has windows; every weight random, biases included."""
    settings: dict[str, Any] = {"dim": 48, "heads": 3, "hidden": 128, "depth": 4, "table": (8, 8)}
    if family.startswith("eva02"):
        settings |= {"window": 8, "global_blocks": (1, 3)}
    encoder = Encoder(configuration(family, **(settings | changes))).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if ".out." in name and "fusion" in name:
                continue
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(parameter + noise * (0.1 if parameter.ndim == 1 else 0.15))
    return encoder


def frame(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """A (3, H, W) uint8 frame with a busy corner, so that partitions hold all three sizes."""
    random = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), 90, dtype=np.uint8)
    pixels[: height // 2, : width // 3] = random.integers(0, 256, (height // 2, width // 3, 3))
    spots = random.integers(0, [height, width], (6, 2))
    for row, column in spots:
        pixels[row : row + 5, column : column + 5] = 230
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def partition(image: torch.Tensor, budget: float) -> Tokens:
    return Tokenizer(budget=budget, canvas="native")(image)
