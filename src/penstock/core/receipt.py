"""Receipts, with which consumers settle deliveries."""

from __future__ import annotations

import msgspec

from penstock.errors import InvalidReceipt

__all__ = ["Receipt", "receipt_text"]


class Receipt(msgspec.Struct, frozen=True):
    """Names one delivery: subscription (and through it the queue), index and epoch.

    The epoch grows with every receive on the subscription and is never reused, so a stale receipt
    cannot settle a newer delivery.
    """

    subscription_id: int
    index: int
    epoch: int

    @property
    def text(self) -> str:
        return receipt_text(self.subscription_id, self.index, self.epoch)

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Raises `InvalidReceipt`."""
        try:
            receipt = cls(*map(int, text.split(".")))
        except (ValueError, TypeError):
            pass
        else:
            # int() accepts other spellings of a number; a receipt has only one.
            if receipt.text == text and "-" not in text:
                return receipt
        raise InvalidReceipt(
            f"{text[:80]!r} is not a receipt: pass the one that came with the delivery"
        )


def receipt_text(subscription_id: int, index: int, epoch: int) -> str:
    return f"{subscription_id}.{index}.{epoch}"
