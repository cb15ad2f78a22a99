"""A process that takes a batch and never comes to acknowledge it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from penstock import ingest
from penstock.ingest import IngestMessage, IngestSettings


async def hang(batch: Sequence[IngestMessage]) -> None:
    print(len(batch), flush=True)
    await asyncio.sleep(3600)


async def main(url: str, lease_seconds: float) -> None:
    settings = IngestSettings(lease_seconds=lease_seconds)
    async with ingest.open(IngestMessage, url, settings) as queue:
        await queue.consume(10, hang)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
