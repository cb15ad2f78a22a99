from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.http.pace import BadAnswer, paced, percentile

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\n\r\n"


def test_every_request_that_was_due_is_measured() -> None:
    with _server(GOOD) as port:
        latencies = paced(port, REQUEST, rate=200, seconds=0.1, connections=1)

    assert len(latencies) == 20


def test_an_answer_in_pieces_is_one_answer() -> None:
    with _server(GOOD[:20], GOOD[20:-1], GOOD[-1:]) as port:
        latencies = paced(port, REQUEST, rate=200, seconds=0.05, connections=1)

    assert len(latencies) == 10


def test_waiting_for_a_connection_counts() -> None:
    # Given a server that sits on its first answer until all requests were due
    held = threading.Event()
    timer = threading.Timer(0.1, held.set)
    timer.start()

    # When they come over one connection
    with _server(GOOD, first=held) as port:
        latencies = paced(port, REQUEST, rate=1000, seconds=0.05, connections=1)

    # Then each of them is charged with the wait that was left when it was due: none ended before
    # the first one did
    timer.join()
    assert len(latencies) == 50
    ends = [number / 1000 + latency for number, latency in enumerate(latencies)]
    assert min(ends) == ends[0]


def test_an_error_is_no_answer() -> None:
    with _server(BAD) as port, pytest.raises(BadAnswer, match="503"):
        paced(port, REQUEST, rate=100, seconds=0.1, connections=1)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(1, 201)]

    assert percentile(values, 99) == 198
    assert percentile(values, 100) == 200
    assert percentile([7.0], 50) == 7


@contextmanager
def _server(*pieces: bytes, first: threading.Event | None = None) -> Iterator[int]:
    """Answers each request that comes over one connection with the same pieces."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while connection.recv(1000):
                if first is not None:
                    first.wait()
                for piece in pieces:
                    connection.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()
