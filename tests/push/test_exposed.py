"""A server that others can reach: it calls nobody on its own machine unless it is told to."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.client import AsyncClient
from tests.http.server import running
from tests.push.receiver import PATIENCE_SECONDS, Receiver

ENVIRONMENT = {
    "PENSTOCK_USER_PASSWORD": "one",
    "PENSTOCK_ADMIN_PASSWORD": "two",
    "PENSTOCK_CALLBACK_ALLOW": "127.0.0.2",
}


async def test_a_server_that_is_not_on_loopback_calls_there_only_what_is_allowed(
    tmp_path: Path, receiver: Receiver
) -> None:
    # Given a server on all addresses, which may call one of loopback's
    data, log = str(tmp_path / "data"), tmp_path / "log"
    async with Receiver("127.0.0.2") as allowed:
        with running(data, log, "--host", "0.0.0.0", environment=ENVIRONMENT) as server:
            async with AsyncClient(
                f"http://127.0.0.1:{server.port}", username="admin", password="two"
            ) as client:
                await client.create_queue("jobs")
                for name, url in (("forbidden", receiver.url()), ("allowed", allowed.url())):
                    await client.create_subscription(
                        "jobs", name, callback={"url": url}, max_deliveries=1
                    )
                # When something is published
                await client.publish("jobs", [b"x"])
                # Then that one is called
                await allowed.wait_for(1)
                # And for the other it is said why it is not
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not (letters := await client.dead_letters("jobs")):  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
    [letter] = letters
    assert letter.dead_letter is not None
    assert letter.dead_letter.subscription == "forbidden"
    assert "127.0.0.1 is not public" in letter.dead_letter.reason
    assert receiver.calls == []
