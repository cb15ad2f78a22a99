"""The use cases: everything a user can do, over any storage."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.callbacks import Callbacks

__all__ = ["Broker", "Callbacks"]
