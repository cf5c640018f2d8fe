"""The cluster a run uses: connect to it or start one here, check that workers fit, say in one sentence what failed."""

import logging
import os
import re
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from vgtok import __version__
from vgtok.errors import InputError, VGTokError
from vgtok.parallel import default_workers
from vgtok.scale.places import first_line

LOCAL = "local"
"""Address that starts workers on this machine for the length of the run."""

AUTO = "auto"
"""Address of the cluster this machine is part of."""

CLIENT = "ray://"
"""Start of the address of a cluster this machine is not part of."""

_OBJECT_STORE = 256 * 2**20
"""Bytes of shared memory of a cluster of one run: results go to files, so that little passes through it."""

_PATIENCE = 5.0
"""Seconds to wait for an answer of an address; Ray itself tries for minutes."""

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Worker:
    """What one worker takes of its machine: `cpus` are also its threads, `memory` is in bytes.

    With `gpus` above 0 the model runs on a GPU; a share like 0.5 puts two workers on one.
    """

    cpus: int = 1
    gpus: float = 0.0
    memory: int = 10**9

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.gpus < 0 or self.memory < 1:
            raise InputError(f"worker: {self} is less than one core, no GPU and one byte")

    @classmethod
    def parse(cls, text: str, default: "Worker | None" = None) -> "Worker":
        """Read e.g. 'cpus=2,gpus=0.5,memory=4GB'; what is left out is that of `default`."""
        values: dict[str, Any] = vars(default or cls()).copy()
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = part.partition("=")
            number = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]B)?", value.strip(), re.IGNORECASE)
            if name not in values or number is None or (number[2] and name != "memory"):
                raise InputError(f"--worker: '{part}' is not one of cpus=NUMBER, gpus=NUMBER, memory=NUMBERGB")
            amount = float(number[1]) * _UNITS[(number[2] or "").upper()]
            values[name] = amount if name == "gpus" else int(amount)
        return cls(**values)


@dataclass(frozen=True)
class Engine:
    """Where a run runs: the address of a cluster, the number of workers [default: all that fit] and one's size.

    The address is 'local' for workers on this machine alone, 'auto' for the cluster this machine is part of, HOST:PORT
    or ray://HOST:PORT.
    """

    address: str = LOCAL
    workers: int | None = None
    worker: Worker = Worker()

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers: {self.workers} is not a number of workers, 1 or more")


def imported_ray() -> ModuleType:
    """Import Ray, quiet; raise VGTokError that says what to install if it is missing."""
    # Read when Ray starts: its own messages on retries would stand between those for people.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        # Ray warns of its own names as it is imported.
        with warnings.catch_warnings(action="ignore"):
            import ray
            import ray.data

            quiet_data(ray)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("ray", "pyarrow", "pandas", "fsspec"):
            raise
        raise VGTokError("--engine ray: Ray is not installed; pip install 'vgtok[scale]'") from None
    return ray


def quiet_data(ray: Any) -> None:
    """Silence the bars and reports of Ray Data in this process; a run has its own."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.issue_detectors_config.detectors = []
    for name in ("ray.data", "ray.data.spam"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def connected(engine: Engine) -> Iterator[Any]:
    """Connect to the cluster of an engine for the block, and yield Ray; one on this machine alone is started and ended.

    A process that is connected already stays so.
    """
    ray = imported_ray()
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"logging_level": logging.CRITICAL, "log_to_driver": False}
    if engine.address == LOCAL:
        cores = engine.workers * engine.worker.cpus if engine.workers else default_workers()
        settings |= {"num_cpus": cores, "object_store_memory": _OBJECT_STORE, "include_dashboard": False}
    elif engine.address != AUTO:
        _check_reachable(engine.address)
    try:
        with _no_standard_error():
            ray.init(engine.address, **settings)
    except Exception as error:
        raise _unconnected(engine.address, error) from None
    try:
        quiet_data(ray)
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def silenced() -> Iterator[None]:
    """Drop what is printed to standard output in the block: Ray tells there of workers that died."""
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing):  # noqa: PTH123
        yield


@contextmanager
def _no_standard_error() -> Iterator[None]:
    """Drop what native code prints in the block: Ray announces there that it was asked to be quiet."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _check_reachable(address: str) -> None:
    """Raise InputError unless something listens at HOST:PORT."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if not (colon and host and port.isdigit()):
        raise InputError(f"--address: '{address}' is not local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InputError(f"--address: nothing answers at {address} ({reason}); start the cluster or check it") from None


def _unconnected(address: str, error: Exception) -> VGTokError:
    text = str(error)
    if "ersion mismatch" in text:
        found = re.findall(r"(Ray|Python): ([\w.]+)", text)
        theirs, ours = (", ".join(f"{name} {number}" for name, number in part) for part in (found[:2], found[2:4]))
        return InputError(f"--address: {address} runs {theirs}, this process {ours}; install the same versions")
    if isinstance(error, ConnectionError) and address == AUTO:
        return InputError("--address: auto finds no cluster on this machine; start one with 'ray start --head'")
    return InputError(f"--address: {address} refuses a connection ({first_line(error)})")


def count_slots(ray: Any, worker: Worker) -> int:
    """Return how many workers fit on the machines of the cluster; raise InputError if not one does."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    wanted = {"CPU": worker.cpus, "GPU": worker.gpus, "memory": worker.memory}
    slots = sum(
        int(min(machine.get(name, 0) / amount for name, amount in wanted.items() if amount)) for machine in machines
    )
    if slots:
        return slots
    for name, amount in wanted.items():
        most = max((machine.get(name, 0) for machine in machines), default=0)
        if most < amount:
            what = f"{amount / 1e9:,.1f} GB of memory" if name == "memory" else f"{amount:g} {name}"
            has = f"{most / 1e9:,.1f} GB free for workers" if name == "memory" else f"{most:g}"
            raise InputError(f"--worker: asks for {what}, and the largest machine has {has}; ask for less")
    raise InputError(f"--worker: no machine has {wanted} at once; ask for less")


def explained(error: BaseException) -> VGTokError:
    """Return what ended a run as one sentence."""
    text = str(error)
    if isinstance(error, VGTokError):
        return error
    if "OutOfMemoryError" in text or "running low on memory" in text:
        return VGTokError(
            "a worker ran out of memory again and again; use fewer --workers or a larger --worker memory="
        )
    if "No module named 'vgtok" in text:
        return VGTokError(f"a machine of the cluster lacks vgtok; install vgtok {__version__} on all of them")
    if type(error).__name__ in ("ActorDiedError", "RayActorError", "WorkerCrashedError", "ActorUnavailableError"):
        return VGTokError(
            "a worker died again and again on the same frames; its log is in the Ray session folder of its machine"
        )
    last = next((line for line in reversed(text.splitlines()) if line.strip()), type(error).__name__)
    return VGTokError(f"the run on Ray ended: {last.strip()}")


def version_problem(version: str, python: str) -> str | None:
    """Return how this process differs from the driver's vgtok and Python, None if it does not."""
    ours = ".".join(map(str, sys.version_info[:2]))
    if (version, python) == (__version__, ours):
        return None
    machine = f"{socket.gethostname()} has vgtok {__version__} on Python {ours}"
    return f"{machine}, the driver {version} on {python}; install the same on all machines"
