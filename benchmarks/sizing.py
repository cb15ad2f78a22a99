"""What a server needs for its messages and connections: memory and disk, measured and printed.

``python -m benchmarks.sizing`` starts one on a free port of loopback, fills it, and starts it
again. It says nothing about speed: that is for the benchmarks, beside their references.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from penstock import AsyncClient, NewMessage

BATCH = 1000
BODY = b"x" * 256
POLLS = 1000
_SERVING = re.compile(r'"url":\s*"http://([^:]+):(\d+)"')


class Server:
    def __init__(self, data: Path) -> None:
        self._log = data.with_name("log")
        command = [sys.executable, "-c", "from penstock.cli import main; main()"]
        command += ["serve", "--port", "0", "--data", str(data)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while not (found := _SERVING.search(self._log.read_text())):
            if self._process.poll() is not None:
                raise RuntimeError(self._log.read_text())
            time.sleep(0.02)
        self.host, self.port = found[1], int(found[2])

    @property
    def resident(self) -> float:
        """In MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def client(self) -> AsyncClient:
        url = f"http://{self.host}:{self.port}"
        return AsyncClient(url, username="admin", password="adminpassword")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


@contextmanager
def serving(data: Path) -> Iterator[Server]:
    server = Server(data)
    try:
        yield server
    finally:
        server.stop()


async def fill(client: AsyncClient, messages: int, *, keyed: bool) -> None:
    await client.create_queue("sizing")
    for first in range(0, messages, BATCH):
        keys = [f"message-{number}" if keyed else None for number in range(first, first + BATCH)]
        await client.publish("sizing", [NewMessage(body=BODY, dedup_key=key) for key in keys])


async def wait_for_nothing(server: Server, stack: AsyncExitStack) -> None:
    """Connections that wait in a long poll, each with its request."""
    body = b'{"wait_seconds": 20}'
    head = (
        "POST /v1/queues/quiet/subscriptions/default/receive HTTP/1.1\r\nHost: a\r\n"
        "Authorization: Basic YWRtaW46YWRtaW5wYXNzd29yZA==\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    for _ in range(POLLS):
        _, writer = await asyncio.open_connection(server.host, server.port)
        stack.callback(writer.close)
        writer.write(head.encode() + body)
    await asyncio.sleep(2)


async def measure(messages: int, directory: Path) -> None:
    for keyed, what in ((False, "without"), (True, "with")):
        data = directory / what / "data"
        data.parent.mkdir()
        with serving(data) as server:
            empty = server.resident
            async with server.client() as client:
                await fill(client, messages, keyed=keyed)
            filled = server.resident
        log = sum(file.stat().st_size for file in data.glob("*.log"))
        checkpoint = max(file.stat().st_size for file in data.glob("*.ckpt"))
        with serving(data) as server:
            again = server.resident
        print(f"{messages} messages of {len(BODY)} bytes, {what} dedup keys of their own:")
        print(f"  disk      {log / messages:8.0f} bytes a message in the log")
        print(f"            {checkpoint / messages:8.1f} bytes a message in a checkpoint")
        print(f"  memory    {empty:8.0f} MiB when empty, {filled:.0f} MiB after publishing them")
        print(
            f"            {(again - empty) * 2**20 / messages:8.0f} bytes a message after a restart"
        )
    with serving(directory / "connections") as server:
        async with AsyncExitStack() as stack, server.client() as client:
            await client.create_queue("quiet")
            empty = server.resident
            await wait_for_nothing(server, stack)
            each = (server.resident - empty) * 1024 / POLLS
            print(f"{POLLS} connections in a long poll: {each:.0f} KiB each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(arguments.messages, Path(directory)))


if __name__ == "__main__":
    main()
