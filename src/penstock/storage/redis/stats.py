"""From the answer of `stats.lua` to `QueueStats`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.message import to_datetime
from penstock.core.stats import QueueStats, SubscriptionStats
from penstock.storage.redis.messages import MICROSECONDS

__all__ = ["parse_stats"]

_queue_config = msgspec.json.Decoder(QueueConfig).decode
_reader_config = msgspec.json.Decoder(SubscriptionConfig).decode


def _fields(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _moment(text: bytes | None) -> datetime | None:
    return None if text is None else to_datetime(int(text) * MICROSECONDS)


def parse_stats(name: str, answer: list[Any]) -> QueueStats:
    now, flat, (messages, size, letters), readers = answer
    fields = _fields(flat)
    next_index = int(fields[b"next"])
    return QueueStats(
        name=name,
        config=_queue_config(fields[b"config"]),
        created_at=to_datetime(int(fields[b"created"]) * MICROSECONDS),
        first_index=int(fields[b"first"]),
        next_index=next_index,
        messages=messages,
        bytes=size,
        dead_letters=letters,
        duplicates=int(fields.get(b"duplicates", 0)),
        purged=int(fields.get(b"purged", 0)),
        subscriptions=[
            _reader(reader.decode(), _fields(flat), places, next_index, now)
            for reader, flat, places in readers
        ],
    )


def _reader(
    name: str, fields: dict[bytes, bytes], places: list[int], next_index: int, now: int
) -> SubscriptionStats:
    in_flight, delayed, parked, held, unsettled, floor, oldest = places

    def number(field: bytes) -> int:
        return int(fields.get(field, 0))

    config = _reader_config(fields[b"config"])
    kept_out = next_index - number(b"start") - number(b"matched_total")
    return SubscriptionStats(
        name=name,
        config=config,
        created_at=to_datetime(number(b"created") * MICROSECONDS),
        ready=unsettled - in_flight - delayed - parked - held,
        in_flight=in_flight,
        delayed=delayed,
        parked=parked,
        held=held,
        acked=number(b"acked"),
        filtered=0 if config.filter is None else kept_out,
        dead_lettered=number(b"dead_lettered"),
        expired=number(b"expired"),
        skipped=number(b"skipped"),
        purged=number(b"purged"),
        delivered=number(b"delivered"),
        redelivered=number(b"redelivered"),
        nacked=number(b"nacked"),
        leases_expired=number(b"leases_expired"),
        replayed=number(b"replayed"),
        discarded=number(b"discarded"),
        returned=number(b"returned"),
        filter_errors=number(b"filter_errors"),
        cursor=max(number(b"polled"), number(b"top")),
        lowest_unacked_index=floor,
        oldest_unacked_seconds=None if oldest < 0 else max(0, now - oldest) / 1_000_000,
        last_delivery_at=_moment(fields.get(b"last_delivery")),
        last_ack_at=_moment(fields.get(b"last_ack")),
    )
