"""Data sets: VisDrone, AI-TOD-v2, COCO and YOLO readers, parts of them, conversion, and rendered aerial scenes."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.data.dataset import AnnotatedDataset, Annotations, Dataset, images_in, open_annotated, open_dataset
    from vgtok.data.rendered import write_rendered
    from vgtok.data.rows import Problem, Reading, Role, Row
    from vgtok.data.subset import Subset, kept_apart, of_classes, spread
    from vgtok.data.synthetic import Scene, SceneConfig, render_scene

__all__ = [
    "AnnotatedDataset",
    "Annotations",
    "Dataset",
    "Problem",
    "Reading",
    "Role",
    "Row",
    "Scene",
    "SceneConfig",
    "Subset",
    "images_in",
    "kept_apart",
    "of_classes",
    "open_annotated",
    "open_dataset",
    "render_scene",
    "spread",
    "write_rendered",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "dataset": ["AnnotatedDataset", "Annotations", "Dataset", "images_in", "open_annotated", "open_dataset"],
        "rendered": ["write_rendered"],
        "rows": ["Problem", "Reading", "Role", "Row"],
        "subset": ["Subset", "kept_apart", "of_classes", "spread"],
        "synthetic": ["Scene", "SceneConfig", "render_scene"],
    },
)
