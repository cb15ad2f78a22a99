"""Single publishes while a large read goes on."""

from __future__ import annotations

import http.client
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from statistics import median, quantiles

from benchmarks.harness.bar import at_most
from benchmarks.harness.verdict import judge_ratio
from benchmarks.http.penstock_server import Address, penstock_server
from benchmarks.spark.bench import FULL, LOGIN, Bench, headers, timed
from benchmarks.spark.outcome import Outcome
from penstock.client import Client
from penstock.http.v1.formats import ARROW

_PUSHES_SECONDS = 8


def push_beside_reads(bench: Bench) -> Outcome:
    """p99 of single publishes, alone and while a million messages are read, again and again."""
    own = bench.address

    def source() -> None:
        timed(bench.source())

    def parquet() -> None:
        timed(bench.spark.read.parquet(bench.parquet))

    alone, beside, elsewhere, native, bare = [], [], [], [], []
    directory = bench.fresh("other")
    directory.mkdir()
    with penstock_server(directory) as other:
        for address in (own, other):
            with Client(address.url, **LOGIN) as client:
                client.ensure_queue("beside")
        for _ in range(bench.rounds):
            alone.append(_push_p99_alone(own))
            beside.append(_push_p99_during(own, source))
            elsewhere.append(_push_p99_during(other, source))
            native.append(_push_p99_during(own, parquet))
            bare.append(_push_p99_during(own, partial(_read_bare, own)))
    return Outcome(
        (
            judge_ratio(
                what="p99 of a push while a million messages are read",
                unit="ms",
                ours=beside,
                reference_name="nothing is read",
                reference=alone,
                bar=at_most(2),
            ),
            judge_ratio(
                what="p99 of a push while a bare client reads them, without Spark",
                unit="ms",
                ours=bare,
                reference_name="nothing is read",
                reference=alone,
                bar=None,
            ),
        ),
        {
            "beside": beside,
            "alone": alone,
            "elsewhere": elsewhere,
            "beside parquet": native,
            "beside a bare client": bare,
        },
        (
            f"controls, for what the shared cores cost alone: {median(elsewhere):.1f} ms when the "
            f"pushes go to another server during the same reads, {median(native):.1f} ms while "
            "Spark reads the same rows as parquet",
        ),
    )


def push_scheduled_first(bench: Bench) -> Outcome:
    """The same with a server that gets a core as soon as it wants one, and so does who pushes.

    Spark keeps every core busy, so that a push mostly waits for one. This leaves what the server
    itself makes a push wait.
    """
    own = bench.address
    with Client(own.url, **LOGIN) as client:
        client.ensure_queue("beside")
    alone, beside, native = [], [], []
    with _scheduled_first(own.process_id):
        for _ in range(bench.rounds):
            alone.append(_push_p99_alone(own))
            beside.append(_push_p99_during(own, lambda: timed(bench.source())))
            native.append(
                _push_p99_during(own, lambda: timed(bench.spark.read.parquet(bench.parquet)))
            )
    return Outcome(
        (
            judge_ratio(
                what="p99 of a push while a million messages are read, the server scheduled first",
                unit="ms",
                ours=beside,
                reference_name="nothing is read",
                reference=alone,
                bar=at_most(2),
            ),
        ),
        {"beside": beside, "alone": alone, "beside parquet": native},
        (f"{median(native):.1f} ms while Spark reads the same rows as parquet",),
    )


@contextmanager
def _scheduled_first(process_id: int) -> Iterator[None]:
    """Run a process as `chrt --rr 1` does, and the calling thread, too."""
    try:
        _schedule(process_id, os.SCHED_RR, priority=1)
    except PermissionError as exc:
        raise PermissionError(
            "this row schedules the server ahead of Spark: run it as root, or with CAP_SYS_NICE"
        ) from exc
    try:
        yield
    finally:
        _schedule(process_id, os.SCHED_OTHER, priority=0)


def _schedule(process_id: int, policy: int, *, priority: int) -> None:
    threads = [int(name) for name in os.listdir(f"/proc/{process_id}/task")]
    for thread in [*threads, threading.get_native_id()]:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setscheduler(thread, policy, os.sched_param(priority))


def _read_bare(address: Address) -> None:
    """All messages as Spark asks for them, by a process that does nothing with them."""
    url = f"{address.url}/v1/queues/{FULL}/messages"
    sent = {**headers(), "Accept": ARROW}
    lines = [option for name, value in sent.items() for option in ("--header", f"{name}: {value}")]
    subprocess.run(["curl", "--silent", "--fail", "--output", "/dev/null", *lines, url], check=True)


def _push_p99_alone(address: Address) -> float:
    return _push_p99(address, threading.Event(), seconds=_PUSHES_SECONDS)


def _push_p99_during(address: Address, read: Callable[[], None]) -> float:
    """While it is read for as long as the others are measured."""
    done = threading.Event()

    def read_on() -> None:
        until = time.monotonic() + _PUSHES_SECONDS
        try:
            while time.monotonic() < until:
                read()
        finally:
            done.set()

    reader = threading.Thread(target=read_on)
    reader.start()
    found = _push_p99(address, done, seconds=120)
    reader.join()
    return found


def _push_p99(address: Address, done: threading.Event, *, seconds: float) -> float:
    sent = headers()
    connection = http.client.HTTPConnection("127.0.0.1", address.port)
    took = []
    until = time.monotonic() + seconds
    while not done.is_set() and time.monotonic() < until:
        began = time.perf_counter()
        connection.request("POST", "/v1/queues/beside/messages", b"x" * 256, sent)
        connection.getresponse().read()
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(0.002)
    connection.close()
    return quantiles(took, n=100)[98]
