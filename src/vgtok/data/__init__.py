"""Data sets: VisDrone, AI-TOD-v2, COCO and YOLO readers, subsets, conversion, and rendered aerial scenes."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.data.convert import Conversion, convert_dataset, write_rendered
    from vgtok.data.dataset import (
        AnnotatedDataset,
        Annotations,
        Dataset,
        ParsedAnnotations,
        Problem,
        Role,
        Row,
        images_in,
        open_annotated,
        open_dataset,
    )
    from vgtok.data.subset import Subset, evenly_spaced, kept_apart, of_classes
    from vgtok.data.synthetic import Scene, SceneConfig, render_scene

__all__ = [
    "AnnotatedDataset",
    "Annotations",
    "Conversion",
    "Dataset",
    "ParsedAnnotations",
    "Problem",
    "Role",
    "Row",
    "Scene",
    "SceneConfig",
    "Subset",
    "convert_dataset",
    "evenly_spaced",
    "images_in",
    "kept_apart",
    "of_classes",
    "open_annotated",
    "open_dataset",
    "render_scene",
    "write_rendered",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "convert": ["Conversion", "convert_dataset", "write_rendered"],
        "dataset": [
            "AnnotatedDataset",
            "Annotations",
            "Dataset",
            "ParsedAnnotations",
            "Problem",
            "Role",
            "Row",
            "images_in",
            "open_annotated",
            "open_dataset",
        ],
        "subset": ["Subset", "evenly_spaced", "kept_apart", "of_classes"],
        "synthetic": ["Scene", "SceneConfig", "render_scene"],
    },
)
