"""Creating queues: on request, for the first dead letter, or for events."""

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
    """Create a queue, with its default subscription unless ``default`` is None.

    It holds the dead letters of ``source`` or the events of ``events_of``, if either is given.
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
    """It keeps letters until they are settled. `alter_queue` can change its retention."""
    return new_queue(
        machine,
        source.name + DEAD_LETTER_SUFFIX,
        QueueConfig(),
        SubscriptionConfig(max_deliveries=None),
        now_ns,
        source=source,
    )


def new_events_queue(machine: Machine, observed: Queue, now_ns: int) -> Queue:
    """It has no default subscription: with nobody reading that, retention would keep everything."""
    name = observed.name + EVENTS_SUFFIX
    return new_queue(machine, name, QueueConfig(), None, now_ns, events_of=observed)
