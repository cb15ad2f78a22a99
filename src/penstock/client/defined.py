"""A subscription, as the call that defined it returns it."""

from __future__ import annotations

from penstock.core.stats import SubscriptionStats

__all__ = ["DefinedSubscription"]


class DefinedSubscription(SubscriptionStats, frozen=True, kw_only=True):
    """`secret` signs its callbacks. It is set only when it is new, and never shown again."""

    secret: str | None = None
