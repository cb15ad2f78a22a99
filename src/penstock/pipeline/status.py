"""What is in a lake, from its files alone, without Spark or a server."""

from __future__ import annotations

import msgspec

from penstock.pipeline import gold, silver
from penstock.pipeline.bronze import EVENTS, MESSAGES
from penstock.pipeline.days import days_job
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing

__all__ = ["Status", "TableStatus", "status_of"]


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a table, and their rows."""

    table: str
    files: int
    bytes: int
    rows: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """`landed` is the next index of each queue; `behind`, how many batches each job lags behind."""

    lake: str
    tables: list[TableStatus]
    landed: dict[str, int]
    behind: dict[str, int]


def status_of(lake: Lake) -> Status:
    feeds = (MESSAGES.table, EVENTS.table)
    logs = {job: Landing(lake, job) for job in (*feeds, silver.JOB, gold.JOB)}
    rows: dict[str, int] = {}
    for log in logs.values():
        rows |= log.totals()
    for table in list(rows):
        rows |= Landing(lake, days_job(table)).totals()
    tables = []
    for table in sorted(rows):
        base = lake.table(table)
        # Table formats keep their metadata in directories with such names.
        files = [file for file in base.files(".parquet") if not file.below(base).startswith("_")]
        tables.append(
            TableStatus(
                table=table,
                files=len(files),
                bytes=sum(file.size for file in files),
                rows=rows[table],
            )
        )
    newest = logs[MESSAGES.table].last()
    behind = {
        job: newest.number - logs[job].last().progress.get(MESSAGES.table, 0)
        for job in (silver.JOB, gold.JOB)
    }
    return Status(lake=str(lake.root), tables=tables, landed=dict(newest.progress), behind=behind)
