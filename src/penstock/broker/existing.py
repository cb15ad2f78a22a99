"""What exists already, compared with what somebody wants to exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.core.config import SubscriptionConfig
from penstock.core.stats import QueueStats, SubscriptionStats
from penstock.errors import QueueExists, SubscriptionExists

__all__ = ["check_queue", "check_subscription"]


def check_queue(found: QueueStats, wanted: Mapping[str, Any]) -> None:
    """Raises `QueueExists`. Settings that are not named may have any value."""
    other = [key for key, value in wanted.items() if getattr(found.config, key) != value]
    if other:
        raise QueueExists(
            f"queue {found.name!r} exists, with another {', '.join(other)}: alter it, or leave "
            "these settings out"
        )


def check_subscription(found: SubscriptionStats, wanted: SubscriptionConfig) -> None:
    """Raises `SubscriptionExists`. `paused` is not compared: it is a state more than a setting."""
    other = [
        key
        for key, value in msgspec.structs.asdict(wanted).items()
        if key != "paused" and getattr(found.config, key) != value
    ]
    if other:
        raise SubscriptionExists(
            f"the subscription {found.name!r} exists with other settings: {', '.join(other)}; "
            "alter it, or ask for it as it is"
        )
