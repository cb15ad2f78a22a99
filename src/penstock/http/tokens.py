"""Bearer tokens: JSON Web Tokens, signed with a key that is this server's alone.

A token names its user and the stamp of the password it was given for, and nothing else: what the
user may do is looked up each time. So a token can neither outlive its password nor keep a role.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

import jwt
import msgspec

from penstock.clock import Clock
from penstock.core.limits import NANOSECONDS
from penstock.errors import CorruptLog, StorageError
from penstock.http.private_file import write_private
from penstock.http.user import User

__all__ = ["Claims", "Tokens", "open_key"]

KEY_FILE = "token.key"
KEY_BYTES = 32
# The only one that is accepted, whatever a token says of itself.
ALGORITHM = "HS256"
# Ours have less than 300. The head of a longer one is not even parsed.
MAX_CHARACTERS = 1024


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says. Times are in seconds since 1970."""

    sub: str
    stamp: str
    iat: int
    exp: int


class Tokens:
    """Issues tokens, and tells its own from all others."""

    def __init__(self, key: bytes, *, lifetime_seconds: float, clock: Clock) -> None:
        self._key = key
        self._lifetime_ns = int(lifetime_seconds * NANOSECONDS)
        self._clock = clock

    def issue(self, user: User) -> str:
        now_ns = self._clock.now_ns()
        # Rounded up, so that even a short life is not over before it began.
        expires = -(-(now_ns + self._lifetime_ns) // NANOSECONDS)
        claims = Claims(sub=user.id, stamp=user.stamp, iat=now_ns // NANOSECONDS, exp=expires)
        return jwt.encode(msgspec.structs.asdict(claims), self._key, ALGORITHM)

    def read(self, token: str) -> Claims | None:
        """None unless this server signed it and it has not expired."""
        if len(token) > MAX_CHARACTERS:
            return None
        try:
            # The clock is ours, so the library must not look at its own.
            content = jwt.decode(
                token,
                self._key,
                [ALGORITHM],
                options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
            )
            claims = msgspec.convert(content, Claims)
        except (jwt.InvalidTokenError, msgspec.ValidationError, RecursionError):
            return None
        return None if self.is_over(claims.exp) else claims

    def is_over(self, expires: int) -> bool:
        return self._clock.now_ns() >= expires * NANOSECONDS


def open_key(directory: Path | None) -> bytes:
    """The key of a data directory, made if there is none. Without a directory it is a new one.

    Raises `StorageError` when others could read or change the file, `CorruptLog` when it holds no
    key. It is never overwritten.
    """
    if directory is None:
        return secrets.token_bytes(KEY_BYTES)
    path = directory / KEY_FILE
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            key = secrets.token_bytes(KEY_BYTES)
            write_private(path, key.hex().encode() + b"\n")
            return key
    except OSError as exc:
        raise StorageError(f"{path} cannot be used: {exc.strerror}") from exc


def _read(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise CorruptLog(f"{path} is no plain file: remove it, and a new key is made")
        if stat.S_IMODE(mode) & 0o077:
            raise StorageError(
                f"{path} signs the tokens, and its mode {stat.S_IMODE(mode):o} lets others at it: "
                "make it 600; or, if somebody may have seen it, remove it, and a new key is made "
                "with which all tokens become void"
            )
        content = file.read(4 * KEY_BYTES)
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise CorruptLog(
            f"{path} holds no key: restore it; or remove it, and a new key is made with which all "
            "tokens become void",
            file=str(path),
        )
    return key
