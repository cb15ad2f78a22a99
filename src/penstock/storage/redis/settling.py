"""The arguments of `settle.lua`, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from penstock.core.config import check_list, check_whole
from penstock.core.message import Delivery, parse_message_id
from penstock.core.outcome import AllDone
from penstock.core.receipt import Receipt
from penstock.core.settling import (
    MAX_EXTENSION_SECONDS,
    Outcome,
    Target,
    check_delay,
    check_extension,
    check_reason,
)
from penstock.errors import InvalidArgument, InvalidReceipt
from penstock.storage import base
from penstock.storage.redis.connection import MOST, bounded
from penstock.storage.redis.definitions import QueueDefinition, ReaderDefinition, microseconds

__all__ = ["pack_settlements", "parse_outcomes"]

_pack = msgspec.msgpack.Encoder().encode

# By the digit in the answer.
_OUTCOMES = {
    ord("0"): Outcome.DONE,
    ord("1"): Outcome.ALREADY_SETTLED,
    ord("2"): Outcome.NOT_LEASED,
    ord("3"): Outcome.NOT_FOUND,
}
_NONE = -1


def pack_settlements(
    queue: QueueDefinition,
    reader: ReaderDefinition,
    settlements: Sequence[base.Settlement],
    rng: Random,
) -> bytes:
    """Raises before anything is applied if any of them is invalid."""
    packed: list[tuple[Any, ...]] = []
    for settlement in settlements:
        match settlement:
            case base.Ack(targets=targets):
                run = _run(reader, targets)
                packed.append(("ack", {"run": run} if run else _targets(queue, reader, targets)))
            case base.Nack(targets=targets, delay_seconds=delay, reason=reason):
                check_delay(delay)
                reason = check_reason(reason)
                flat = _targets(queue, reader, targets)
                wait = _NONE if delay is None else microseconds(delay)
                has_jitter = delay is None and reader.config.backoff.jitter > 0
                randoms = [rng.random() for _ in range(len(flat) // 3)] if has_jitter else []
                packed.append(("nack", flat, wait, reason, randoms))
            case base.Extend(targets=targets, seconds=seconds, further=further):
                check_extension(seconds)
                flat = _targets(queue, reader, targets)
                latest = microseconds(MAX_EXTENSION_SECONDS) if further else _NONE
                packed.append(("extend", flat, microseconds(seconds), latest))
            case base.GiveBack(targets=targets):
                packed.append(("give back", _targets(queue, reader, targets)))
            case base.AckUpTo(index=index):
                check_whole("index", index)
                packed.append(("up to", bounded(index)))
    return _pack(packed)


def _run(reader: ReaderDefinition, targets: Sequence[Target]) -> tuple[int, int, int] | None:
    """Start, stop and epoch, for the usual case of consecutive deliveries from one receive."""
    first = targets[0] if type(targets) is list and targets else None
    if type(first) is not Delivery or type(first.index) is not int or type(first.epoch) is not int:
        return None
    start, epoch, id = first.index, first.epoch, reader.id
    if not 0 <= start < MOST or not 0 <= epoch < MOST:
        return None
    for index, target in enumerate(targets, start):
        if (
            type(target) is not Delivery
            or target.index != index
            or target.epoch != epoch
            or target.subscription_id != id
        ):
            return None
    return start, start + len(targets), epoch


def _targets(
    queue: QueueDefinition, reader: ReaderDefinition, targets: Sequence[Target]
) -> list[int]:
    """The index, epoch and time of each, flat."""
    flat: list[int] = []
    for target in check_list("targets", targets, "deliveries, receipts or message ids"):
        flat += _find(queue, reader, target)
    return flat


def _find(queue: QueueDefinition, reader: ReaderDefinition, target: Target) -> tuple[int, int, int]:
    if isinstance(target, Delivery):
        check_whole("the index of a delivery", target.index)
        receipt = Receipt(target.subscription_id, target.index, target.epoch)
    elif not isinstance(target, str):
        raise InvalidArgument(
            f"a target is {type(target).__name__}: pass deliveries, receipts or message ids"
        )
    elif len(target) == 36 and target[8] == "-":
        parsed = parse_message_id(target)
        if parsed is None or parsed.salt != queue.salt:
            return _NONE, _NONE, _NONE
        return parsed.index, _NONE, parsed.created_ms
    else:
        receipt = Receipt.parse(target)
    if receipt.subscription_id != reader.id:
        raise InvalidReceipt(
            f"receipt {receipt.text!r} does not belong to subscription {reader.name!r} "
            f"of queue {queue.name!r}"
        )
    if not 0 <= receipt.index < MOST or not 0 <= receipt.epoch < MOST:
        return _NONE, _NONE, _NONE
    return receipt.index, receipt.epoch, _NONE


def parse_outcomes(answers: list[bytes | int]) -> list[Sequence[Outcome]]:
    return [
        AllDone(answer) if isinstance(answer, int) else [_OUTCOMES[digit] for digit in answer]
        for answer in answers
    ]
