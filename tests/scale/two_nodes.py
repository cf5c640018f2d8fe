"""A cluster of two machines of one core each, in a process of its own: `python -m tests.scale.two_nodes`.

It prints its address, then does what each line of standard input asks as JSON, and answers with one line: run a command
line, or do so and kill the second machine once some shards are there. It ends, with all of Ray, when the input does.
"""

import io
import json
import logging
import os
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from vgtok.cli import main
from vgtok.scale.cluster import imported_ray

MACHINE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
PATIENCE = 300
"""Seconds that machines may take to start where cores are shared."""


def serve() -> None:
    """Start the cluster and answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # Ray reports dead machines on standard output, between our lines.
    os.dup2(2, 1)
    os.environ["RAY_raylet_start_wait_time_s"] = str(PATIENCE)  # noqa: SIM112  (as Ray spells it)
    ray = imported_ray()
    cluster = Cluster(initialize_head=True, head_node_args={**MACHINE, "include_dashboard": False})
    second = cluster.add_node(wait=False, **MACHINE)
    try:
        cluster.wait_for_nodes(timeout=PATIENCE)
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.CRITICAL)
        print(cluster.address, file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            if "kill_after" in asked:
                watch = Path(asked["shards"])
                threading.Thread(target=_kill, args=(cluster, second, watch, asked["kill_after"])).start()
            print(json.dumps(_run(asked["command"])), file=answers, flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()


def _run(words: list[str]) -> dict[str, Any]:
    sys.argv = ["vgtok", *words]
    out = io.StringIO()
    code = 0
    try:
        with redirect_stdout(out):
            main.run()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    return {"code": code, "out": out.getvalue()}


def _kill(cluster: Cluster, machine: Any, shards: Path, count: int) -> None:
    while len(list(shards.glob("*.parquet"))) < count:
        time.sleep(0.02)
    cluster.remove_node(machine, allow_graceful=False)
    cluster.add_node(wait=False, **MACHINE)


if __name__ == "__main__":
    serve()
