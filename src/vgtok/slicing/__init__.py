"""Other people's detectors at our budget: a slicer for any detector, and the merge of boxes of overlapping tiles."""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.slicing.merge import Merged, cut_by_tile, merge_boxes

__all__ = ["Merged", "cut_by_tile", "merge_boxes"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "merge": ["Merged", "cut_by_tile", "merge_boxes"],
    },
)
