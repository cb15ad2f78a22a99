"""Answers that only wrap what was asked for."""

from __future__ import annotations

import msgspec

from penstock.client.message import Delivery, Message, ViewedMessage
from penstock.core.graph import HeldMessage
from penstock.core.stats import QueueStats, SubscriptionStats

__all__ = [
    "Deliveries",
    "Found",
    "Held",
    "LoggedIn",
    "Messages",
    "Queues",
    "Subscriptions",
    "Viewed",
]


class Queues(msgspec.Struct, frozen=True):
    queues: list[QueueStats]


class Subscriptions(msgspec.Struct, frozen=True):
    subscriptions: list[SubscriptionStats]
    next: str | None


class Messages(msgspec.Struct, frozen=True):
    messages: list[Message]


class Found(msgspec.Struct, frozen=True):
    messages: list[Message | None]


class Viewed(msgspec.Struct, frozen=True):
    messages: list[ViewedMessage]


class Deliveries(msgspec.Struct, frozen=True):
    deliveries: list[Delivery]


class Held(msgspec.Struct, frozen=True):
    indexes: list[int]
    messages: list[HeldMessage]


class LoggedIn(msgspec.Struct, frozen=True):
    token: str
