"""The command that ends every other: what happened to messages is told, where somebody wants it."""

from __future__ import annotations

from penstock.core.lifecycle import EVENTS_CONTENT_TYPE, bodies_of
from penstock.core.machine import Machine
from penstock.core.message import Envelope
from penstock.core.new_queue import new_events_queue
from penstock.core.publishing import NewBatch, append
from penstock.core.queue import Queue

__all__ = ["tell"]

_ENVELOPE = Envelope(content_type=EVENTS_CONTENT_TYPE)
_HEAD = _ENVELOPE.encode()


def tell(machine: Machine, now_ns: int) -> list[Queue]:
    """Publish what is untold, a message a queue; the queues that got one.

    What a crash, or a command that was refused, leaves untold is told with the next one.
    """
    told = []
    for queue_id, runs in list(machine.untold.items()):
        observed = machine.queues_by_id[queue_id]
        events = observed.events or new_events_queue(machine, observed, now_ns)
        bodies = bodies_of(runs)
        count = len(bodies)
        size = sum(map(len, bodies)) + len(_HEAD) * count
        batch = NewBatch(bodies, [_ENVELOPE] * count, [_HEAD] * count, size)
        append(machine, events, batch, now_ns, {})
        told.append(events)
    return told
