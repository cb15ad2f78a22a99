"""Requests: sent, answered, and sent again where that is safe."""

from __future__ import annotations

import asyncio
import base64
import io
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import aiohttp
import msgspec
from yarl import URL

from penstock.client.errors import ClientClosed, ServerFailed, TooManyRequests, Unreachable
from penstock.client.problem import error_of
from penstock.client.retry import Failure, Retry
from penstock.errors import InvalidArgument

__all__ = ["Transport", "decode_answer"]

_Kind = TypeVar("_Kind")

_JSON = "application/json"
_PIECE_BYTES = 256 * 1024
_PASSING = frozenset({502, 503, 504})


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self.failure = failure


class Transport:
    """One HTTP session. It belongs to the event loop in which it is first used."""

    def __init__(
        self,
        url: str,
        *,
        username: str | None,
        password: str | None,
        token: str | None,
        timeout_seconds: float,
        connections: int,
        tls: ssl.SSLContext | None,
        retry: Retry,
        rng: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._base = _base(url)
        self._headers = _credentials(username, password, token)
        self._timeout_seconds = timeout_seconds
        self._connections = connections
        self._tls = tls
        self._retry = retry
        self.rng = rng
        self._sleep = sleep
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    @property
    def url(self) -> str:
        return self._base

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def look(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of one GET, whatever they are. Raises `Unreachable`."""
        try:
            return await self._exchange("GET", path, None, None, 0.0)
        except _Failed as exc:
            raise exc.failure.error from exc.failure.error.__cause__

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = _JSON,
        idempotency_key: str | None = None,
        wait_seconds: float = 0.0,
        is_repeatable: bool = False,
    ) -> bytes:
        """The body of a good answer. ``wait_seconds`` comes on top of the client's own patience.

        Every attempt has the same ``idempotency_key``. ``is_repeatable``: doing it twice is the
        same as doing it once. Raises what `error_of` makes of a refusal, `Unreachable` and
        `ClientClosed`.
        """
        headers = {"Content-Type": content_type} if body is not None else {}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        attempt = 1
        while True:
            try:
                return await self._attempt(method, path, body, headers, wait_seconds)
            except _Failed as exc:
                failure = exc.failure
            delay = self._retry.delay_seconds(
                failure, attempt, is_repeatable=is_repeatable, rng=self.rng
            )
            if delay is None:
                raise failure.error
            await self._sleep(delay)
            attempt += 1

    async def _attempt(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        wait_seconds: float,
    ) -> bytes:
        exchanged = await self._exchange(method, path, body, headers, wait_seconds)
        status, answered, answer = exchanged
        if status < 300:
            return answer
        raise _Failed(_failure(status, answered, answer))

    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        wait_seconds: float,
    ) -> tuple[int, Mapping[str, str], bytes]:
        session = self._open_session()
        patience = aiohttp.ClientTimeout(total=self._timeout_seconds + wait_seconds)
        try:
            async with session.request(
                method,
                URL(self._base + path, encoded=True),
                data=_payload(body),
                headers=headers,
                timeout=patience,
                allow_redirects=False,
            ) as response:
                return response.status, response.headers, await response.read()
        except aiohttp.ClientConnectorError as exc:
            error = Unreachable(f"no connection to {self._base}: {exc.strerror or exc}")
            error.__cause__ = exc
            # A certificate that is not trusted now will not be in a second.
            may_pass = not isinstance(exc, aiohttp.ClientSSLError)
            raise _Failed(Failure(error, is_transient=may_pass, may_be_done=False)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            reason = str(exc) or f"nothing came within {patience.total:g} seconds"
            error = Unreachable(f"no answer from {self._base}: {reason}")
            error.__cause__ = exc
            raise _Failed(Failure(error, is_transient=True, may_be_done=True)) from None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise ClientClosed("the client was closed: make a new one")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, ssl=self._tls or True),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def decode_answer(data: bytes, kind: type[_Kind]) -> _Kind:
    """Raises `ServerFailed` when it is not what such an answer looks like."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as exc:
        raise ServerFailed(f"the server's answer makes no sense: {exc}") from exc


def _base(url: str) -> str:
    parsed = URL(url)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidArgument(f"the url is {url!r}: use one like http://127.0.0.1:8080")
    if parsed.user or parsed.query_string or parsed.fragment:
        raise InvalidArgument("the url has a name, a query or a fragment: pass host and path only")
    return str(parsed).rstrip("/")


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    # In pieces, or the loop would stand still while a large one is written.
    return io.BytesIO(body) if body is not None and len(body) > _PIECE_BYTES else body


def _credentials(
    username: str | None, password: str | None, token: str | None
) -> dict[str, str] | None:
    if token:
        if username:
            raise InvalidArgument("pass either a token or a username, not both")
        if not (token.isascii() and token.isprintable()):
            raise InvalidArgument("the token holds characters that no token has")
        return {"Authorization": f"Bearer {token}"}
    if username:
        pair = f"{username}:{password or ''}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return None


def _failure(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    error = error_of(status, body)
    is_limit = isinstance(error, TooManyRequests)
    return Failure(
        error,
        is_transient=is_limit or status in _PASSING,
        may_be_done=not is_limit,
        retry_after_seconds=_seconds(headers.get("Retry-After")),
    )


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() else None
