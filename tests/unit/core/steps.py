"""Which steps a random history is made of, and how often each comes."""

from __future__ import annotations

from random import Random

from tests.unit.core.history import COMMANDS, Step

__all__ = ["NAMES", "random_steps"]

_OFTEN = {
    "publish": 8,
    "receive": 12,
    "nack": 8,
    "give_back": 4,
    "pass_time": 5,
    "subscribe": 5,
    "ack": 4,
    "poll": 4,
    "replay": 4,
    "tick": 3,
    "rewire": 3,
    "release": 3,
    "seek": 2,
    "ask_again": 2,
    "recover": 2,
    "restore": 2,
    "take_snapshot": 2,
    "change_policy": 2,
}
NAMES = [name for name in COMMANDS for _ in range(_OFTEN.get(name, 1))]
"""A name appears as often as it is to be drawn."""


def random_steps(rng: Random, count: int) -> list[Step]:
    def number() -> int:
        return rng.randrange(1000)

    return [(rng.choice(NAMES), number(), number(), number()) for _ in range(count)]
