"""Requests to a server, with the standard library alone: one persistent connection per process.

A Python worker of Spark runs its tasks one after the other, so one connection is enough, and
without asyncio there is no event loop to start for each task.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import InvalidArgument
from penstock.spark.errors import Refused, Unreachable
from penstock.spark.options import Connection

__all__ = ["ARROW", "PACKED", "Interrupted", "Server", "server_of"]

ARROW = "application/vnd.apache.arrow.stream"
PACKED = "application/msgpack"
_JSON = "application/json"
_RENEW = (
    ". A token counts for a while only: get a new one (`penstock token`) and start again with it; "
    "a stream goes on from its checkpoint"
)
_PASSING = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0

Data = bytes | memoryview | None


class Interrupted(Exception):
    """The answer did not come, or is incomplete: another attempt may succeed."""


class Server:
    """Not thread-safe. All requests must be idempotent, because they may be sent twice."""

    def __init__(self, connection: Connection) -> None:
        self._options = connection
        self._parts = urlsplit(connection.url)
        self._headers = _authorization(connection)
        self._connection: http.client.HTTPConnection | None = None
        self._date: str | None = None

    @property
    def time(self) -> datetime | None:
        """The server's clock when it last answered, to the second; None if it did not say."""
        return parsedate_to_datetime(self._date) if self._date else None

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Like `send`, with JSON both ways."""
        if body is None:
            answer = self.send(method, path, None, {})
        else:
            answer = self.send(method, path, json.dumps(body).encode(), {"Content-Type": _JSON})
        return json.loads(answer) if answer else None

    def send(self, method: str, path: str, data: Data, headers: dict[str, str]) -> bytes:
        """Send a request and return the body of the answer.

        Retries for up to `retrySeconds`. Raises `Refused` and `Unreachable`.
        """
        began = time.monotonic()
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                with self.open(method, path, data, headers) as response:
                    return response.read()
            except Interrupted as exc:
                left = began + self._options.retry_seconds - time.monotonic()
                if left <= 0:
                    raise Unreachable(
                        f"{self._options.url} could not do it for "
                        f"{self._options.retry_seconds:g} seconds (retrySeconds): {exc}"
                    ) from exc
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    @contextmanager
    def open(
        self, method: str, path: str, data: Data, headers: dict[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """Make one attempt; yields the response, whose body is yet to be read.

        Raises `Interrupted` for transient errors; `Refused`, `Unreachable` for a certificate that
        is not trusted, and `InvalidArgument` for a `caFile` that has none. After an error, or if
        the body is not read to its end, the connection is closed.
        """
        is_done = False
        try:
            response = self._ask(method, path, data, headers)
            self._date = response.getheader("Date")
            if response.status >= 400:
                raise _refusal(response.status, response.read())
            yield response
            is_done = response.isclosed()
        except ssl.SSLCertVerificationError as exc:
            raise Unreachable(
                f"no connection to {self._options.url}: its certificate is not trusted "
                f"({exc.verify_message}): name a file with its authority as caFile"
            ) from exc
        except (OSError, http.client.HTTPException) as exc:
            raise Interrupted(str(exc) or type(exc).__name__) from exc
        finally:
            if not is_done:
                self.close()

    def _ask(
        self, method: str, path: str, data: Data, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        target = self._parts.path + path
        every = self._headers | headers
        if self._connection is not None:
            # The server may have closed an idle connection, which is not a failure.
            try:
                self._connection.request(method, target, data, every)
                return self._connection.getresponse()
            except (OSError, http.client.HTTPException):
                self.close()
        self._connection = self._connect()
        self._connection.request(method, target, data, every)
        return self._connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        host = self._parts.hostname or ""
        patience = self._options.timeout_seconds or None
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, self._parts.port, timeout=patience, context=_trust(self._options.ca_file)
            )
        return http.client.HTTPConnection(host, self._parts.port, timeout=patience)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as exc:
        raise InvalidArgument(
            f"caFile is {ca_file!r}, from which no certificate can be read ({exc}): name a PEM "
            "file that every machine of Spark has"
        ) from exc


def _refusal(status: int, body: bytes) -> Exception:
    try:
        problem = json.loads(body)
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        code, detail = "", body[:200].decode("utf-8", "replace")
    text = f"{detail or 'the server gave no reason'} (status {status})"
    if status == HTTPStatus.UNAUTHORIZED:
        text += _RENEW
    if status in _PASSING:
        return Interrupted(f"{code}: {text}")
    return Refused(text, reason=code, status=status)


def _authorization(connection: Connection) -> dict[str, str]:
    if connection.token:
        return {"Authorization": f"Bearer {connection.token}"}
    if connection.username:
        both = f"{connection.username}:{connection.password or ''}".encode()
        return {"Authorization": f"Basic {base64.b64encode(both).decode()}"}
    return {}


_servers: dict[Connection, Server] = {}


def server_of(connection: Connection) -> Server:
    """This process's `Server`, whose connection is reused from task to task."""
    if connection not in _servers:
        _servers[connection] = Server(connection)
    return _servers[connection]
