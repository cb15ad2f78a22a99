"""What the ``penstock wal`` commands print for people."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from penstock.core.runs import Run
from penstock.storage.wal.offline.damage import Damage
from penstock.storage.wal.offline.repair import Repair
from penstock.storage.wal.offline.survey import Condition, FileReport, RecordReport, Survey
from penstock.storage.wal.offline.verify import Verification

__all__ = ["print_repair", "print_survey", "print_verification", "record_line"]

_STYLES = {
    Condition.GOOD: "green",
    Condition.TORN: "yellow",
    Condition.DAMAGED: "bold red",
    Condition.MISSING: "bold red",
    Condition.UNNEEDED: "dim",
    Condition.FOREIGN: "dim",
}


def print_survey(out: Console, seen: Survey) -> None:
    out.print(_file_table(seen.files))
    _print_damages(out, [damage for file in seen.files for damage in file.damages])
    if seen.refusal is not None:
        out.print(f"[bold red]A start would refuse:[/] {escape(seen.refusal)}")
        return
    table = Table("queue", "first", "next", "messages", "bytes", "not settled", box=None)
    for column in table.columns[1:5]:
        column.justify = "right"
    for queue in seen.queues:
        unsettled = ", ".join(f"{name} {count}" for name, count in queue.subscriptions.items())
        numbers = (queue.first, queue.next, queue.messages)
        table.add_row(queue.name, *map(str, numbers), decimal(queue.bytes), unsettled)
    out.print()
    out.print(table if seen.queues else "There are no queues.")


def _file_table(files: list[FileReport]) -> Table:
    table = Table("file", "is a", "size", "condition", "records", box=None)
    table.columns[2].justify = "right"
    for file in files:
        counts = ", ".join(f"{count} {kind}" for kind, count in file.records.items())
        style = _STYLES[file.condition]
        condition = f"[{style}]{file.condition.value}[/]"
        table.add_row(file.name, file.kind, decimal(file.bytes), condition, counts)
    return table


def print_verification(out: Console, found: Verification, directory: Path) -> None:
    _print_damages(out, found.damages)
    if found.torn_file is not None:
        out.print(
            f"{found.torn_file} ends in {decimal(found.torn_bytes)} that were never synced; "
            "the next start cuts them off.",
            soft_wrap=True,
        )
    if found.is_good:
        messages = sum(found.messages.values())
        out.print(
            f"[green]good:[/] {found.records} records and {messages} messages "
            f"in {decimal(found.bytes)}"
        )
    else:
        out.print(
            f"[bold red]{len(found.damages)} damaged.[/] Restore the files from a backup, or run "
            f"`penstock wal repair {escape(str(directory))}`",
            soft_wrap=True,
        )


def _print_damages(out: Console, damages: Iterable[Damage]) -> None:
    for damage in damages:
        size = f" ({decimal(damage.bytes)})" if damage.bytes else ""
        text = f"{damage.file} at offset {damage.offset}{size}: {damage.problem}"
        out.print(f"[red]damage:[/] {escape(text)}", soft_wrap=True, highlight=False)


def print_repair(out: Console, plan: Repair) -> None:
    _print_damages(out, plan.damages)
    out.print()
    for name, runs in plan.lost.items():
        count = sum(stop - start for start, stop in runs)
        text = f"lost: {count} of queue {name}, at index {_ranges(runs)}"
        out.print(escape(text), soft_wrap=True, highlight=False)
    if not plan.lost:
        out.print("No message is known to be lost.")
    for name, count in plan.kept.items():
        out.print(f"kept: {count} of queue {escape(name)}", highlight=False)
    if plan.is_gapped:
        out.print(
            "Events are missing. Whatever is not known to be settled will be delivered again, so "
            "some messages that were acknowledged will come a second time. Receipts that were "
            "given out are void.",
        )
    if not plan.has_checkpoint:
        out.print(
            "There is no checkpoint, so names, settings and subscriptions of queues may be "
            "missing. A queue whose name is not known is called recovered-<number>.",
            highlight=False,
        )
    if plan.left_out:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(plan.left_out.items()))
        out.print(f"Events that say nothing any more and are left out: {counts}", soft_wrap=True)
    out.print(f"To be moved aside: {', '.join(plan.aside)}", soft_wrap=True, highlight=False)


def _ranges(runs: list[Run]) -> str:
    return ", ".join(
        str(start) if stop == start + 1 else f"{start} to {stop - 1}" for start, stop in runs
    )


def record_line(found: RecordReport) -> str:
    event = found.event
    fields = ""
    if event is not None:
        names = [name for name in event.__struct_fields__ if name not in ("bodies", "heads")]
        fields = " ".join(f"{name}={getattr(event, name)!r}" for name in names)
    return f"{found.file} {found.offset:>10} {found.length:>8} {found.kind:<20} {fields}".rstrip()
