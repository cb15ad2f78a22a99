"""Callbacks as the broker sees them: it makes their secrets, and does not know who calls them."""

from __future__ import annotations

import base64
import secrets
from typing import Protocol

import msgspec

from penstock.core.callback import CallbackState
from penstock.core.stats import QueueStats

__all__ = ["Callbacks", "new_secret", "with_states"]

_SECRET_BYTES = 32


class Callbacks(Protocol):
    """Whoever makes the calls, as far as the broker talks to it."""

    def definitions_changed(self, queue: str) -> None:
        """The queue, or a subscription of it, was created, altered or deleted."""
        ...

    def state(self, queue: str, subscription: str) -> CallbackState | None:
        """How the calls of a subscription are going; None if it is not called."""
        ...


def new_secret() -> str:
    """In the form that Standard Webhooks gives them."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


def with_states(stats: list[QueueStats], callbacks: Callbacks | None) -> list[QueueStats]:
    """The stats, with the state of each subscription's callback if somebody makes the calls."""
    if callbacks is None:
        return stats
    return [_with_states(queue, callbacks) for queue in stats]


def _with_states(queue: QueueStats, callbacks: Callbacks) -> QueueStats:
    if not any(one.config.callback for one in queue.subscriptions):
        return queue
    subscriptions = [
        one
        if one.config.callback is None
        else msgspec.structs.replace(one, callback=callbacks.state(queue.name, one.name))
        for one in queue.subscriptions
    ]
    return msgspec.structs.replace(queue, subscriptions=subscriptions)
