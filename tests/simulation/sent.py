"""Messages as the clients send them: each body says which message it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from penstock.core.message import NewMessage, to_datetime
from tests.simulation.history import Call, Violation


@dataclass(frozen=True, kw_only=True, eq=False)
class Sent:
    """A message that a client tried to publish, and the call that carried it."""

    number: int  # never used twice in a history
    queue: str
    call: Call
    topic: str | None
    color: str | None
    kind: int
    priority: int
    group: str | None
    dedup_key: str | None
    not_before_ns: int | None
    expires_at_ns: int | None
    padding: int

    def new_message(self) -> NewMessage:
        return NewMessage(
            body=self.body(),
            attributes={"color": self.color} if self.color else {},
            topic=self.topic,
            priority=self.priority,
            not_before=to_datetime(self.not_before_ns) if self.not_before_ns else None,
            expires_at=to_datetime(self.expires_at_ns) if self.expires_at_ns else None,
            group_key=self.group,
            dedup_key=self.dedup_key,
        )

    def body(self) -> bytes:
        return msgspec.json.encode(
            {
                "number": self.number,
                "queue": self.queue,
                "kind": self.kind,
                "padding": "." * self.padding,
            }
        )


class _Body(msgspec.Struct):
    number: int


def number_in(body: bytes) -> int:
    """The number of the message that a body belongs to."""
    try:
        return msgspec.json.decode(body, type=_Body).number
    except msgspec.MsgspecError:
        raise Violation("unexpected", f"a body that nobody sent: {body[:100]!r}") from None


# What the store decides with CEL, said once more in Python.
FILTERS: dict[str, Callable[[Sent], bool]] = {
    'topic == "red"': lambda sent: sent.topic == "red",
    'topic == "blue"': lambda sent: sent.topic == "blue",
    "body.kind == 1": lambda sent: sent.kind == 1,
    "body.kind < 3 && priority < 5": lambda sent: sent.kind < 3 and sent.priority < 5,
    'attributes["color"] == "green"': lambda sent: sent.color == "green",
}


def matches(filter_text: str | None, sent: Sent) -> bool:
    return filter_text is None or FILTERS[filter_text](sent)
