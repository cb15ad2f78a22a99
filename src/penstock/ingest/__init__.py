"""Ingest: publish typed messages for many tenants, and handle them in batches.

::

    async with penstock.ingest.open(IngestMessage, "wal:./data") as queue:
        await queue.publish(IngestMessage(...))
        await queue.consume(100, handle)

The store is the only thing that changes when one machine is no longer enough: ``redis://...``.
"""

from __future__ import annotations

from penstock.ingest.message import IngestMessage, TenantMessage
from penstock.ingest.queue import IngestQueue, IngestSettings, open

__all__ = ["IngestMessage", "IngestQueue", "IngestSettings", "TenantMessage", "open"]
