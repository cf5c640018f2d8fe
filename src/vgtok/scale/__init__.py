"""The verbs on more than one machine, on Ray Data: frames in by files, folders, parquet files and addresses.

`tokenize_dataset`, `detect_dataset` and `sweep_dataset` return data sets of Ray Data; `run_shards` writes parquet files
and resumes. The command line does the latter with `--engine ray`.
"""

from typing import TYPE_CHECKING

from vgtok.lazy import lazy_names

if TYPE_CHECKING:
    from vgtok.scale.cluster import Engine, Worker, connected
    from vgtok.scale.datasets import detect_dataset, sweep_dataset, tokenize_dataset
    from vgtok.scale.mapping import map_on_cluster
    from vgtok.scale.shards import ShardRun, run_shards
    from vgtok.scale.sources import find_frames
    from vgtok.scale.tasks import DetectTask, SweepTask, TokenizeTask, tokens_of

__all__ = [
    "DetectTask",
    "Engine",
    "ShardRun",
    "SweepTask",
    "TokenizeTask",
    "Worker",
    "connected",
    "detect_dataset",
    "find_frames",
    "map_on_cluster",
    "run_shards",
    "sweep_dataset",
    "tokenize_dataset",
    "tokens_of",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "cluster": ["Engine", "Worker", "connected"],
        "datasets": ["detect_dataset", "sweep_dataset", "tokenize_dataset"],
        "mapping": ["map_on_cluster"],
        "shards": ["ShardRun", "run_shards"],
        "sources": ["find_frames"],
        "tasks": ["DetectTask", "SweepTask", "TokenizeTask", "tokens_of"],
    },
)
