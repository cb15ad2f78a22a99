"""``python -m tests.scaleout``: what each fault costs, as a table."""

from __future__ import annotations

import argparse
import asyncio

from tests.mongo_server import stop_mongo
from tests.redis_server import stop_redis
from tests.scaleout.faults import FAULTS
from tests.scaleout.run import Cost
from tests.scaleout.topology import topology

_HEAD = "| fault | published | delivered twice | refused | longest publish | longest wait |"


async def main(messages: int, rounds: int, only: str) -> None:
    print(_HEAD, "|" + "---|" * 6, sep="\n")
    for archived in (False, True):
        faults = [f for f in FAULTS if f.archived == archived and only in f.name]
        if not faults:
            continue
        async with topology(archived=archived) as found:
            for fault in faults:
                costs = [await fault.cost(found, messages) for _ in range(rounds)]
                print(_row(fault.name, costs), flush=True)


def _row(name: str, costs: list[Cost]) -> str:
    """Sums, and the longest of all rounds."""
    published = sum(cost.published for cost in costs)
    given = sum(cost.given for cost in costs)
    twice = sum(cost.twice for cost in costs)
    refusals = sum(cost.refusals for cost in costs)
    publish = max(cost.longest_publish_seconds for cost in costs)
    wait = max(cost.longest_wait_seconds for cost in costs)
    return (
        f"| {name} | {published:,} | {twice:,} of {given:,} | {refusals:,} "
        f"| {publish:.1f} s | {wait:.1f} s |"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.scaleout", description=__doc__)
    parser.add_argument("--messages", type=int, default=2000, help="before and after each fault")
    parser.add_argument("--rounds", type=int, default=3, help="how often each happens")
    parser.add_argument("--only", default="", help="a part of the name of some faults")
    options = parser.parse_args()
    try:
        asyncio.run(main(options.messages, options.rounds, options.only))
    finally:
        stop_redis()
        stop_mongo()
