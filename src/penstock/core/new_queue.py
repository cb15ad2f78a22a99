"""How a queue comes into being: on request, or because its first dead letter needs one."""

from __future__ import annotations

from penstock.core import events as ev
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX
from penstock.core.machine import Machine
from penstock.core.queue import Queue

__all__ = ["new_dead_letter_queue", "new_events_queue", "new_queue"]


def new_queue(
    machine: Machine,
    name: str,
    config: QueueConfig,
    default: SubscriptionConfig | None,
    now_ns: int,
    *,
    source: Queue | None = None,
    events_of: Queue | None = None,
) -> Queue:
    """With its default subscription, if it has one.

    ``source`` is the queue whose dead letters it will hold, ``events_of`` the one whose events.
    """
    machine.emit(
        ev.QueueCreated(
            at_ns=now_ns,
            queue_id=machine.new_id(),
            name=name,
            config=config,
            salt=machine.rng.getrandbits(32),
            dead_letters_of=source.id if source else None,
            default=default,
            events_of=events_of.id if events_of else None,
        )
    )
    return machine.queues[name]


def new_dead_letter_queue(machine: Machine, source: Queue, now_ns: int) -> Queue:
    """Keeps its letters until they are settled; an own retention can be set with `alter_queue`."""
    return new_queue(
        machine,
        source.name + DEAD_LETTER_SUFFIX,
        QueueConfig(),
        SubscriptionConfig(max_deliveries=None),
        now_ns,
        source=source,
    )


def new_events_queue(machine: Machine, observed: Queue, now_ns: int) -> Queue:
    """It has no subscription of its own: nobody would read that, and retention keep all for it."""
    name = observed.name + EVENTS_SUFFIX
    return new_queue(machine, name, QueueConfig(), None, now_ns, events_of=observed)
