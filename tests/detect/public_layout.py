"""Names and shapes of the public COCO release: `public_layout.txt` lists them, [24] standing for numbers 0 to 23."""

from pathlib import Path

import torch
from torch import Tensor

from vgtok.detect import checkpoint
from vgtok.detect.checkpoint import to_public
from vgtok.detect.config import DetectorConfig


def public_layout() -> dict[str, tuple[int, ...]]:
    layout = {}
    for line in (Path(__file__).parent / "public_layout.txt").read_text().splitlines():
        name, sides = line.split()
        shape = () if sides == "-" else tuple(map(int, sides.split("x")))
        opening, bracket, rest = name.partition("[")
        if not bracket:
            layout[name] = shape
            continue
        count, _, ending = rest.partition("]")
        layout |= {f"{opening}{number}{ending}": shape for number in range(int(count))}
    return layout


def random_public_state(config: DetectorConfig, seed: int) -> dict[str, Tensor]:
    """Random tensors under the public names, at the sizes of a configuration."""
    generator = torch.Generator().manual_seed(seed)
    layout = to_public(checkpoint._shapes(config), config.encoder_config())
    return {
        name: torch.randn(t.shape, generator=generator) * (0.5 if t.ndim < 2 else (t[0].numel()) ** -0.5)
        for name, t in layout.items()
    }
