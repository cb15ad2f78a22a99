"""Ports that nobody listens on."""

from __future__ import annotations

import socket
from random import Random

__all__ = ["free_port", "free_ports"]

# Below those that the system gives to connections, which would take one that was found.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """For a program that cannot choose one by itself."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """No two are the same."""
    found: list[int] = []
    for port in Random().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found
