"""Connections: kept and used again, made anew where they have to be, and verified by TLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.core.callback import Callback
from penstock.push.guard import LOOPBACK, Guard
from penstock.push.transport import CallFailed, Endpoint, Transport

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\nok"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + OK
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


class Peer:
    """Answers every request on a connection with the next of its answers."""

    def __init__(self, *answers: bytes, closes_after: int | None = None) -> None:
        self._answers = list(answers)
        self._closes_after = closes_after
        self.requests: list[bytes] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        answered = 0
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                self.asked.set()
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                writer.write(answer)
                answered += 1
                if answered == self._closes_after or answer in (LAST, UNTIL_CLOSED):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def transport() -> AsyncIterator[Transport]:
    made = Transport(Guard(LOOPBACK))
    yield made
    await made.close()


def endpoint(port: int, path: str = "hook?a=b", scheme: str = "http") -> Endpoint:
    return Endpoint(Callback(url=f"{scheme}://127.0.0.1:{port}/{path}", timeout_seconds=20))


async def test_a_request_is_what_http_wants() -> None:
    peer = Peer(OK)
    async with peer.listening() as port, transport() as calls:
        answer = await calls.post(endpoint(port), b"body", {"webhook-id": "1"})
    assert (answer.status, answer.reason, answer.excerpt) == (200, "OK", b"ok")
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /hook?a=b HTTP/1.1"
    assert f"Host: 127.0.0.1:{port}" in lines
    assert "webhook-id: 1" in lines
    assert "Content-Length: 4" in lines
    assert body == b"body"


async def test_a_url_without_a_path_is_the_root() -> None:
    peer = Peer(OK)
    async with peer.listening() as port, transport() as calls:
        where = Endpoint(Callback(url=f"http://127.0.0.1:{port}"))
        await calls.post(where, b"", {})
    assert peer.requests[0].startswith(b"POST / HTTP/1.1\r\n")


@pytest.mark.parametrize("answer", [OK, CHUNKED, CONTINUED, EMPTY])
async def test_a_connection_is_used_again(answer: bytes) -> None:
    peer = Peer(answer)
    async with peer.listening() as port, transport() as calls:
        for _ in range(3):
            got = await calls.post(endpoint(port), b"x", {})
            assert got.excerpt == (b"" if answer is EMPTY else b"ok")
            assert got.status == (204 if answer is EMPTY else 200)
    assert (peer.connections, len(peer.requests)) == (1, 3)


@pytest.mark.parametrize("answer", [LAST, UNTIL_CLOSED])
async def test_an_answer_that_ends_the_connection_is_read_all_the_same(answer: bytes) -> None:
    peer = Peer(answer)
    async with peer.listening() as port, transport() as calls:
        for _ in range(2):
            assert (await calls.post(endpoint(port), b"x", {})).excerpt == b"ok"
    assert peer.connections == 2


async def test_calls_at_once_have_connections_of_their_own_and_their_own_answers() -> None:
    peer = Peer(OK)
    async with peer.listening() as port, transport() as calls:
        for _ in range(5):
            answers = await asyncio.gather(
                *(calls.post(endpoint(port), b"%d" % n, {}) for n in range(10))
            )
            assert [answer.status for answer in answers] == [200] * 10
    assert peer.connections == 10


async def test_a_connection_that_was_closed_while_idle_fails_no_call() -> None:
    # Given a server that closes after each answer, without saying so
    peer = Peer(OK, closes_after=1)
    async with peer.listening() as port, transport() as calls:
        for _ in range(5):
            assert (await calls.post(endpoint(port), b"x", {})).status == 200
    assert peer.connections == 5


async def test_what_nobody_asked_for_ends_the_connection() -> None:
    # Given a server that sends two answers for one request
    peer = Peer(OK + OK)
    async with peer.listening() as port, transport() as calls:
        for _ in range(2):
            assert (await calls.post(endpoint(port), b"x", {})).status == 200
    assert peer.connections == 2


@pytest.mark.parametrize("value", ["a\r\nHost: other", "a\nb", "gr\u00f6\u00dfe"])
async def test_a_header_that_would_be_another_is_not_sent(value: str) -> None:
    peer = Peer(OK)
    async with peer.listening() as port, transport() as calls:
        with pytest.raises(CallFailed, match="cannot be sent"):
            await calls.post(endpoint(port), b"x", {"name": value})
    assert peer.requests == []


async def test_a_call_that_is_cancelled_takes_its_connection_along() -> None:
    peer = Peer(b"")
    async with peer.listening() as port, transport() as calls:
        task = asyncio.create_task(calls.post(endpoint(port), b"x", {}))
        await peer.asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        peer._answers = [OK]
        assert (await calls.post(endpoint(port), b"y", {})).status == 200
    assert peer.connections == 2


# TLS.


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    made, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(made), "-days", "2"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return made, key


async def test_a_certificate_is_verified(certificate: tuple[Path, Path]) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(*certificate)
    peer = Peer(OK)
    async with peer.listening(server_side) as port:
        # Given one whom nobody vouches for
        doubting = Transport(Guard(LOOPBACK))
        with pytest.raises(CallFailed, match="certificate verify failed"):
            await doubting.post(endpoint(port, scheme="https"), b"x", {})
        await doubting.close()
        assert peer.requests == []
        # And one that is trusted
        trust = ssl.create_default_context(cafile=str(certificate[0]))
        trusting = Transport(Guard(LOOPBACK), tls=trust)
        assert (await trusting.post(endpoint(port, scheme="https"), b"x", {})).status == 200
        assert (await trusting.post(endpoint(port, scheme="https"), b"x", {})).status == 200
        await trusting.close()
    assert len(peer.requests) == 2
