"""Names to addresses. What comes of it is judged when a socket for an address is made."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any

__all__ = ["Resolve", "Resolver"]

# Look-ups under way: a name server that hangs must not hold up the threads that others need.
_LOOKUPS = 16

AddressInfo = tuple[Any, ...]
Resolve = Callable[[str, int], Awaitable[list[AddressInfo]]]
"""Host and port to what `socket.getaddrinfo` gives."""


class Resolver:
    """Asks the system, on threads of its own."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    async def __call__(self, host: str, port: int) -> list[AddressInfo]:
        """Raises `OSError`."""
        try:
            address = ip_address(host)
        except ValueError:
            return await self._ask(host, port)
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port))]

    async def _ask(self, host: str, port: int) -> list[AddressInfo]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="penstock-dns")
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        )

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
