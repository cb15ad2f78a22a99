"""Callbacks as the broker sees them: it makes their secrets, and does not know who calls them."""

from __future__ import annotations

import base64
import secrets
from typing import Protocol

import msgspec

from penstock.core.callback import CallbackState
from penstock.core.stats import QueueStats, SubscriptionStats

__all__ = ["Callbacks", "new_secret", "with_state", "with_states"]

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
    return [
        msgspec.structs.replace(
            queue,
            subscriptions=[with_state(queue.name, one, callbacks) for one in queue.subscriptions],
        )
        for queue in stats
    ]


def with_state(
    queue: str, stats: SubscriptionStats, callbacks: Callbacks | None
) -> SubscriptionStats:
    """Like `with_states`, for one subscription."""
    if callbacks is None or stats.config.callback is None:
        return stats
    return msgspec.structs.replace(stats, callback=callbacks.state(queue, stats.name))
