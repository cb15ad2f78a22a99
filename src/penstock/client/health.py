"""A server's health, as the server reports it."""

from __future__ import annotations

import time
from datetime import datetime
from email.utils import parsedate_to_datetime

import msgspec

from penstock.client.codec import decode_json
from penstock.client.problem import error_of
from penstock.client.transport import Transport

__all__ = ["Component", "Health"]

_PATH = "/actuator/health"
_DESCRIPTION = "/openapi.json"


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the server. `problem` says why it is not up."""

    status: str
    problem: str | None = None
    durability: str | None = None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is UP when every component is.

    `version` is the server's, `date` the time by its clock, to the second, and
    `round_trip_seconds` how long it took to ask.
    """

    status: str
    components: dict[str, Component]
    version: str | None = None
    date: datetime | None = None
    round_trip_seconds: float = 0.0

    @property
    def is_up(self) -> bool:
        return self.status == "UP"


class _Info(msgspec.Struct, frozen=True):
    version: str


class _Description(msgspec.Struct, frozen=True):
    info: _Info


async def look_at(transport: Transport) -> Health:
    # First the long one, so that opening a connection is not part of the measured time.
    status, _, described = await transport.look(_DESCRIPTION)
    version = decode_json(described, _Description).info.version if status == 200 else None
    began = time.perf_counter()
    answer = await transport.look(_PATH)
    took = time.perf_counter() - began
    if answer.status not in (200, 503):
        raise error_of(answer.status, answer.body)
    return msgspec.structs.replace(
        decode_json(answer.body, Health),
        version=version,
        date=_date(answer.header(b"date")),
        round_trip_seconds=took,
    )


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
