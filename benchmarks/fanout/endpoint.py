"""The endpoint that is called: it answers at once, and notes what arrived when.

A process of its own, as small as it can be, so that what is measured is who calls. The clock is the
machine's, which all processes share: a body begins with the time at which it was published.

- ``POST /hang/...`` is never answered. Any other ``POST`` is, with 200.
- ``GET /wait/<count>`` is answered when so many calls have come since the last ``/take``.
- ``GET /take`` gives what has come, as `Arrivals`, and begins anew.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from time import perf_counter_ns
from typing import cast

import httptools
import msgspec
import uvloop

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_TIME = struct.Struct(">Q")


class Arrivals(msgspec.Struct):
    """Times are in nanoseconds. `latencies` are by path: from the time in the body to now."""

    count: int = 0
    first_ns: int = 0
    last_ns: int = 0
    latencies: dict[str, list[int]] = {}


def stamped(body: bytes) -> bytes:
    """The body with the time at its beginning."""
    return _TIME.pack(perf_counter_ns()) + body[_TIME.size :]


class State:
    def __init__(self) -> None:
        self.arrivals = Arrivals()
        self.waiting: list[tuple[int, asyncio.Transport]] = []

    def note(self, path: str, body: bytes) -> None:
        now = perf_counter_ns()
        arrivals = self.arrivals
        arrivals.count += 1
        arrivals.first_ns = arrivals.first_ns or now
        arrivals.last_ns = now
        arrivals.latencies.setdefault(path, []).append(now - _TIME.unpack_from(body)[0])
        for count, transport in self.waiting:
            if arrivals.count >= count:
                transport.write(_OK)
        self.waiting = [one for one in self.waiting if one[0] > arrivals.count]


class Connection(asyncio.Protocol):
    def __init__(self, state: State) -> None:
        self._state = state

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        path, body = self._url.decode(), self._body
        self._url, self._body = b"", b""
        state = self._state
        if path == "/take":
            answer = msgspec.json.encode(state.arrivals)
            state.arrivals = Arrivals()
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer)
            self._transport.write(head + answer)
        elif path.startswith("/wait/"):
            count = int(path.rpartition("/")[2])
            if state.arrivals.count >= count:
                self._transport.write(_OK)
            else:
                state.waiting.append((count, self._transport))
        elif not path.startswith("/hang/"):
            state.note(path, body)
            self._transport.write(_OK)


async def serve(port: int) -> None:
    state = State()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
