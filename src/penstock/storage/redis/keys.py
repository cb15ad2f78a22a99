"""How keys are named. A queue, its dead letters and its events are in one slot of a cluster."""

from __future__ import annotations

from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX

__all__ = ["Keys"]


class Keys:
    """`prefix` keeps several installations in one Redis apart."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @property
    def queues(self) -> str:
        """The set of names of all queues, without dead-letter queues."""
        return f"{self.prefix}:queues"

    @property
    def archive(self) -> str:
        """The archive whose record is complete here. If the key is missing, Redis has lost data."""
        return f"{self.prefix}:archive"

    @property
    def limits(self) -> str:
        """The counts of requests in this second, by limit."""
        return f"{self.prefix}:limits"

    def document(self, name: str) -> str:
        """The hash of a document that servers share; see `Shared`."""
        return f"{self.prefix}:document:{name}"

    def document_news(self, name: str) -> str:
        """The channel that announces its changes."""
        return f"{self.document(name)}:news"

    def lock(self, name: str) -> str:
        """A lock for work that one server must do alone.

        ``kind:queue`` is for one queue, and in its slot.
        """
        kind, _, queue = name.partition(":")
        return f"{self.queue(queue)}:lock:{kind}" if queue else f"{self.prefix}:lock:{kind}"

    def queue(self, name: str) -> str:
        """The hash of a queue, whose key is the prefix of its other keys; see docs/redis.md."""
        source = name.removesuffix(DEAD_LETTER_SUFFIX).removesuffix(EVENTS_SUFFIX) or name
        return f"{self.prefix}:{{{source}}}{name[len(source) :]}"

    def news(self, name: str) -> str:
        """The channel that announces that something may be deliverable."""
        return f"{self.queue(name)}:news"
