"""What the neck and the query head cost beyond the encoder: a constant of the frame's size, whatever the tokens.

Counted by running them without data on the meta device: every product and convolution, two FLOPs per multiply-add;
bilinear sampling, norms and activations are left out, as in `vgtok.encode.counting`.
"""

from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from vgtok.detect.config import DetectorConfig
from vgtok.detect.model import CoDetr
from vgtok.detect.pyramid import Pyramid
from vgtok.detect.query_head import QueryHead


def detection_flops(config: DetectorConfig, rows: int, columns: int) -> dict[str, int]:
    """FLOPs from a map of (rows, columns) cells to the last layer's boxes, by part; auxiliary heads do not run."""
    width = config.encoder_config().dim
    with torch.device("meta"):
        neck, head = Pyramid(width, config.dim, config.strides), QueryHead(config)
        levels = neck(torch.empty(1, width, rows, columns))
        encoded = head.encode(levels)
        proposals = head.propose(encoded)
        return {
            "neck": _counted(lambda: neck(torch.empty(1, width, rows, columns))),
            "cells": _counted(lambda: head.encode(levels)),
            "proposals": _counted(lambda: head.propose(encoded)),
            "queries": _counted(lambda: head.decode(encoded, proposals, None)),
        }


def _counted(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def detector_parameters(config: DetectorConfig) -> dict[str, int]:
    """Parameters by part, the fusion apart, without allocating any."""
    with torch.device("meta"):
        return CoDetr(config).parts()
