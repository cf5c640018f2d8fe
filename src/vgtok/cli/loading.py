"""Open the model of a command: a detector in torch, or an exported graph, which needs no torch."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from vgtok.cli.options import HeadName
from vgtok.defaults import DEFAULT_TOKENIZER
from vgtok.errors import InputError
from vgtok.tokenize.tokenizer import preset

if TYPE_CHECKING:
    from vgtok.detect.detector import Detector
    from vgtok.export.runtime import OnnxDetector

    AnyDetector = Detector | OnnxDetector


def open_detector(
    model: str, device: str, dtype: str, sparse_head: bool | None, tokenizer: str | None
) -> "AnyDetector":
    """Return the model of --model on --device in --dtype, read by --tokenizer; an .onnx file runs in onnxruntime."""
    if tokenizer is not None:
        preset(tokenizer)
    opened = _exported if _is_graph(model) else _loaded
    detector = opened(model, device, dtype, sparse_head)
    if tokenizer is not None:
        detector.tokenizer_name = tokenizer
    return detector


def named_tokenizer(detector: "AnyDetector") -> dict[str, str]:
    """Return the setting that names the tokenizer; empty for that of earlier versions, so that their runs resume."""
    return {} if detector.tokenizer_name == DEFAULT_TOKENIZER else {"tokenizer": detector.tokenizer_name}


def _exported(model: str, device: str, dtype: str, sparse_head: bool | None) -> "OnnxDetector":
    from vgtok.export.runtime import OnnxDetector

    if dtype not in ("auto", "float32"):
        raise InputError(f"--dtype: {model} has the precision it was exported in; leave the option out")
    detector = OnnxDetector(model, device=device)
    if sparse_head not in (None, detector.sparse_head):
        option = "--sparse-head" if sparse_head else "--dense-head"
        raise InputError(f"{option}: {model} has the head it was exported with; leave the option out")
    return detector


def _loaded(model: str, device: str, dtype: str, sparse_head: bool | None) -> "Detector":
    from vgtok.detect.loading import load

    detector = load(model, device=device, dtype=dtype)
    if sparse_head is not None:
        detector.sparse_head = sparse_head
    return detector


def check_head(detector: "AnyDetector", head: HeadName | None, model: str) -> None:
    """Raise if the model lacks the head of --head, before anything is read."""
    if head is None or head.value == detector.head:
        return
    if _is_graph(model):
        raise InputError(
            f"--head: {model} predicts by its {detector.head} head; export another with --head {head.value}"
        )
    if head is HeadName.atss and "atss" not in cast("Detector", detector).heads:
        raise InputError(f"--head: '{model}' was saved without its ATSS head; use --head query")


def _is_graph(model: str) -> bool:
    return Path(model).suffix.lower() == ".onnx"
