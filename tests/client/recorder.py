"""Sees every request that a client sends to its server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.client import AsyncClient


class Recorder:
    def __init__(self, client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[tuple[str, Any]] = []
        transport = client._transport
        attempt = transport._attempt

        async def recorded(
            method: str, path: str, body: bytes | None, content_type: str, wait_seconds: float
        ) -> bytes:
            self.requests.append(
                (path.rpartition("/")[2], None if body is None else msgspec.json.decode(body))
            )
            return await attempt(method, path, body, content_type, wait_seconds)

        monkeypatch.setattr(transport, "_attempt", recorded)

    def bodies(self, call: str) -> list[Any]:
        """Of the requests whose path ends so."""
        return [body for name, body in self.requests if name == call]
