"""Write a detector as one ONNX file: check the token count, trace the network, attach the description."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
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
"""The first opset whose GridSample matches torch."""

OUTPUTS = ("boxes", "scores", "labels")
FEATURES = "features"
"""Name inside the graph of the feature map between encoder and head."""

_LARGEST_FILE = 2**31 - 1
"""Largest size of a protocol buffer in bytes."""


def export_onnx(
    detector: Detector,
    path: str | Path,
    *,
    size: tuple[int, int] | None = None,
    tokens: int | None = None,
    dynamic: bool = False,
    head: Head | None = None,
    int8: bool = False,
    name: str = "",
) -> Description:
    """Write a detector as a graph for one canvas size; return the description stored in the file.

    The head is sparse or dense as `detector.sparse_head` says.

    | argument  | meaning                                                                          |
    |-----------|----------------------------------------------------------------------------------|
    | `size`    | canvas (width, height) [default: the detector's canvas]                          |
    | `tokens`  | number of tokens per image [default: the nearest to the detector's budget]       |
    | `dynamic` | accept any number of tokens at run time; `tokens` is then the runtime's default  |
    | `head`    | head that predicts [default: the detector's]                                     |
    | `int8`    | store the weights of matrix products in 8 bits, a quarter of their size          |
    | `name`    | name of the model in the file                                                    |
    """
    path, head = Path(path), detector.model.check_head(head or detector.head)
    if detector.precision != "float32":
        raise InputError(f"export: this model was converted to {detector.precision}; load it with dtype='float32'")
    if size is None:
        size = DEFAULT_CANVAS if detector.canvas == "native" else detector.canvas
    if min(size) < 1:
        raise InputError(f"size: {size[0]} x {size[1]} px is no image; give width and height in whole pixels")
    step = CELL * detector.model.encoder.config.grid_multiple
    if step > CELL and (size[0] % step or size[1] % step):
        raise InputError(
            f"size: this model pads images to a multiple of {step} px, which a graph does not; export it for sides "
            f"that are one, not {size[0]} x {size[1]}"
        )
    canvas = fit_canvas(np.zeros((size[1], size[0], 3), dtype=np.uint8), "native")
    partition = _partition(canvas, tokens, detector.budget)
    model = detector.model
    if detector.device.type != "cpu":
        # The trace needs all tensors on one device; the caller's model stays where it is.
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
        precision="int8" if int8 else "float32",
        tokenizer=detector.tokenizer_name,
        sparse_head=detector.sparse_head,
    )
    arrays = graph_inputs(canvas, partition, config, buckets)
    graph = DetectorGraph(model, canvas.extent, buckets, head, detector.sparse_head).eval()
    proto = _traced(graph, arrays, canvas.extent if dynamic else None)
    # The feature map is no output but keeps its name, by which encoder and head can be separated.
    features = proto.graph.output.pop()
    # The optimizer leaves shapes of tensors it has since transposed, on which shape inference stumbles.
    del proto.graph.value_info[:]
    proto.graph.value_info.append(features)
    if int8:
        proto = _quantized(proto)
    for key, value in description.to_properties().items():
        proto.metadata_props.add(key=key, value=value)
    if proto.ByteSize() > _LARGEST_FILE:
        raise InputError(f"{path}: {proto.ByteSize() / 1e9:.1f} GB is more than one ONNX file can hold (2.1)")
    write_bytes(path, proto.SerializeToString())
    return description


def _partition(canvas: Canvas, tokens: int | None, budget: float) -> Tokens:
    """Return a partition of a blank canvas into `tokens` tokens, or by the budget if no number is given.

    A number of tokens that a blank canvas can have is one every image of its size can have.
    """
    extent = canvas.extent
    if tokens is None:
        return Tokenizer(budget=budget, canvas="native").partition(canvas)
    if not extent.roots <= tokens <= extent.dense:
        raise InputError(
            f"tokens: {tokens} is outside {extent.roots} to {extent.dense}, what an image of {extent.width} x "
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
    """Trace the graph to an ONNX ModelProto; with `dynamic`, for any number of tokens that extent can have."""
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


def _quantized(proto: Any) -> Any:
    """Return the model with 8-bit weights in its matrix products; activations are quantized as they come."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "int8.onnx"
        # One scale per column of a weight: a single outlier would otherwise cost the others their digits.
        quantize_dynamic(
            proto, path, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QInt8
        )
        return onnx.load(path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's messages on operators and constants that do not concern the graph."""
    loggers = [logging.getLogger(name) for name in ("", "torch.onnx", "onnxscript")]
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
