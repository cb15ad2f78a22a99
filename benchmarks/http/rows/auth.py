"""What auth takes of a push: the time to identify a known user, against the time of a push."""

from __future__ import annotations

import time
from statistics import median
from time import perf_counter

from benchmarks.harness.bar import at_most
from benchmarks.harness.row import Outcome, Row
from benchmarks.harness.verdict import judge_value
from benchmarks.http.load import AUTHORIZATION
from benchmarks.http.penstock_server import penstock_server
from benchmarks.http.run import Run
from benchmarks.http.scale import CONNECTIONS
from benchmarks.http.wrk import wrk
from penstock.clock import SystemClock
from penstock.http.auth.authenticator import Authenticator
from penstock.http.auth.passwords import Passwords
from penstock.http.auth.tokens import open_tokens
from penstock.http.auth.users import open_users
from penstock.http.exchange import IncomingRequest
from penstock.settings import Settings
from penstock.storage.local import LocalShared

BAR = at_most(5, "%")
CALLS = 50_000


async def measure(run: Run) -> Outcome:
    shares, identifies, pushes = [], [], []
    with run.fresh_directory("penstock") as directory, penstock_server(directory) as penstock:
        for _ in range(run.scale.rounds):
            identify = await _identify_seconds()
            load = await wrk(
                penstock.url,
                "push.lua",
                connections=CONNECTIONS,
                seconds=run.scale.slice_seconds,
                argument=AUTHORIZATION,
            )
            identifies.append(identify * 1e6)
            pushes.append(1e6 / load.rate)
            shares.append(100 * identify * load.rate)
    verdict = judge_value(what="of a push", unit="%", ours=shares, bar=BAR)
    samples = {"identify, µs": identifies, "a push, µs": pushes, "share, %": shares}
    notes = tuple(f"{name}: {median(values):.2f}" for name, values in samples.items())
    return Outcome(verdicts=(verdict,), samples=samples, notes=notes)


async def _identify_seconds() -> float:
    """Of one request by a user whose password was found right before, as nearly all are."""
    settings = Settings(data="memory:")
    passwords = Passwords()
    shared = LocalShared(settings.directory, SystemClock())
    tokens = await open_tokens(shared, lifetime_seconds=60, clock=SystemClock())
    authenticator = Authenticator(
        await open_users(settings, passwords, shared),
        passwords=passwords,
        tokens=tokens,
        monotonic=time.monotonic,
    )
    headers = [(b"host", b"127.0.0.1"), (b"authorization", AUTHORIZATION.encode())]
    request = IncomingRequest("POST", b"/queue/push", b"", headers)
    assert await authenticator.identify(AUTHORIZATION.encode()) is not None
    began = perf_counter()
    for _ in range(CALLS):
        header = request.first.get(b"authorization")
        assert header is not None
        authenticator.recall(header)
    return (perf_counter() - began) / CALLS


ROW = Row(name="auth", what="auth", measure=measure)
