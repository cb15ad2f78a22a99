"""One HTTP call: bounded in time and in what is read, to a checked address, without redirects."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from penstock.core.callback import Callback
from penstock.push.guard import AddressRefused, Guard

__all__ = ["Answer", "CallFailed", "Endpoint", "Resolve", "Transport"]

# No more of an answer than this is read.
MAX_ANSWER_BYTES = 4096

_AGENT = "Penstock"
_KEEP_SECONDS = 30
# Lookups under way: a name server that hangs must not hold up the threads that others need.
_LOOKUPS = 16

Resolve = Callable[[str, int, socket.AddressFamily], Awaitable[list[tuple[Any, ...]]]]
"""As `socket.getaddrinfo`: host, port and family to address infos."""


class CallFailed(Exception):
    """There was no answer. The text says why, for people."""


class Answer(NamedTuple):
    status: int
    reason: str
    retry_after: str | None
    location: str | None
    excerpt: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Endpoint:
    """A callback's URL and patience, prepared once for many calls."""

    __slots__ = ("timeout", "url")

    def __init__(self, callback: Callback) -> None:
        self.url = URL(callback.url, encoded=True)
        self.timeout = aiohttp.ClientTimeout(
            total=callback.timeout_seconds, connect=callback.connect_seconds
        )


class Transport:
    """Connections are kept and shared. Close it."""

    def __init__(
        self,
        guard: Guard,
        *,
        tls: ssl.SSLContext | bool = True,
        resolve: Resolve | None = None,
    ) -> None:
        self._resolver = _Resolver(resolve)
        connector = aiohttp.TCPConnector(
            limit=0,  # whoever calls is counted elsewhere
            ssl=tls,
            resolver=self._resolver,
            socket_factory=guard.make_socket,
            keepalive_timeout=_KEEP_SECONDS,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": _AGENT, "Accept": "*/*", "Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
            read_bufsize=MAX_ANSWER_BYTES,
        )

    async def close(self) -> None:
        await self._session.close()

    async def post(self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Raises `CallFailed`."""
        try:
            response = await self._session.post(
                endpoint.url,
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=endpoint.timeout,
            )
        except TimeoutError as exc:
            raise CallFailed(_late(endpoint, exc)) from exc
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise CallFailed(_problem(exc)) from exc
        return await _read(response)


async def _read(response: aiohttp.ClientResponse) -> Answer:
    """The status is known by now: whatever becomes of the rest, it counts."""
    excerpt = b""
    content = response.content
    try:
        while len(excerpt) < MAX_ANSWER_BYTES and not content.at_eof():
            excerpt += await content.read(MAX_ANSWER_BYTES - len(excerpt))
    except (aiohttp.ClientError, OSError):
        pass
    finally:
        if content.at_eof():
            response.release()
        else:
            response.close()
    headers = response.headers
    return Answer(
        response.status,
        response.reason or "",
        headers.get("Retry-After"),
        headers.get("Location"),
        excerpt,
    )


def _late(endpoint: Endpoint, error: TimeoutError) -> str:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection within {endpoint.timeout.connect:g} seconds"
    return f"no answer within {endpoint.timeout.total:g} seconds"


def _problem(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AddressRefused):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {error}"


class _Resolver(AbstractResolver):
    """Looks names up, on threads of its own. What comes of it is judged at connect time."""

    def __init__(self, resolve: Resolve | None) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._lookup = resolve or self._look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        infos = await self._lookup(host, port, family)
        return [
            ResolveResult(
                hostname=host,
                # With the scope of a link-local address, if it has one.
                host=address[0],
                port=address[1],
                family=family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for family, _, protocol, _, address in infos
        ]

    async def _look_up(
        self, host: str, port: int, family: socket.AddressFamily
    ) -> list[tuple[Any, ...]]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="penstock-dns")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads,
            lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM),
        )

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
