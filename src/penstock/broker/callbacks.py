"""Callbacks as the broker sees them: it keeps their secrets, and knows nobody who calls them."""

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
    """Who calls callbacks, for those who look at a subscription."""

    def definitions_changed(self) -> None:
        """Queues or subscriptions are not what they were."""
        ...

    def state(self, queue: str, subscription: str) -> CallbackState | None: ...


def new_secret() -> str:
    """As Standard Webhooks writes them."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


def with_states(stats: list[QueueStats], callbacks: Callbacks | None) -> list[QueueStats]:
    """The stats, with how the callback of each subscription does, where somebody calls them."""
    if callbacks is None:
        return stats
    return [
        msgspec.structs.replace(
            queue,
            subscriptions=[
                one
                if one.config.callback is None
                else msgspec.structs.replace(one, callback=callbacks.state(queue.name, one.name))
                for one in queue.subscriptions
            ],
        )
        for queue in stats
    ]
