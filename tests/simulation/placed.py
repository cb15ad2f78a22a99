"""A message at an index, as far as clients know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tests.simulation.history import Call
from tests.simulation.sent import Sent


@dataclass(kw_only=True, eq=False)
class Placed:
    """One copy of a message. A message has several only if it was published during a rebuild.

    ``seen`` is when a call that found it there was asked, the latest of them. ``since`` is when a
    client knew of it: first because it was given, then because the publish was answered with it.
    """

    sent: Sent
    id: str
    created_ns: int
    seen: float
    since: float
    is_answered: bool = False

    def was_renewed(self, rebuilds: Sequence[Call], after: float, before: float) -> bool:
        """Whether it may have gone between two moments, and come back as if it were new."""
        publish = self.sent.call
        before = min(before, publish.end) if self.is_answered else before
        return after < before and any(
            rebuild.may_fall_between(publish.asked, publish.end)
            and rebuild.may_fall_between(after, before)
            for rebuild in rebuilds
        )

    def may_be_gone(self, rebuilds: Sequence[Call]) -> bool:
        """Whether its index may be free, or another's, since it was seen there."""
        return not self.is_answered and self.was_renewed(rebuilds, self.seen, inf)
