"""Bearer tokens: JSON Web Tokens, signed with a key that only the servers of one store have.

A token names its user and the stamp of the password it was given for, and nothing else: what the
user may do is looked up each time. So a token can neither outlive its password nor keep a role.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import jwt
import msgspec

from penstock.clock import Clock
from penstock.core.limits import NANOSECONDS
from penstock.errors import CorruptLog, StoreUnavailable
from penstock.http.auth.shared_value import SharedValue
from penstock.http.auth.user import User
from penstock.storage.shared import Shared

__all__ = ["Claims", "Tokens", "open_tokens"]

KEY_NAME = "token.key"
KEY_BYTES = 32
# The only one that is accepted, whatever a token says about itself.
ALGORITHM = "HS256"
# Ours have less than 300. Longer ones are not even parsed.
MAX_CHARACTERS = 1024


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says. Times are in seconds since 1970."""

    sub: str
    stamp: str
    iat: int
    exp: int


class Tokens:
    """Issues tokens, and recognises its own."""

    def __init__(
        self,
        key: bytes,
        *,
        lifetime_seconds: float,
        clock: Clock,
        why_unknown: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``why_unknown`` says why there is no key yet, if there is none."""
        self.key = key
        self._why_unknown = why_unknown
        self._lifetime_ns = int(lifetime_seconds * NANOSECONDS)
        self._clock = clock

    @property
    def problem(self) -> str | None:
        """Why the key is not known yet."""
        return None if self.key else self._why_unknown()

    def _check_key(self) -> None:
        """An empty key is one that everybody has."""
        if not self.key:
            raise StoreUnavailable(f"the key of the tokens is not known yet: {self.problem}")

    def issue(self, user: User) -> str:
        """Raises `StoreUnavailable` while the key is not known."""
        self._check_key()
        now_ns = self._clock.now_ns()
        # Rounded up, so that even a short-lived token is valid at first.
        expires = -(-(now_ns + self._lifetime_ns) // NANOSECONDS)
        claims = Claims(sub=user.id, stamp=user.stamp, iat=now_ns // NANOSECONDS, exp=expires)
        return jwt.encode(msgspec.structs.asdict(claims), self.key, ALGORITHM)

    def read(self, token: str) -> Claims | None:
        """None unless it was signed with this key and it has not expired.

        Raises `StoreUnavailable` while the key is not known.
        """
        if len(token) > MAX_CHARACTERS:
            return None
        self._check_key()
        try:
            # The clock is passed in, so the library must not check times by its own.
            content = jwt.decode(
                token,
                self.key,
                [ALGORITHM],
                options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
            )
            claims = msgspec.convert(content, Claims)
        except (jwt.InvalidTokenError, msgspec.ValidationError, RecursionError):
            return None
        return None if self.is_over(claims.exp) else claims

    def is_over(self, expires: int) -> bool:
        return self._clock.now_ns() >= expires * NANOSECONDS


async def open_tokens(shared: Shared, *, lifetime_seconds: float, clock: Clock) -> Tokens:
    """Tokens signed with the key that the servers of a store share; made if there is none.

    A key is never overwritten. Raises `CorruptLog` when what is stored is not a key, and
    `StorageError`, also when other users of the machine could read or change its file.
    """

    def take(key: bytes) -> None:
        tokens.key = key

    key = SharedValue(shared, KEY_NAME, b"", decode=_decode, encode=_encode, taken=take)
    tokens = Tokens(
        b"", lifetime_seconds=lifetime_seconds, clock=clock, why_unknown=lambda: key.problem
    )
    await key.open(lambda known: known or secrets.token_bytes(KEY_BYTES))
    return tokens


def _encode(key: bytes) -> bytes:
    return key.hex().encode() + b"\n"


def _decode(content: bytes, place: str) -> bytes:
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise CorruptLog(
            f"{place} holds no key: restore it; or remove it, and a new key is made with which all "
            "tokens become void",
            file=place,
        )
    return key
