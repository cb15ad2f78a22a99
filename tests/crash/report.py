"""What a worker says of its calls: one line of JSON before each, and one after it was answered.

A line is written whole before the next call is made, so the parent knows all that was answered
when the worker is killed.
"""

from __future__ import annotations

import msgspec

from penstock.core.message import Delivery
from tests.simulation.history import Call
from tests.simulation.sent import Sent

QUEUE = "load"
FIRST = "default"
SECOND = "second"  # waits for the first


class Publish(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """``keyed``: each message has a dedup key of its own, so that the call can be repeated."""

    call: int
    at_ns: int
    numbers: list[int]
    keyed: bool = False


class Published(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    at_ns: int
    entries: list[tuple[int, str]]


class Receive(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    at_ns: int
    subscription: str


class Received(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    at_ns: int
    deliveries: list[Delivery]


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    at_ns: int
    subscription: str
    receipts: list[str]


class Acked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    at_ns: int
    outcomes: list[str]


class Lose(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From here on the store may lose what it has not promised to keep."""

    call: int
    at_ns: int


class Lost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    at_ns: int


class Rebuild(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From here on what the store loses may be put back from its record."""

    call: int
    at_ns: int


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    at_ns: int


Line = Publish | Published | Receive | Received | Ack | Acked | Lose | Lost | Rebuild | Rebuilt


def sent(number: int, call: Call, keyed: bool = False) -> Sent:
    """The message of a number."""
    return Sent(
        number=number,
        queue=QUEUE,
        call=call,
        topic=None,
        color=None,
        kind=0,
        priority=0,
        group=None,
        dedup_key=key_of(number) if keyed else None,
        not_before_ns=None,
        expires_at_ns=None,
        padding=number * 37 % 500,
    )


def key_of(number: int) -> str:
    return f"message-{number}"


def body_of(number: int) -> bytes:
    return sent(number, Call(what="publish", asked=0, asked_ns=0)).body()


_decoder = msgspec.json.Decoder(Line)


def encode(line: Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def decode(output: bytes) -> list[Line]:
    """All the lines; the last one may have been cut off by the kill."""
    whole = output[: output.rfind(b"\n") + 1]
    return [_decoder.decode(line) for line in whole.splitlines()]
