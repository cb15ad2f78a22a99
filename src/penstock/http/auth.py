"""Who asks: HTTP Basic with two roles.

A check with bcrypt takes a tenth of a second, on purpose. So the verdict on a right password is
remembered for some minutes under a keyed digest of the header, and costs microseconds from then on.
Wrong ones are checked in a thread each time, and after a few of them the name has to wait.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from collections.abc import Callable
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

import bcrypt

__all__ = ["Authenticator", "Identity", "Role", "User"]

REMEMBER_SECONDS = 300
FREE_FAILURES = 5
MAX_WAIT_SECONDS = 60
_MAX_REMEMBERED = 10_000


class Role(IntEnum):
    """An admin may do all that a user may."""

    USER = 1
    ADMIN = 2


class Identity(NamedTuple):
    name: str
    role: Role


class User(NamedTuple):
    password_hash: bytes
    role: Role


class TooManyFailures(Exception):
    """The name must wait `seconds` before another password is tried."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many wrong passwords")
        self.seconds = seconds


def hash_password(password: str) -> bytes:
    return bcrypt.hashpw(_digestible(password), bcrypt.gensalt())


def _digestible(password: str) -> bytes:
    # bcrypt looks at 72 bytes and no more: a longer password must not lose its end.
    data = password.encode()
    return data if len(data) <= 72 else base64.b64encode(blake2b(data).digest())[:72]


class Authenticator:
    """Checks Authorization headers against a set of users."""

    def __init__(self, users: dict[str, User], *, monotonic: Callable[[], float]) -> None:
        self._users = users
        self._monotonic = monotonic
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, tuple[Identity, float]] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        # What an unknown name is checked against, so that it takes as long as a known one.
        self._nobody = hash_password(secrets.token_hex())

    async def identify(self, header: bytes) -> Identity | None:
        """None when the header is not right. Raises `TooManyFailures`."""
        digest = blake2b(header, key=self._key, digest_size=16).digest()
        known = self._known.get(digest)
        now = self._monotonic()
        if known is not None and known[1] > now:
            return known[0]
        credentials = _parse_basic(header)
        if credentials is None:
            return None
        identity = await self._check(*credentials)
        if identity is not None:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[digest] = (identity, now + REMEMBER_SECONDS)
        return identity

    async def _check(self, name: str, password: str) -> Identity | None:
        now = self._monotonic()
        count, until = self._failures.get(name, (0, 0.0))
        if until > now:
            raise TooManyFailures(until - now)
        user = self._users.get(name)
        expected = user.password_hash if user else self._nobody
        is_right = await asyncio.get_running_loop().run_in_executor(
            None, bcrypt.checkpw, _digestible(password), expected
        )
        if is_right and user is not None:
            self._failures.pop(name, None)
            return Identity(name, user.role)
        extra = count - FREE_FAILURES
        wait = min(2.0**extra, MAX_WAIT_SECONDS) if extra >= 0 else 0
        if len(self._failures) >= _MAX_REMEMBERED:
            self._failures.clear()
        self._failures[name] = (count + 1, now + wait)
        return None


def _parse_basic(header: bytes) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(b" ")
    if not hmac.compare_digest(scheme.lower(), b"basic"):
        return None
    try:
        name, found, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if found else None
