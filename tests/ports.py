"""Ports that nobody listens on."""

from __future__ import annotations

import socket
from contextlib import ExitStack

__all__ = ["free_port", "free_ports"]


def free_port() -> int:
    """For a program that cannot choose one by itself."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """No two are the same."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
