"""Callbacks: messages of a subscription are sent to a URL, or announced there."""

from __future__ import annotations

from penstock.push.dispatcher import Dispatcher
from penstock.push.guard import LOOPBACK, Guard, parse_networks

__all__ = ["LOOPBACK", "Dispatcher", "Guard", "parse_networks"]
