"""Memory that a long backlog takes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engine.children.fill import FillReport, FillTask
from benchmarks.engine.children.hold import HoldTask
from benchmarks.engine.memory import Memory
from benchmarks.engine.process import Child
from benchmarks.engine.run import Run
from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row
from benchmarks.harness.verdict import judge_value

BAR = at_most(40, "bytes")


async def measure(run: Run) -> Outcome:
    """In a process that opened the store, in the one that published it all, and at its worst."""
    filled = run.backlog.memory_when_filled
    opened: list[Memory] = []
    empty: list[Memory] = []
    with run.screen.meter("rounds", total=run.scale.rounds) as meter:
        for _ in range(run.scale.rounds):
            opened.append(_hold(run, run.backlog.directory, create=False))
            with run.fresh_directory("empty") as directory:
                empty.append(_hold(run, directory, create=True))
            meter.advance()
    singles, held = _singles(run)
    pairs_of_singles = list(zip(held, empty, strict=True))
    worst = [(full.rss - base.rss) / singles for full, base in pairs_of_singles]
    messages = run.backlog.messages
    pairs = list(zip(opened, empty, strict=True))
    rss_opened = [(full.rss - base.rss) / messages for full, base in pairs]
    rss_filled = [(filled.rss - base.rss) / messages for base in empty]
    verdicts = tuple(
        judge_value(
            what=f"a backlog of {messages:,}, {how}", unit="bytes/message", ours=ours, bar=BAR
        )
        for how, ours in (("opened", rss_opened), ("published here", rss_filled))
    )
    verdicts += (
        judge_value(
            what=f"the worst case, {singles:,} records of one message",
            unit="bytes/message",
            ours=worst,
            bar=BAR,
        ),
    )
    notes = (
        _explain("empty store", empty[-1]),
        _explain("opened", opened[-1]),
        _explain("published here", filled),
        _explain("the worst case", held[-1]),
    )
    samples = {
        "opened": rss_opened,
        "opened, trimmed": [
            (full.rss_trimmed - base.rss_trimmed) / messages for full, base in pairs
        ],
        "published here": rss_filled,
        "published here, trimmed": [
            (filled.rss_trimmed - base.rss_trimmed) / messages for base in empty
        ],
        "the worst case": worst,
        "the worst case, trimmed": [
            (full.rss_trimmed - base.rss_trimmed) / singles for full, base in pairs_of_singles
        ],
    }
    return Outcome(verdicts=verdicts, samples=samples, notes=notes)


def _singles(run: Run) -> tuple[int, list[Memory]]:
    """Publishes that never meet another: every message has a record and an index entry."""
    messages = run.scale.single_records
    with run.fresh_directory("singles") as directory:
        task = FillTask(directory=str(directory), messages=messages, loop=run.loop, is_single=True)
        text = "filling a backlog one message at a time"
        with (
            run.screen.meter(text, total=messages) as meter,
            Child("benchmarks.engine.children.fill", task) as child,
        ):
            report = child.hear(FillReport)
            while report.memory is None:
                meter.reach(report.done)
                report = child.hear(FillReport)
            child.finish()
        rounds = range(run.scale.rounds)
        return messages, [_hold(run, directory, create=False) for _ in rounds]


def _hold(run: Run, directory: Path, *, create: bool) -> Memory:
    task = HoldTask(directory=str(directory), create=create, loop=run.loop)
    with Child("benchmarks.engine.children.hold", task) as child:
        memory = child.hear(Memory)
        child.finish()
    return memory


def _explain(what: str, memory: Memory) -> str:
    in_use = "unknown" if memory.malloc_in_use is None else _mebibytes(memory.malloc_in_use)
    return (
        f"{what}: RSS {_mebibytes(memory.rss)} (anonymous {_mebibytes(memory.anonymous)}), "
        f"{_mebibytes(memory.rss_trimmed)} once malloc gave back what it kept; "
        f"in use by malloc {in_use}"
    )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


ROW = Row(name="memory-at-depth", what="memory above an empty store", measure=measure)
