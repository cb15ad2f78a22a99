"""Sees every request that a client sends to its server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from penstock.client import AsyncClient
from penstock.client.connection import Answer


class Recorder:
    def __init__(self, client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.keys: list[str | None] = []  # the idempotency key of each
        transport = client._transport
        exchange = transport._exchange

        async def recorded(
            method: str,
            path: str,
            body: bytes | None,
            headers: Mapping[str, str],
            wait_seconds: float,
        ) -> Answer:
            self.keys.append(headers.get("Idempotency-Key"))
            is_packed = headers.get("Content-Type", "").endswith("msgpack")
            decode = msgspec.msgpack.decode if is_packed else msgspec.json.decode
            self.requests.append((path.rpartition("/")[2], None if body is None else decode(body)))
            return await exchange(method, path, body, headers, wait_seconds)

        monkeypatch.setattr(transport, "_exchange", recorded)

    def bodies(self, call: str) -> list[Any]:
        """Of the requests whose path ends so."""
        return [body for name, body in self.requests if name == call]
