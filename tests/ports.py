"""Ports that nobody listens on."""

from __future__ import annotations

import socket

__all__ = ["free_port"]


def free_port() -> int:
    """For a program that cannot choose one by itself."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port
