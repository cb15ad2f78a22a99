"""Run histories from the command line: ``python -m tests.simulation --seeds 2000``."""

from __future__ import annotations

import argparse
import logging
import sys
from concurrent.futures import ProcessPoolExecutor
from time import monotonic

from tests.simulation.runner import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(description="Random histories with faults.")
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--verbose", action="store_true", help="print a history as it happens")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    logging.disable()
    if options.seed is not None:
        failure = run_seed(options.seed, verbose=options.verbose)
        print(failure or f"seed {options.seed}: no violation")
        return 1 if failure else 0
    return run_many(range(options.first, options.first + options.seeds), options.processes)


def run_many(seeds: range, processes: int) -> int:
    started = monotonic()
    failed = []
    with ProcessPoolExecutor(processes) as pool:
        for number, failure in enumerate(pool.map(run_seed, seeds, chunksize=4), 1):
            if failure is not None:
                failed.append(failure)
                print(f"\n{failure}\n", flush=True)
            if sys.stderr.isatty():
                print(f"\r{number} of {len(seeds)}, {len(failed)} failed", end="", file=sys.stderr)
    seconds = monotonic() - started
    print(f"{len(seeds)} histories in {seconds:.1f} s, {len(failed)} failed")
    if failed:
        print("failing seeds:", " ".join(str(failure.seed) for failure in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
