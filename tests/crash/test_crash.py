from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random
from threading import Thread

from penstock.storage import base
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore
from tests.crash import report
from tests.crash.witness import Witness
from tests.crash.worker import SEGMENT_BYTES
from tests.simulation.checker import Checker
from tests.simulation.clients import Clients
from tests.simulation.clock import VirtualClock
from tests.simulation.drain import drain
from tests.simulation.history import History, Violation

ROUNDS = 20
ROOT = Path(__file__).parents[2]


async def test_a_process_killed_under_load_loses_nothing_that_it_answered(tmp_path: Path) -> None:
    # Given a directory in which one process after the other works until it is killed
    started = time.monotonic()
    clock = VirtualClock(time.time_ns())
    history = History(clock)
    checker = Checker(history)
    witness = Witness(history, checker)
    rng = Random(20)
    try:
        for number in range(ROUNDS):
            output = work_until_killed(tmp_path, number * 1_000_000, rng.uniform(0, 0.5))

            # When what it left behind is opened
            store = await WalStore.open(DiskFiles(tmp_path), segment_bytes=SEGMENT_BYTES)
            if report.QUEUE in store.machine.queues:
                # Then everything that it had answered is there
                witness.hear(report.decode(output), store.machine)
                history.note(f"*** killed, round {number}")
                await check_stored(store, checker)
            await store.close()

        # And at the end nothing is left that was not taken, each after the other
        clock.advance(time.monotonic() - started)
        store = await WalStore.open(DiskFiles(tmp_path), clock=clock, segment_bytes=SEGMENT_BYTES)
        clients = Clients(history, checker)
        clients.use(store)
        await drain(clients, clock)
        await store.close()
    except Violation as exc:
        raise AssertionError(f"{exc}\n{history.about(exc.words)}") from exc
    assert witness.published > ROUNDS
    assert witness.acked > ROUNDS


def work_until_killed(directory: Path, first_number: int, seconds: float) -> bytes:
    """What the worker said until it was killed, some time after it began to work."""
    command = [sys.executable, "-m", "tests.crash.worker", str(directory), str(first_number)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    output: list[bytes] = []
    source = process.stdout
    try:
        first = source.readline()
        assert first, "the worker ended before it had begun"
        reader = Thread(target=lambda: output.append(source.read()))
        reader.start()
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()
    reader.join()
    source.close()
    return first + output[0]


async def check_stored(store: WalStore, checker: Checker) -> None:
    checker.check_definitions(store.machine)
    queue = store.machine.queue(report.QUEUE)
    count = queue.next - queue.first
    messages = (
        await store.read(queue.name, base.Span(start=queue.first, limit=count)) if count else []
    )
    checker.check_stored(queue, messages)
