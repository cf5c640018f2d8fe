"""`python -m tests.fuzz`, which is `make fuzz`: fuzz every way into the library and print what came of it."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.harness import Plan, run
from tests.fuzz.kinds import IMAGE, kinds


def main() -> None:
    """Read the options, run, print a line per kind and per failure; exit 1 where there is one."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--images", type=int, default=100_000, help="image files to try")
    parser.add_argument("--others", type=int, default=50_000, help="inputs of all other kinds to try")
    parser.add_argument("--minutes", type=float, default=30.0, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0, help="which inputs; the same seed gives the same ones")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--kind", action="append", help="this kind alone; repeatable")
    parser.add_argument("--case", help="run one case in this process, KIND:NUMBER as a failure names it")
    parser.add_argument("--out", type=Path, default=Path("vgtok-fuzz"), help="where failing inputs are saved")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        known = kinds(Path(name))
        if options.case:
            kind, _, number = options.case.partition(":")
            known[kind].run(known[kind].make(options.seed, int(number)), Path(name))
            return
    shares = {kind.name: kind.share * options.others // 50_000 for kind in known.values()} | {IMAGE: options.images}
    cases = {kind: count for kind, count in shares.items() if not options.kind or kind in options.kind}
    began = time.monotonic()
    report = run(Plan(cases, options.seed, options.workers, 60 * options.minutes, options.out))
    print(f"{'kind':20}{'cases':>10}{'taken':>10}{'refused':>10}{'failed':>10}")
    for kind in cases:
        taken, refused, failed = (row[kind] for row in (report.taken, report.refused, report.failed))
        print(f"{kind:20}{taken + refused + failed:10,}{taken:10,}{refused:10,}{failed:10,}")
    failed = sum(report.failed.values())
    print(f"{report.total:,} of {sum(cases.values()):,} cases in {time.monotonic() - began:.0f} s, {failed:,} failures")
    for line in report.failures:
        print(line)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
