"""Requests: sent, answered, and sent again where that is safe."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping

from yarl import URL

from penstock.client.codec import JSON
from penstock.client.connection import Answer
from penstock.client.errors import ClientClosed, TooManyRequests, Unreachable
from penstock.client.loop import belongs_elsewhere
from penstock.client.pool import CannotConnect, Pool
from penstock.client.problem import error_of
from penstock.client.retry import Failure, Retry
from penstock.errors import InvalidArgument
from penstock.shown_url import shown_url

__all__ = ["Transport"]

_EXAMPLE = "http://127.0.0.1:8080"
_PASSING = frozenset({502, 503, 504})


class _Failed(Exception):
    """An attempt that got no answer."""

    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self.failure = failure


class Transport:
    """Requests to one server. It belongs to the event loop in which it is first used."""

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
        address = URL(self._base)
        self._prefix = address.raw_path.rstrip("/")
        self._lines = [f"Host: {address.raw_authority}", *_credentials(username, password, token)]
        self._pool = Pool(
            address.host or "",
            address.port or 0,
            tls=(tls or ssl.create_default_context()) if address.scheme == "https" else None,
            limit=connections,
        )
        self._timeout_seconds = timeout_seconds
        self._retry = retry
        self.rng = rng
        self._sleep = sleep
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it belongs to another event loop than the one that is running."""
        return self._loop is not None and self._loop is not asyncio.get_running_loop()

    @property
    def url(self) -> str:
        return self._base

    async def close(self) -> None:
        self._is_closed = True
        await self._pool.close()

    async def look(self, path: str) -> Answer:
        """The answer to one GET, whatever its status. Raises `Unreachable`."""
        try:
            return await self._exchange("GET", path, None, {}, 0.0)
        except _Failed as exc:
            raise exc.failure.error from exc.failure.error.__cause__

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str | None = None,
        idempotency_key: str | None = None,
        wait_seconds: float = 0.0,
        is_repeatable: bool = False,
    ) -> bytes:
        """The body of a successful answer. ``wait_seconds`` is added to the client's own timeout.

        Every attempt has the same ``idempotency_key``. ``is_repeatable`` says that doing it twice
        is the same as doing it once. Raises what `error_of` makes of a refusal, `Unreachable` and
        `ClientClosed`.
        """
        headers = {"Content-Type": content_type} if body is not None else {}
        if accept is not None:
            headers["Accept"] = accept
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        attempt = 1
        while True:
            try:
                answer = await self._exchange(method, path, body, headers, wait_seconds)
                if answer.status < 300:
                    return answer.body
                failure = _failure(answer)
            except _Failed as exc:
                failure = exc.failure
            delay = self._retry.delay_seconds(
                failure, attempt, is_repeatable=is_repeatable, rng=self.rng
            )
            if delay is None:
                raise failure.error
            await self._sleep(delay)
            attempt += 1

    async def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        wait_seconds: float,
    ) -> Answer:
        if self._is_closed:
            raise ClientClosed("the client was closed: make a new one")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        elif self.is_elsewhere:
            raise belongs_elsewhere(self._loop)
        seconds = self._timeout_seconds + wait_seconds
        data = self._head(method, path, body, headers)
        try:
            return await self._pool.request(data if body is None else data + body, seconds)
        except CannotConnect as exc:
            if self._is_closed:
                raise _closed_meanwhile() from exc
            cause = exc.__cause__
            error = Unreachable(f"no connection to {self._base}: {_reason(cause)}")
            error.__cause__ = cause
            # A certificate that is not trusted now will not be trusted in a second.
            may_pass = not isinstance(cause, ssl.SSLError)
            raise _Failed(Failure(error, is_transient=may_pass, may_be_done=False)) from None
        except (OSError, TimeoutError) as exc:
            if self._is_closed:
                raise _closed_meanwhile() from exc
            reason = str(exc) or f"nothing came within {seconds:g} seconds"
            error = Unreachable(f"no answer from {self._base}: {reason}")
            error.__cause__ = exc
            raise _Failed(Failure(error, is_transient=True, may_be_done=True)) from None

    def _head(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", *self._lines]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if method != "GET":
            lines.append(f"Content-Length: {len(body or b'')}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _closed_meanwhile() -> ClientClosed:
    return ClientClosed("the client was closed before there was an answer: make a new one")


def _reason(cause: BaseException | None) -> str:
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({cause.verify_message}): trust its authority "
            "with the option tls, or --ca on the command line"
        )
    if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS: use http://"
    return getattr(cause, "strerror", None) or str(cause) or "it took too long"


def _base(url: str) -> str:
    try:
        parsed = URL(url)
        (parsed.host or "").encode("idna")
    except TypeError:
        raise InvalidArgument(f"the url is {url!r}: use one like {_EXAMPLE}") from None
    except ValueError as exc:
        shown = shown_url(url)
        # The reason may quote a part of it.
        reason = f" ({exc})" if shown == url else ""
        raise InvalidArgument(f"the url is {shown!r}{reason}: use one like {_EXAMPLE}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidArgument(f"the url is {shown_url(url)!r}: use one like {_EXAMPLE}")
    if parsed.user or parsed.password or parsed.query_string or parsed.fragment:
        raise InvalidArgument("the url has a name, a query or a fragment: pass host and path only")
    return str(parsed).rstrip("/")


def _credentials(username: str | None, password: str | None, token: str | None) -> list[str]:
    if token:
        if username:
            raise InvalidArgument("pass either a token or a username, not both")
        if not (token.isascii() and token.isprintable()):
            raise InvalidArgument("the token holds characters that no token has")
        return [f"Authorization: Bearer {token}"]
    if not username and password:
        raise InvalidArgument("there is a password without a username")
    if username:
        if password is None:
            raise InvalidArgument("there is a username without a password")
        if ":" in username:
            raise InvalidArgument("the username holds a colon, which HTTP Basic cannot send")
        try:
            pair = f"{username}:{password}".encode()
        except UnicodeEncodeError as exc:
            raise InvalidArgument(f"the username or the password is not text: {exc}") from None
        return [f"Authorization: Basic {base64.b64encode(pair).decode()}"]
    return []


def _failure(answer: Answer) -> Failure:
    error = error_of(answer.status, answer.body)
    is_limit = isinstance(error, TooManyRequests)
    return Failure(
        error,
        is_transient=is_limit or answer.status in _PASSING,
        may_be_done=not is_limit,
        retry_after_seconds=_seconds(answer.header(b"retry-after")),
    )


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() else None
