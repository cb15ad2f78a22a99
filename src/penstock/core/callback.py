"""A callback: a subscription whose messages are sent to a URL, or announced there.

Its secrets are kept apart from it: they sign the calls, and nothing that describes a subscription
shows them.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument

__all__ = [
    "CALLBACK_BACKOFF",
    "LIVE_SECRETS",
    "Callback",
    "CallbackState",
    "CallbackTarget",
    "check_secret",
    "secret_key",
]

CALLBACK_BACKOFF = Backoff(kind="exponential", base_seconds=1.0, max_seconds=300.0, jitter=0.5)
"""Used by a subscription with a callback whose own backoff does not wait at all."""

# The new one and the one before it, so that receivers have time to change over.
LIVE_SECRETS = 2

_SECRET_PREFIX = "whsec_"
_MAX_URL_CHARACTERS = 2000
_MAX_CONCURRENCY = 1000
_MAX_TIMEOUT_SECONDS = 3600


class Callback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a subscription's messages go, and how.

    - `url`: http or https.
    - `mode`: ``deliver`` posts each message, and a 2xx answer is its ack. ``notify`` posts a small
      JSON that says what there is to receive, and ignores the answer.
    - `concurrency`: calls under way at once.
    - `connect_seconds`, `timeout_seconds`: for the connection, and for a whole call.
    - `ordered`: one call at a time, and a message that fails comes again before any later one. It
      makes the subscription's `max_in_flight` 1.
    - `cloudevents`: add the headers of CloudEvents' binary mode.
    """

    url: str
    mode: Literal["deliver", "notify"] = "deliver"
    concurrency: int = 8
    connect_seconds: float = 5.0
    timeout_seconds: float = 30.0
    ordered: bool = False
    cloudevents: bool = False

    def check(self) -> None:
        """Raises `InvalidArgument`. Types were checked before."""
        _check_url(self.url)
        if self.mode not in ("deliver", "notify"):
            raise InvalidArgument(f"callback.mode is {self.mode!r}: use deliver or notify")
        if not 1 <= self.concurrency <= _MAX_CONCURRENCY:
            raise InvalidArgument(
                f"callback.concurrency is {self.concurrency}: use 1 to {_MAX_CONCURRENCY}"
            )
        for name in ("connect_seconds", "timeout_seconds"):
            value = getattr(self, name)
            if not 0 < value <= _MAX_TIMEOUT_SECONDS:
                raise InvalidArgument(
                    f"callback.{name} is {value}: use a number above 0, "
                    f"{_MAX_TIMEOUT_SECONDS} at most"
                )
        if self.ordered and self.mode == "notify":
            raise InvalidArgument("callback.ordered is for mode deliver: leave it out for notify")

    @property
    def is_serial(self) -> bool:
        return self.ordered and self.mode == "deliver"


def _check_url(url: str) -> None:
    if len(url) > _MAX_URL_CHARACTERS:
        raise InvalidArgument(
            f"callback.url has {len(url)} characters: use {_MAX_URL_CHARACTERS} at most"
        )
    if not url.isascii() or any(c <= " " or c in '\x7f\\"<>^`{|}' for c in url):
        raise InvalidArgument(
            "callback.url holds characters that a URL cannot have: encode them with %, "
            "and a name of another script as xn--..."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise InvalidArgument(f"callback.url is not a URL: {exc}") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidArgument(f"callback.url is {url[:80]!r}: use a URL of http or https")
    if not parts.hostname or port == 0:
        raise InvalidArgument(f"callback.url is {url[:80]!r}: it names no host")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument(
            "callback.url holds a user or password, which everyone who may look at the "
            "subscription would see: calls are signed instead"
        )
    if parts.fragment:
        raise InvalidArgument("callback.url has a fragment, which is never sent: leave it out")


class CallbackTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription that has a callback, with its secrets, newest first."""

    queue: str
    subscription: str
    callback: Callback
    paused: bool
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"CallbackTarget({self.queue!r}, {self.subscription!r}, {self.callback!r})"


class CallbackState(msgspec.Struct, frozen=True, kw_only=True):
    """How the calls have gone since the server started.

    `circuit` is ``open`` after repeated failures: no calls until `next_call_at`. Then it is
    ``half_open``: a single call either closes it or opens it again.
    """

    circuit: Literal["closed", "open", "half_open"]
    calls: int
    failures: int
    failures_in_a_row: int
    calls_under_way: int
    last_status: int | None
    last_error: str | None
    last_success_at: datetime | None
    next_call_at: datetime | None


def secret_key(secret: str) -> bytes:
    """The key in a secret. Raises `InvalidArgument`, which does not quote the secret."""
    text = secret.removeprefix(_SECRET_PREFIX)
    try:
        if text is not secret:
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidArgument(f"the secret is not {_SECRET_PREFIX} and base64")


def check_secret(secret: str) -> None:
    """Raises `InvalidArgument` unless it has 24 to 64 bytes, as Standard Webhooks requires."""
    if not 24 <= len(secret_key(secret)) <= 64:
        raise InvalidArgument("the secret is not of 24 to 64 bytes")
