"""Single publishes while a large read goes on."""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections.abc import Callable
from statistics import median, quantiles

from benchmarks.harness.bar import at_most
from benchmarks.harness.verdict import judge_ratio
from benchmarks.http.penstock_server import Address, penstock_server
from benchmarks.spark.bench import FULL, LOGIN, Bench, headers, timed
from benchmarks.spark.outcome import Outcome
from penstock.client import Client
from penstock.http.v1.formats import ARROW

_PUSHES_SECONDS = 8
# What the server that is read from may add. Two equal p99 differ by as much now and then.
_SAME = at_most(1.3)


def push_beside_reads(bench: Bench) -> Outcome:
    """p99 of single publishes, alone and while a million messages are read, again and again.

    Whoever reads takes cores that pushes need, too, whichever server those go to. So they also go
    to another server, from which nothing is read: what is left is what the read itself costs them.
    """
    own = bench.address

    def source() -> None:
        timed(bench.source())

    def parquet() -> None:
        timed(bench.spark.read.parquet(bench.parquet))

    def bare() -> None:
        _read_bare(own)

    alone, beside, elsewhere, native = [], [], [], []
    beside_bare, elsewhere_bare = [], []
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
            beside_bare.append(_push_p99_during(own, bare))
            elsewhere_bare.append(_push_p99_during(other, bare))
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
                what="the same",
                unit="ms",
                ours=beside,
                reference_name="pushes to another server",
                reference=elsewhere,
                bar=_SAME,
            ),
            judge_ratio(
                what="p99 of a push while a bare client reads them, without Spark",
                unit="ms",
                ours=beside_bare,
                reference_name="pushes to another server",
                reference=elsewhere_bare,
                bar=_SAME,
            ),
        ),
        {
            "beside": beside,
            "alone": alone,
            "elsewhere": elsewhere,
            "beside parquet": native,
            "beside a bare client": beside_bare,
            "elsewhere beside a bare client": elsewhere_bare,
        },
        (f"{median(native):.1f} ms while Spark reads the same rows as parquet",),
    )


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
