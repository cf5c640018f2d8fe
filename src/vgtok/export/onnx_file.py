"""A detector to one ONNX file: count checked, network traced, description attached, file written whole."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vgtok.defaults import DEFAULT_CANVAS
from vgtok.detect.config import Head
from vgtok.detect.detector import Detector
from vgtok.errors import InputError, VGTokError
from vgtok.export.description import Description, graph_inputs, window_buckets
from vgtok.export.graph import DetectorGraph
from vgtok.files import write_bytes
from vgtok.tokenize.canvas import Canvas, fit_canvas
from vgtok.tokenize.geometry import CELL, Extent
from vgtok.tokenize.tokenizer import Tokenizer
from vgtok.tokenize.tokens import Tokens

OPSET = 20
"""The first in which grids are sampled as torch does."""

OUTPUTS = ("boxes", "scores", "labels")
FEATURES = "features"
"""The value between encoder and head keeps this name inside the graph."""

_LARGEST_FILE = 2**31 - 1
"""Bytes a protocol buffer can have."""


def export_onnx(
    detector: Detector,
    path: str | Path,
    *,
    size: tuple[int, int] | None = None,
    tokens: int | None = None,
    dynamic: bool = False,
    head: Head | None = None,
    name: str = "",
) -> Description:
    """Write a detector as a graph for frames of `size` (width, height), its canvas unless given.

    Every frame is read as `tokens` tokens, the count nearest to the detector's budget unless given; `dynamic` leaves
    the number open, and `tokens` is then what the runtime takes. `head` is the one that predicts, the
    detector's own unless given, `name` what the file calls the model.
    """
    path, head = Path(path), detector.model.check_head(head or detector.head)
    if size is None:
        size = DEFAULT_CANVAS if detector.canvas == "native" else detector.canvas
    if min(size) < 1:
        raise InputError(f"size: {size[0]} x {size[1]} px is no frame; give width and height in whole pixels")
    step = CELL * detector.model.encoder.config.grid_multiple
    if step > CELL and (size[0] % step or size[1] % step):
        raise InputError(
            f"size: this model pads frames to a multiple of {step} px, which a graph does not; export it for sides "
            f"that are one, not {size[0]} x {size[1]}"
        )
    canvas = fit_canvas(np.zeros((size[1], size[0], 3), dtype=np.uint8), "native")
    partition = _partition(canvas, tokens, detector.budget)
    model = detector.model
    if detector.device.type != "cpu":
        # What is traced must lie together with the constants; the caller's model stays where it is.
        model = deepcopy(model).cpu()
    config = model.encoder.config
    buckets = window_buckets(canvas.extent, config, None if dynamic else len(partition))
    description = Description(
        model=name,
        names=detector.names,
        width=size[0],
        height=size[1],
        tokens=len(partition),
        dynamic=dynamic,
        encoder=config,
        buckets=buckets,
        head=head,
        license=detector.license,
        atss_suppression=model.config.atss_suppression,
    )
    arrays = graph_inputs(canvas, partition, config, buckets)
    graph = DetectorGraph(model, canvas.extent, buckets, head).eval()
    proto = _traced(graph, arrays, canvas.extent if dynamic else None)
    # The map between encoder and head is no output, but keeps its name, by which the two can be cut apart.
    proto.graph.value_info.append(proto.graph.output.pop())
    for key, value in description.to_properties().items():
        proto.metadata_props.add(key=key, value=value)
    if proto.ByteSize() > _LARGEST_FILE:
        raise InputError(f"{path}: {proto.ByteSize() / 1e9:.1f} GB is more than one ONNX file can hold (2.1)")
    write_bytes(path, proto.SerializeToString())
    return description


def _partition(canvas: Canvas, tokens: int | None, budget: float) -> Tokens:
    """The partition of a blank canvas into so many tokens, or at the budget where there is no number.

    What a blank canvas can have, every frame of its size can.
    """
    extent = canvas.extent
    if tokens is None:
        return Tokenizer(budget=budget, canvas="native").partition(canvas)
    if not extent.roots <= tokens <= extent.dense:
        raise InputError(
            f"tokens: {tokens} is outside {extent.roots} to {extent.dense}, what a frame of {extent.width} x "
            f"{extent.height} px can have"
        )

    def nearest(count: int) -> Tokens:
        return Tokenizer(budget=count / extent.dense, canvas="native").partition(canvas)

    partition = nearest(tokens)
    if len(partition) != tokens:
        lower = next(n for n in range(tokens - 1, extent.roots - 1, -1) if len(nearest(n)) == n)
        upper = next(n for n in range(tokens + 1, extent.dense + 1) if len(nearest(n)) == n)
        raise InputError(
            f"tokens: no partition of {extent.width} x {extent.height} px has {tokens}; the nearest have {lower} and "
            f"{upper}"
        )
    return partition


def _traced(graph: DetectorGraph, arrays: dict[str, NDArray[Any]], dynamic: Extent | None) -> Any:
    """The graph as an ONNX ModelProto; with `dynamic`, for any number of tokens that extent can have."""
    shapes: dict[str, dict[int, Any]] | None = None
    if dynamic is not None:
        count = torch.export.Dim("tokens", min=dynamic.roots, max=dynamic.dense)
        shapes = {name: {0: count} if name in ("number", "slot") else {} for name in arrays}
    arguments = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                graph,
                kwargs=arguments,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(arguments),
                output_names=[*OUTPUTS, FEATURES],
                dynamic_shapes=shapes,
                verbose=False,
            )
    except ImportError as error:
        raise VGTokError(f"export: {error.name} is not installed; pip install 'vgtok[export]'") from None
    assert program is not None
    return program.model_proto


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter speaks of operators we do not use and constants it leaves alone."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
