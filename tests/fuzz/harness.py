"""Runs cases in worker processes that a watchdog looks after: nothing may raise, hang, grow or crash.

Case n of a kind is the same whenever it is made; worker w takes those whose number leaves w. Kinds take turns, so that
a run that is cut short by its time has seen all of them.
"""

import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vgtok import VGTokError

HANG = 10.0
"""Seconds of processor time a case may take; six times as long by the clock, since others may use the cores."""
MEMORY = 2 * 2**30
"""Bytes a case may add to what a process has had at most."""
_ROUNDS = 50
_GREW = 9
"""Exit code of a worker that grew too much: another one starts afresh behind the case."""


@dataclass(frozen=True)
class Plan:
    """What to run: cases by kind, from which seed, for how long once a worker is ready, saving failures to `out`."""

    cases: Mapping[str, int]
    seed: int
    workers: int
    seconds: float
    out: Path


@dataclass
class Report:
    """Cases that were taken, refused by the project's errors, or failed, by kind; `failures` are one line each."""

    taken: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Cases that were run."""
        return sum(sum(counts.values()) for counts in (self.taken, self.refused, self.failed))


def run(plan: Plan) -> Report:
    """Run a plan to its end or its time."""
    plan.out.mkdir(parents=True, exist_ok=True)
    started = time.time()
    context = multiprocessing.get_context("spawn")
    names = list(plan.cases)
    # Per worker: when its case began (0 between cases), its place, the processor's time then, and when its first
    # began. Per kind: taken, refused, failed.
    clocks = [context.Array("d", [0.0, -1.0, 0.0, 0.0]) for _ in range(plan.workers)]
    counts = [context.Array("q", 3 * len(names)) for _ in range(plan.workers)]
    processes = [context.Process(target=work, args=(plan, w, 0, clocks[w], counts[w])) for w in range(plan.workers)]
    for process in processes:
        process.start()
    while any(process.is_alive() or process.exitcode for process in processes):
        time.sleep(0.1)
        for worker, process in enumerate(processes):
            began, place, used, _ = clocks[worker]
            slow = time.time() - began > 6 * HANG or _processor_time(process.pid) - used > HANG
            hangs = process.is_alive() and began > 0 and slow
            if hangs:
                process.kill()
            process.join(0 if not hangs else None)
            if process.exitcode in (None, 0):
                continue
            if process.exitcode != _GREW:
                case = next(case for n, case in enumerate(_sequence(plan, worker)) if n == place)
                reason = f"took over {HANG:.0f} s" if hangs else f"ended the process ({process.exitcode})"
                counts[worker][3 * names.index(case[0]) + 2] += 1
                _save(plan, *case, reason)
            clocks[worker][0] = 0.0
            arguments = (plan, worker, int(place) + 1, clocks[worker], counts[worker])
            processes[worker] = context.Process(target=work, args=arguments)
            processes[worker].start()
    report = Report()
    for number, name in enumerate(names):
        for part, row in enumerate((report.taken, report.refused, report.failed)):
            row[name] = sum(count[3 * number + part] for count in counts)
    # The folder keeps the failures of earlier runs too.
    for path in sorted(path for path in plan.out.glob("*.txt") if path.stat().st_mtime >= started):
        report.failures.append(path.read_text(errors="replace").splitlines()[0])
    return report


def work(plan: Plan, worker: int, start: int, clock: "list[float]", counts: "list[int]") -> None:
    """One worker: its cases from place `start` on."""
    from tests.fuzz.kinds import kinds

    warnings.simplefilter("ignore")
    # Decoders narrate on standard error what they make of damaged files.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    shared_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    names = list(plan.cases)
    with tempfile.TemporaryDirectory(dir=shared_memory, prefix="vgtok-fuzz-") as name:
        known = kinds(Path(name))
        known["visdrone"].run(b"", Path(name))
        peak = _peak()
        _bound(4 * MEMORY)
        # A worker that took the place of another has what that one left; from the first case on the clock runs.
        clock[3] = clock[3] or time.time()
        for place, (kind, number) in enumerate(_sequence(plan, worker)):
            if place < start:
                continue
            if time.time() - clock[3] > plan.seconds:
                return
            data = known[kind].make(plan.seed, number)
            clock[:3] = [time.time(), float(place), time.process_time()]
            outcome = 0
            try:
                known[kind].run(data, Path(name))
            except VGTokError:
                outcome = 1
            except BaseException:
                outcome = 2
                _save(plan, kind, number, traceback.format_exc(), data)
            clock[0] = 0.0
            grown = _peak() - peak > MEMORY
            if grown and outcome != 2:
                outcome = 2
                _save(plan, kind, number, f"took {(_peak() - peak) / 2**30:.1f} GB", data)
            counts[3 * names.index(kind) + outcome] += 1
            if grown:
                os._exit(_GREW)


def _sequence(plan: Plan, worker: int) -> Iterator[tuple[str, int]]:
    for turn in range(_ROUNDS):
        for kind, count in plan.cases.items():
            for number in range(turn * count // _ROUNDS, (turn + 1) * count // _ROUNDS):
                if number % plan.workers == worker:
                    yield kind, number


def _save(plan: Plan, kind: str, number: int, reason: str, data: bytes | None = None) -> None:
    """The input of a failure, made again where its worker is gone, and what happened, as two files of one name."""
    from tests.fuzz.kinds import kinds

    if data is None:
        with tempfile.TemporaryDirectory() as name:
            data = kinds(Path(name))[kind].make(plan.seed, number)
    (plan.out / f"{kind}-{number}.input").write_bytes(data)
    last = reason.strip().splitlines()[-1][:200]
    text = f"{kind}:{number} (seed {plan.seed}, {len(data)} bytes): {last}\n\n{reason}\n"
    (plan.out / f"{kind}-{number}.txt").write_text(text, errors="backslashreplace")


def _processor_time(process: int | None) -> float:
    """Seconds a process has run on any core; 0 where the system does not say."""
    try:
        # The name in brackets may hold anything; what follows it are numbers.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak() -> int:
    # Kilobytes on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _bound(more: int) -> None:
    """Let a runaway case meet a MemoryError before the machine does."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, resource.RLIM_INFINITY))
