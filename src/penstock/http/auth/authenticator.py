"""Who a caller is: by a name and a password (HTTP Basic), or by a token that was given for them.

A check with bcrypt is slow on purpose. So a header that was right is remembered for some minutes,
under a keyed digest of it, and takes microseconds from then on. The user is looked up again each
time: what is remembered counts only while the user exists and has the same password. Users are in
memory, and other servers send news of what they change; before a password is checked or a token
refused, the store is asked as well. Wrong passwords are checked every time, in a thread, and after
a few of them the name has to wait. A name that nobody has is treated in just the same way, so that
nothing tells the two apart.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple, Protocol, TypeVar

from penstock.errors import StoreUnavailable
from penstock.http.auth.passwords import Passwords, TooManyPasswords, hash_password
from penstock.http.auth.tokens import Tokens
from penstock.http.auth.user import Role, User, canonical

__all__ = ["Authenticator", "Role", "UserDirectory"]

REMEMBER_SECONDS = 300
FREE_FAILURES = 5
MAX_WAIT_SECONDS = 60
_MAX_REMEMBERED = 10_000

T = TypeVar("T")


class UserDirectory(Protocol):
    """What the authenticator needs to know about users."""

    def get(self, username: str) -> User | None: ...

    def by_id(self, id: str) -> User | None: ...

    async def refresh(self) -> None:
        """Know whom other servers have added or changed until now.

        Raises `StoreUnavailable` if nobody is known yet but those that `get` gives.
        """
        ...


class _Verdict(NamedTuple):
    """`until` is on the monotonic clock. `expires` is when a token does, in seconds since 1970."""

    user_id: str
    stamp: str
    until: float
    expires: int | None


class Authenticator:
    """Checks Authorization headers against the users."""

    def __init__(
        self,
        users: UserDirectory,
        *,
        passwords: Passwords,
        tokens: Tokens,
        monotonic: Callable[[], float],
    ) -> None:
        self._users = users
        self._passwords = passwords
        self._tokens = tokens
        self._monotonic = monotonic
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, _Verdict] = {}
        self._failures: dict[bytes, tuple[int, float]] = {}
        # Checks under way, by digest: many connections that start at once share one.
        self._checks: dict[bytes, asyncio.Task[User | None]] = {}
        # What an unknown name is checked against, so that it takes as long as a known one.
        self._nobody = hash_password(secrets.token_hex())

    def recall(self, header: bytes) -> User | None:
        """The user, if the header was found right not long ago. Otherwise ask `identify`."""
        return self._recall(self._digest(header))

    async def identify(self, header: bytes) -> User | None:
        """None when the header is not right. Raises `TooManyPasswords`, or `StoreUnavailable`."""
        digest = self._digest(header)
        user = self._recall(digest)
        if user is not None:
            return user
        token = _parse_token(header)
        if token is not None:
            return await self._read(digest, token)
        credentials = _parse_basic(header)
        if credentials is None:
            return None
        user = await self.check(*credentials)
        if user is not None:
            self._remember(digest, user, None)
        return user

    async def check(self, username: str, password: str) -> User | None:
        """The user, if this is its password now.

        Raises `TooManyPasswords`, and `StoreUnavailable` if it is not known who that is.
        """
        digest = self._digest(f"{len(username)} {username}{password}".encode())
        check = self._checks.get(digest)
        if check is None:
            check = asyncio.ensure_future(self._check(username, password))
            self._checks[digest] = check
            check.add_done_callback(lambda done: self._end(digest, done))
        # A waiter that goes away must not cancel the check for the others.
        return await asyncio.shield(check)

    def _end(self, digest: bytes, done: asyncio.Task[User | None]) -> None:
        del self._checks[digest]
        if not done.cancelled():
            done.exception()  # retrieved, in case nobody is waiting any more

    async def _check(self, username: str, password: str) -> User | None:
        try:
            await self._users.refresh()
        except StoreUnavailable:
            if self._users.get(username) is None:
                raise
        user = self._users.get(username)
        # Not by the name itself: it may be long, and there may be two ways to write it.
        who = self._digest(canonical(username).encode())
        left = self._failures.get(who, (0, 0.0))[1] - self._monotonic()
        if left > 0:
            raise TooManyPasswords("too many wrong passwords: wait before the next", left)
        expected = user.password_hash if user else self._nobody
        is_right = await self._passwords.is_right(password, expected)
        if is_right and user is not None:
            self._failures.pop(who, None)
            # In the meantime the user may have been removed, or given another password.
            return self._current(user.id, user.stamp)
        self._note_failure(who)
        return None

    async def _read(self, digest: bytes, token: str) -> User | None:
        claims = self._tokens.read(token)
        if claims is None:
            return None
        user = self._current(claims.sub, claims.stamp)
        if user is None:
            # Another server may have just added the user, and issued the token.
            await self._users.refresh()
            user = self._current(claims.sub, claims.stamp)
        if user is not None:
            self._remember(digest, user, claims.exp)
        return user

    def _recall(self, digest: bytes) -> User | None:
        known = self._known.get(digest)
        if known is None:
            return None
        left = known.until - self._monotonic()
        user = self._current(known.user_id, known.stamp) if left > 0 else None
        if user is None or (known.expires is not None and self._tokens.is_over(known.expires)):
            del self._known[digest]
            return None
        if left < REMEMBER_SECONDS / 2:
            # While it is used it stays: someone who guesses passwords cannot lock its owner out.
            self._remember(digest, user, known.expires)
        return user

    def _current(self, id: str, stamp: str) -> User | None:
        user = self._users.by_id(id)
        return user if user is not None and user.stamp == stamp else None

    def _remember(self, digest: bytes, user: User, expires: int | None) -> None:
        until = self._monotonic() + REMEMBER_SECONDS
        _put(self._known, digest, _Verdict(user.id, user.stamp, until, expires))

    def _note_failure(self, who: bytes) -> None:
        count, _ = self._failures.get(who, (0, 0.0))
        extra = count - FREE_FAILURES
        wait = min(2.0 ** min(extra, 10), MAX_WAIT_SECONDS) if extra >= 0 else 0
        _put(self._failures, who, (count + 1, self._monotonic() + wait))

    def _digest(self, data: bytes) -> bytes:
        return blake2b(data, key=self._key, digest_size=16).digest()


def _put(table: dict[bytes, T], key: bytes, value: T) -> None:
    """Add an entry, and drop the oldest one if there are too many."""
    table.pop(key, None)
    if len(table) >= _MAX_REMEMBERED:
        del table[next(iter(table))]
    table[key] = value


def _parse_token(header: bytes) -> str | None:
    """What follows `Bearer`, or the whole header if it looks like a token."""
    scheme, _, rest = header.partition(b" ")
    token = rest.strip() if scheme.lower() == b"bearer" else header
    if token.count(b".") != 2 or b" " in token:
        return None
    return token.decode("ascii") if token.isascii() else None


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
