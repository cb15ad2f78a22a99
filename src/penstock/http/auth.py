"""Who asks: HTTP Basic with two roles.

A check with bcrypt takes long, on purpose. So the verdict on a right password is remembered for
some minutes under a keyed digest of the header, and costs microseconds from then on. Wrong ones are
checked in a thread each time, a few at once and no more, and after some of them the name has to
wait.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple, Protocol

import bcrypt

__all__ = [
    "Authenticator",
    "Identity",
    "Role",
    "TooManyFailures",
    "User",
    "UserDirectory",
    "hash_password",
]

REMEMBER_SECONDS = 300
FREE_FAILURES = 5
MAX_WAIT_SECONDS = 60
# What LightQ's encoder uses: some 50 ms a check.
ROUNDS = 10
# One thread: a flood of wrong passwords takes one core at most, and none of the store's threads.
MAX_CHECKS_WAITING = 64
_MAX_REMEMBERED = 10_000
_BCRYPT_BYTES = 72


class Role(IntEnum):
    """An admin may do all that a user may."""

    USER = 1
    ADMIN = 2


class Identity(NamedTuple):
    """`requests_per_second` 0 or less is no limit."""

    name: str
    role: Role
    requests_per_second: int = 0


class User(NamedTuple):
    """`requests_per_second` 0 or less is no limit."""

    password_hash: bytes
    role: Role
    requests_per_second: int = 0


class UserDirectory(Protocol):
    def get(self, name: str) -> User | None: ...


class TooManyFailures(Exception):
    """The name must wait `seconds` before another password is tried."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many wrong passwords")
        self.seconds = seconds


def hash_password(password: str) -> bytes:
    return bcrypt.hashpw(_digestible(password), bcrypt.gensalt(ROUNDS))


def _digestible(password: str) -> bytes:
    # bcrypt refuses a longer one, or loses its end, and stops at a zero byte.
    data = password.encode()
    if len(data) <= _BCRYPT_BYTES and b"\0" not in data:
        return data
    return base64.b64encode(blake2b(data, digest_size=48).digest())


class Authenticator:
    """Checks Authorization headers against the users."""

    def __init__(self, users: UserDirectory, *, monotonic: Callable[[], float]) -> None:
        self._users = users
        self._monotonic = monotonic
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, tuple[Identity, float]] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        # Checks under way, by digest: many connections that begin at once share one.
        self._checks: dict[bytes, asyncio.Task[Identity | None]] = {}
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="penstock-passwords")
        # What an unknown name is checked against, so that it takes as long as a known one.
        self._nobody = hash_password(secrets.token_hex())

    async def identify(self, header: bytes) -> Identity | None:
        """None when the header is not right. Raises `TooManyFailures`."""
        digest = blake2b(header, key=self._key, digest_size=16).digest()
        known = self._known.get(digest)
        if known is not None:
            left = known[1] - self._monotonic()
            if left > 0:
                if left < REMEMBER_SECONDS / 2:
                    # While it is used it stays: who guesses at a name cannot lock its owner out.
                    self._remember(digest, known[0])
                return known[0]
        credentials = _parse_basic(header)
        if credentials is None:
            return None
        check = self._checks.get(digest)
        if check is None:
            if len(self._checks) >= MAX_CHECKS_WAITING:
                raise TooManyFailures(1)
            check = asyncio.ensure_future(self._check(digest, *credentials))
            self._checks[digest] = check
            check.add_done_callback(lambda _: self._checks.pop(digest, None))
        # One of those who wait may go away without taking the check from the others.
        return await asyncio.shield(check)

    def forget(self, name: str) -> None:
        """From now on no verdict counts that was reached on this name before."""
        for digest, (identity, _) in list(self._known.items()):
            if identity.name == name:
                del self._known[digest]

    async def _check(self, digest: bytes, name: str, password: str) -> Identity | None:
        now = self._monotonic()
        _, until = self._failures.get(name, (0, 0.0))
        if until > now:
            raise TooManyFailures(until - now)
        user = self._users.get(name)
        expected = user.password_hash if user else self._nobody
        is_right = await asyncio.get_running_loop().run_in_executor(
            self._threads, bcrypt.checkpw, _digestible(password), expected
        )
        # The user may have been deleted while the thread was at it.
        if is_right and user is not None and self._users.get(name) is user:
            self._failures.pop(name, None)
            identity = Identity(name, user.role, user.requests_per_second)
            self._remember(digest, identity)
            return identity
        self._note_failure(name)
        return None

    def _remember(self, digest: bytes, identity: Identity) -> None:
        if len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        self._known[digest] = (identity, self._monotonic() + REMEMBER_SECONDS)

    def _note_failure(self, name: str) -> None:
        count, _ = self._failures.get(name, (0, 0.0))
        extra = count - FREE_FAILURES
        wait = min(2.0 ** min(extra, 10), MAX_WAIT_SECONDS) if extra >= 0 else 0
        if len(self._failures) >= _MAX_REMEMBERED:
            self._failures.clear()
        self._failures[name] = (count + 1, self._monotonic() + wait)


def _parse_basic(header: bytes) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    name, found, password = decoded.partition(":")
    return (name, password) if found else None
