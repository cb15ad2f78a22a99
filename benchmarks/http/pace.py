"""Requests at a constant rate, and how long each of them took.

The schedule is fixed before the first request goes out: request i is due at i / rate seconds. Its
latency runs from that moment to the last byte of its answer, whether it could be sent then or had
to wait for a connection. So a server that stands still for a while is charged for every request
that was due meanwhile, not only for those under way (coordinated omission). What the generator
itself is late by is charged to the server, too.

It is a plain loop around select(2), because the timers of event loops are a millisecond apart.
"""

from __future__ import annotations

import gc
import math
import select
import socket
from collections import deque
from collections.abc import Sequence
from time import perf_counter

_LIMIT_SECONDS = 60
_CHUNK = 65536


class BadAnswer(Exception):
    """The server answered with an error, hung up, or took longer than anybody would wait."""


class _Connection:
    """One request at a time, over a socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = b""
        self.due = 0.0
        self.received = 0.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self._answer = b""
        self._socket.sendall(request)

    def receive(self) -> None:
        """Read what has come, and note the time. Raises `BadAnswer`."""
        data = self._socket.recv(_CHUNK)
        self.received = perf_counter()
        if not data:
            raise BadAnswer("the server hung up")
        self._answer += data

    def is_answered(self) -> bool:
        """Whether the answer is whole. Raises `BadAnswer` if it is an error."""
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end:
            return False
        if not head.startswith(b"HTTP/1.1 200 "):
            raise BadAnswer(head.partition(b"\r\n")[0].decode("latin-1"))
        _, _, length = head.lower().partition(b"content-length: ")
        return len(body) >= int(length.partition(b"\r\n")[0])

    def close(self) -> None:
        self._socket.close()


def paced(
    port: int, request: bytes, *, rate: float, seconds: float, connections: int
) -> list[float]:
    """The latency of every request, in seconds; as many as were due. Raises `BadAnswer`."""
    idle = deque(_Connection(port) for _ in range(connections))
    opened = list(idle)
    gc.collect()
    gc.disable()
    try:
        return _run(idle, request, rate, int(rate * seconds))
    finally:
        gc.enable()
        for connection in opened:
            connection.close()


def _run(idle: deque[_Connection], request: bytes, rate: float, count: int) -> list[float]:
    latencies: list[float] = []
    busy: set[_Connection] = set()
    sent = 0
    start = perf_counter()
    while len(latencies) < count:
        now = perf_counter()
        while idle and sent < count and (due := start + sent / rate) <= now:
            connection = idle.popleft()
            connection.send(request, due)
            busy.add(connection)
            sent += 1
        is_next_known = idle and sent < count
        wait = max(0.0, start + sent / rate - perf_counter()) if is_next_known else _LIMIT_SECONDS
        readable, _, _ = select.select(busy, (), (), wait)
        if not readable and wait == _LIMIT_SECONDS:
            raise BadAnswer(f"nothing came within {_LIMIT_SECONDS} seconds")
        # A server that stores requests together answers them together. So all answers are read, and
        # timed, before the first of them is looked at.
        for connection in readable:
            connection.receive()
        for connection in readable:
            if connection.is_answered():
                latencies.append(connection.received - connection.due)
                busy.discard(connection)
                idle.append(connection)
    return latencies


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of them do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
