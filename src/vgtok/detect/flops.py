"""Count the operations and parameters of a detector."""

import torch
from torch import nn

from vgtok.detect.atss import ATSSHead
from vgtok.detect.config import DetectorConfig, Head
from vgtok.detect.model import CoDetr
from vgtok.detect.neck import Pyramid, UpsampledConv, level_shapes
from vgtok.detect.query_head import QueryHead


def detection_flops(config: DetectorConfig, rows: int, columns: int, head: Head = "query") -> dict[str, int]:
    """FLOPs from a map of (rows, columns) cells to boxes, by part; heads that do not predict do not run."""
    with torch.device("meta"):
        neck = Pyramid(config.encoder_config().dim, config.dim, config.strides)
        query_head = QueryHead(config)
        anchors = ATSSHead(config)
    shapes = level_shapes(rows, columns, config.strides)
    cells = sum(down * across for down, across in shapes)
    shared = {
        "neck": sum(_branch_flops(neck.get_submodule(name), rows, columns) for name, _ in neck.named_children()),
        "cells": 2 * cells * _weights(query_head.transformer.encoder),
    }
    if head == "atss":
        assert query_head.downsample is not None
        # Half of the coarsest level, rounded up, is read too.
        coarsest = -(-shapes[-1][0] // 2) * -(-shapes[-1][1] // 2)
        kernels = _weights(anchors, dimensions=4)
        halving = coarsest * _weights(query_head.downsample, dimensions=4)
        return {**shared, "anchors": 2 * ((cells + coarsest) * kernels + halving)}
    first_stage = [query_head.transformer.enc_output, query_head.cls_branches[-1], query_head.reg_branches[-1]]
    return {
        **shared,
        "proposals": 2 * cells * sum(_weights(part) for part in first_stage),
        "queries": _decoder_flops(query_head, cells, min(config.queries, cells)),
    }


def detector_parameters(config: DetectorConfig) -> dict[str, int]:
    """Parameters by part, the fusion apart, without allocating any."""
    with torch.device("meta"):
        return CoDetr(config).parts()


def _branch_flops(branch: nn.Module, rows: int, columns: int) -> int:
    """One branch of the pyramid, layer after layer."""
    total = 0
    for layer in branch.children():
        if isinstance(layer, UpsampledConv):
            # As the released model runs it; the four kernels in its place take 4/9 of that.
            rows, columns = 2 * rows, 2 * columns
        elif isinstance(layer, nn.MaxPool2d) or (isinstance(layer, nn.Conv2d) and layer.stride == (2, 2)):
            rows, columns = -(-rows // 2), -(-columns // 2)
        if isinstance(layer, nn.Conv2d):
            total += 2 * rows * columns * layer.weight.numel()
    return total


def _decoder_flops(head: QueryHead, cells: int, queries: int) -> int:
    """All decoder layers: values of every cell, everything else per query, the box branch before and after the norm."""
    decoder = head.transformer.decoder
    on_cells = sum(_weights(layer.get_submodule("cross_attention.value_proj")) for layer in decoder.layers)
    layers = len(decoder.layers)
    branches = sum(_weights(part) for part in head.cls_branches[:layers])
    branches += 2 * sum(_weights(part) for part in head.reg_branches[:layers])
    on_queries = _weights(decoder.layers) - on_cells + layers * _weights(decoder.ref_point_head) + branches
    attention = layers * 4 * queries**2 * head.config.dim
    return 2 * cells * on_cells + 2 * queries * on_queries + attention


def _weights(module: nn.Module, dimensions: int = 2) -> int:
    """Entries of all weight matrices inside, or kernels: one multiply-add each per vector or place they are put to."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.ndim == dimensions)
