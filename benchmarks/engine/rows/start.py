"""Start with a long backlog, after a clean stop and after a kill."""

from __future__ import annotations

import asyncio

from benchmarks.engine.children.start import Started, StartTask
from benchmarks.engine.process import Child
from benchmarks.engine.run import Run
from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row
from benchmarks.harness.verdict import judge_value

BAR_CLEAN = at_most(5, "s")
BAR_KILLED = at_most(10, "s")


async def measure(run: Run) -> Outcome:
    """Each round: a clean start, work until killed, a start after that, and a clean stop."""
    directory = str(run.backlog.directory)
    clean: list[float] = []
    killed: list[float] = []
    with run.screen.meter("rounds", total=run.scale.rounds) as meter:
        for _ in range(run.scale.rounds):
            worker = StartTask(directory=directory, work=True, loop=run.loop)
            with Child("benchmarks.engine.children.start", worker) as child:
                clean.append(child.hear(Started).seconds)
                await asyncio.sleep(run.scale.work_seconds)
                child.kill()
            opener = StartTask(directory=directory, work=False, loop=run.loop)
            with Child("benchmarks.engine.children.start", opener) as child:
                killed.append(child.hear(Started).seconds)
                child.finish()
            meter.advance()
    backlog = f"a backlog of {run.backlog.messages:,}"
    verdicts = (
        judge_value(what=f"{backlog}, clean stop", unit="s", ours=clean, bar=BAR_CLEAN),
        judge_value(what=f"{backlog}, kill -9", unit="s", ours=killed, bar=BAR_KILLED),
    )
    note = (
        f"killed after {run.scale.work_seconds:g} s of publishing, receiving and acking; "
        "a start ends when its first message was received and acked"
    )
    samples = {"clean stop": clean, "kill -9": killed}
    return Outcome(verdicts=verdicts, samples=samples, notes=(note,))


ROW = Row(name="start", what="start", measure=measure)
