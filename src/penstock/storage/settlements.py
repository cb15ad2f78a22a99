"""From the settlements of the storage contract to the machine's commands.

Those of one call are applied in order, all or none: any that is invalid is found before the first
is applied.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core import settling
from penstock.core.machine import Machine
from penstock.core.outcome import AllDone, Outcome
from penstock.core.subscription import Subscription
from penstock.storage import base

__all__ = ["count_targets", "settle_all"]


def count_targets(settlements: Sequence[base.Settlement]) -> int:
    count = 0
    for settlement in settlements:
        count += 1 if isinstance(settlement, base.AckUpTo) else len(settlement.targets)
    return count


def settle_all(
    machine: Machine,
    queue: str,
    subscription: str,
    settlements: Sequence[base.Settlement],
    now_ns: int,
) -> list[Sequence[Outcome]]:
    """Returns an outcome for each target of each settlement."""
    if len(settlements) > 1:
        # A single one is checked by its command, before that changes anything.
        _check(machine.subscription(queue, subscription), settlements)
    outcomes: list[Sequence[Outcome]] = []
    for settlement in settlements:
        match settlement:
            case base.Ack(targets=targets):
                outcomes.append(settling.ack(machine, queue, subscription, targets, now_ns))
            case base.Nack(targets=targets, delay_seconds=delay, reason=reason):
                outcomes.append(
                    settling.nack(machine, queue, subscription, targets, delay, reason, now_ns)
                )
            case base.Extend(targets=targets, seconds=seconds, further=further):
                outcomes.append(
                    settling.extend(
                        machine, queue, subscription, targets, seconds, now_ns, further=further
                    )
                )
            case base.GiveBack(targets=targets):
                outcomes.append(settling.give_back(machine, queue, subscription, targets, now_ns))
            case base.AckUpTo(index=index):
                count = settling.ack_up_to(machine, queue, subscription, index, now_ns)
                outcomes.append(AllDone(count))
    return outcomes


def _check(reader: Subscription, settlements: Sequence[base.Settlement]) -> None:
    """Raise whatever any of them would, before anything changes."""
    for settlement in settlements:
        match settlement:
            case base.Ack(targets=targets) | base.GiveBack(targets=targets):
                settling.check_targets(reader, targets)
            case base.Nack(targets=targets, delay_seconds=delay):
                settling.check_targets(reader, targets)
                settling.check_delay(delay)
            case base.Extend(targets=targets, seconds=seconds):
                settling.check_targets(reader, targets)
                settling.check_extension(seconds)
