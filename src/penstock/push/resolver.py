"""Host names to addresses. Each address is checked later, when a socket is made for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from typing import Any

__all__ = ["Resolve", "Resolver"]

# Look-ups at once. A name server that hangs must not use up the threads that others need.
_LOOKUPS = 64

AddressInfo = tuple[Any, ...]
Resolve = Callable[[str, int], Awaitable[list[AddressInfo]]]
"""Host and port to what `socket.getaddrinfo` gives."""


class Resolver:
    """Asks the system, on threads of its own, with at most one look-up per name at a time.

    So a name whose look-up hangs ties up one thread, and leaves the rest to other names.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._asked: dict[tuple[str, int], asyncio.Future[list[AddressInfo]]] = {}

    async def __call__(self, host: str, port: int) -> list[AddressInfo]:
        """Raises `OSError`."""
        try:
            address = ip_address(host)
        except ValueError:
            return await self._ask(host, port)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port))]

    async def _ask(self, host: str, port: int) -> list[AddressInfo]:
        asked = self._asked.get((host, port))
        if asked is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="penstock-dns")
            asked = asyncio.get_running_loop().run_in_executor(
                self._threads, partial(_look_up, host, port)
            )
            self._asked[host, port] = asked
            asked.add_done_callback(lambda done: self._end(host, port, done))
        # A waiter that gives up must not cancel the look-up for the others.
        return await asyncio.shield(asked)

    def _end(self, host: str, port: int, done: asyncio.Future[list[AddressInfo]]) -> None:
        del self._asked[host, port]
        if not done.cancelled():
            done.exception()  # retrieved, in case nobody is waiting any more

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[AddressInfo]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
