"""The command that follows every other: publish the lifecycle events it caused."""

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
    """Publish the untold events of each queue. Returns the events queues that got some.

    What a crash or a refused command leaves untold is published with the next command.
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
