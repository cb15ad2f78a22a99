"""Passwords: hashed and checked with bcrypt, which is slow on purpose.

All of it happens in one thread, so that a flood of passwords takes one core at most, none of the
store's threads, and never the event loop. Only so many may wait for that thread; more are refused.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from typing import TypeVar

import bcrypt

from penstock.http.errors import Refused

__all__ = ["MAX_WAITING", "Passwords", "TooManyPasswords", "hash_password", "is_password"]

# As LightQ's encoder has it: some 50 ms per check.
ROUNDS = 10
MAX_WAITING = 64
_BCRYPT_BYTES = 72

T = TypeVar("T")


class TooManyPasswords(Refused):
    """No password is checked now: wait for `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        headers = {b"Retry-After": str(int(seconds) + 1).encode()}
        super().__init__(HTTPStatus.TOO_MANY_REQUESTS, message, headers)
        self.seconds = seconds


def hash_password(password: str) -> str:
    return bcrypt.hashpw(_digestible(password), bcrypt.gensalt(ROUNDS)).decode()


def is_password(password: str, hashed: str) -> bool:
    return bcrypt.checkpw(_digestible(password), hashed.encode())


def _digestible(password: str) -> bytes:
    # bcrypt refuses or truncates a longer one, and stops at a zero byte.
    data = password.encode()
    if len(data) <= _BCRYPT_BYTES and b"\0" not in data:
        return data
    return base64.b64encode(blake2b(data, digest_size=48).digest())


class Passwords:
    """The thread that hashes and checks, and those that wait for it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-passwords")
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Raises `TooManyPasswords`."""
        return await self._run(partial(hash_password, password))

    async def is_right(self, password: str, hashed: str) -> bool:
        """Raises `TooManyPasswords`."""
        return await self._run(partial(is_password, password, hashed))

    async def _run(self, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise TooManyPasswords("too many passwords are being checked: try again", 1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1
