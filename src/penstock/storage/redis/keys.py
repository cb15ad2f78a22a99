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
        """The names of all queues but those of dead letters, which their queues tell."""
        return f"{self.prefix}:queues"

    @property
    def archive(self) -> str:
        """The archive whose record is all here; without it Redis has lost something, or all."""
        return f"{self.prefix}:archive"

    @property
    def limits(self) -> str:
        """How many requests came in this second, by what is limited."""
        return f"{self.prefix}:limits"

    def document(self, name: str) -> str:
        """The hash of something that servers share besides messages; see `Shared`."""
        return f"{self.prefix}:document:{name}"

    def document_news(self, name: str) -> str:
        """The channel that says when it was changed."""
        return f"{self.document(name)}:news"

    def lock(self, name: str) -> str:
        """Held by the server that does what one of them must do alone.

        ``kind:queue`` is about a queue, and where that is.
        """
        kind, _, queue = name.partition(":")
        return f"{self.queue(queue)}:lock:{kind}" if queue else f"{self.prefix}:lock:{kind}"

    def queue(self, name: str) -> str:
        """The hash of a queue. Its other keys begin with the same text; see docs/redis.md."""
        source = name.removesuffix(DEAD_LETTER_SUFFIX).removesuffix(EVENTS_SUFFIX) or name
        return f"{self.prefix}:{{{source}}}{name[len(source) :]}"

    def news(self, name: str) -> str:
        """The channel that says when something may be deliverable."""
        return f"{self.queue(name)}:news"
