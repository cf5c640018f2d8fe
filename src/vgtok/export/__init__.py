"""A detector as an ONNX file, and a runtime for it without torch."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.export.description import Description
    from vgtok.export.graph import DetectorGraph
    from vgtok.export.onnx_file import export_onnx
    from vgtok.export.runtime import OnnxDetector

__all__ = [
    "Description",
    "DetectorGraph",
    "OnnxDetector",
    "export_onnx",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "description": ["Description"],
        "graph": ["DetectorGraph"],
        "onnx_file": ["export_onnx"],
        "runtime": ["OnnxDetector"],
    },
)
