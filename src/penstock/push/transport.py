"""HTTP calls: bounded in time and in what is read, to checked addresses, without redirects."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.core.callback import Callback
from penstock.push.connection import Answer, CallFailed, Connection
from penstock.push.guard import AddressRefused, Guard
from penstock.push.resolver import AddressInfo, Resolve, Resolver

__all__ = ["Answer", "Begun", "CallFailed", "Endpoint", "Transport"]

_PORTS = {"http": 80, "https": 443}
# How long a connection is kept that nobody uses, and how often that is looked at.
_KEEP_SECONDS = 30.0
_SWEEP_SECONDS = 10.0


class Endpoint:
    """A callback's URL and timeouts, prepared once for many calls."""

    __slots__ = ("connect_seconds", "head", "host", "is_secure", "key", "port", "timeout_seconds")

    def __init__(self, callback: Callback) -> None:
        parts = urlsplit(callback.url)
        self.host = parts.hostname or ""
        self.port = parts.port or _PORTS[parts.scheme]
        self.is_secure = parts.scheme == "https"
        self.key = (self.is_secure, self.host, self.port)
        self.connect_seconds = callback.connect_seconds
        self.timeout_seconds = callback.timeout_seconds
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.head = (
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: Penstock\r\n"
            "Accept: */*\r\nAccept-Encoding: identity\r\n"
        )

    def request(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """The bytes to send; empty if a header cannot be sent."""
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        head = f"{self.head}{''.join(lines)}Content-Length: {len(body)}\r\n\r\n"
        if not head.isascii() or head.count("\n") != self.head.count("\n") + len(lines) + 2:
            return b""
        return head.encode("ascii") + body


class Begun(NamedTuple):
    """A call that is under way, or waits for a connection."""

    endpoint: Endpoint
    request: bytes
    connection: Connection | None
    answer: asyncio.Future[Answer] | None


class Transport:
    """Makes calls on connections that are kept and shared. Close it."""

    def __init__(
        self,
        guard: Guard,
        *,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        """``tls`` says whom to trust; without it, whom the machine trusts."""
        self._guard = guard
        self._tls = tls
        self._resolver = Resolver()
        self._resolve: Resolve = resolve or self._resolver
        self._idle: dict[tuple[bool, str, int], list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in [c for many in self._idle.values() for c in many] + list(self._busy):
            connection.close()
        self._resolver.close()
        await asyncio.sleep(0)  # for the transports to be gone

    async def post(self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Raises `CallFailed`."""
        return await self.finish(self.begin(endpoint, body, headers))

    def begin(self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str]) -> Begun:
        """Send the request now, if there is an idle connection. `finish` must follow."""
        request = endpoint.request(body, headers)
        connection = self._take_idle(endpoint) if request else None
        if connection is None:
            return Begun(endpoint, request, None, None)
        self._busy.add(connection)
        seconds = endpoint.timeout_seconds
        return Begun(endpoint, request, connection, connection.send(request, seconds, seconds))

    async def finish(self, begun: Begun) -> Answer:
        """Raises `CallFailed`."""
        endpoint, request, connection, answer = begun
        if not request:
            raise CallFailed("a header of the call cannot be sent")
        if connection is not None and answer is not None:
            try:
                return await self._wait(connection, answer)
            except CallFailed:
                if connection.has_answered or connection.timed_out:
                    raise
                # The endpoint closed it while it was idle, which says nothing about the call.
        loop = asyncio.get_running_loop()
        began = loop.time()
        connection = await self._connect(endpoint)
        left = max(0.0, endpoint.timeout_seconds - (loop.time() - began))
        self._busy.add(connection)
        return await self._wait(
            connection, connection.send(request, endpoint.timeout_seconds, left)
        )

    async def _wait(self, connection: Connection, answer: asyncio.Future[Answer]) -> Answer:
        try:
            return await connection.wait(answer)
        finally:
            self._busy.discard(connection)

    # Connections.

    def _take_idle(self, endpoint: Endpoint) -> Connection | None:
        idle = self._idle.get(endpoint.key)
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self, endpoint: Endpoint) -> Connection:
        """Connect to the first address that accepts. Each is checked as its socket is made."""
        seconds = min(endpoint.connect_seconds, endpoint.timeout_seconds)
        try:
            async with asyncio.timeout(seconds):
                infos = await self._resolve(endpoint.host, endpoint.port)
                return await self._connect_one(endpoint, infos, seconds)
        except TimeoutError:
            raise CallFailed(f"no connection within {seconds:g} seconds") from None
        except AddressRefused as exc:
            raise CallFailed(str(exc)) from exc
        except (OSError, UnicodeError) as exc:
            raise CallFailed(f"no connection: {exc}") from exc

    async def _connect_one(
        self, endpoint: Endpoint, infos: list[AddressInfo], seconds: float
    ) -> Connection:
        problem: OSError = OSError(f"{endpoint.host} has no address")
        for number, info in enumerate(infos):
            others = len(infos) - number - 1
            try:
                # An address that never answers must leave time for the others.
                async with asyncio.timeout(seconds / (others + 1) if others else None):
                    return await self._open(endpoint, info)
            except TimeoutError:
                problem = OSError(f"{info[4][0]} does not answer")
            except OSError as exc:
                problem = exc
        raise problem

    async def _open(self, endpoint: Endpoint, info: AddressInfo) -> Connection:
        loop = asyncio.get_running_loop()
        key = endpoint.key
        sock = self._guard.make_socket(info)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, info[4])
            _, connection = await loop.create_connection(
                lambda: Connection(lambda free: self._keep(key, free)),
                sock=sock,
                ssl=self._context() if endpoint.is_secure else None,
                server_hostname=endpoint.host.rstrip(".") if endpoint.is_secure else None,
            )
        except BaseException:
            sock.close()
            raise
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _keep(self, key: tuple[bool, str, int], connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(key, []).append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close what nobody has used for a while. While nothing is idle, there is no timer."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _KEEP_SECONDS
        for key, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since < oldest:
                    connection.close()
            left = [connection for connection in idle if connection.is_open]
            if left:
                self._idle[key] = left
            else:
                del self._idle[key]
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep) if self._idle else None
