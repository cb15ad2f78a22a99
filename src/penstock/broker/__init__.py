"""The use cases: everything that a user can do, on any storage."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.callbacks import Callbacks

__all__ = ["Broker", "Callbacks"]
