"""Receipts: what a consumer shows to settle a delivery."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import InvalidReceipt

__all__ = ["Receipt"]


class Receipt(NamedTuple):
    """Names one delivery: subscription (and through it the queue), index and epoch.

    The epoch grows with every receive of the subscription and is never used again, so a stale
    receipt cannot settle a newer delivery.
    """

    subscription_id: int
    index: int
    epoch: int

    @property
    def text(self) -> str:
        return f"{self.subscription_id}.{self.index}.{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Raises `InvalidReceipt`."""
        parts = text.split(".")
        if len(parts) == 3 and text.isascii() and len(text) <= 60:
            subscription_id, index, epoch = parts
            if subscription_id.isdigit() and index.isdigit() and epoch.isdigit():
                return cls(int(subscription_id), int(index), int(epoch))
        raise InvalidReceipt(
            f"{text[:80]!r} is not a receipt: pass the one that came with the delivery"
        )
