"""How much each row does: the sizes that the bars are set for, and a short version of them."""

from __future__ import annotations

from dataclasses import dataclass

BODY_BYTES = 256
BATCH = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Sizes of one run. Only `FULL` is what the bars are set for."""

    rounds: int
    slices: int
    """How often the contenders take turns within a round."""
    slice_seconds: float
    cycle_messages: int
    """Messages that Penstock publishes, receives and acks in a round."""
    cycle_peer_seconds: float
    """What a peer gets for the same in a round; its rate is taken over this time."""
    backlog: int
    small_backlog: int
    single_records: int
    """Messages that were published one after the other, so that each has a record of its own."""
    depth_batches: int
    """Timed pairs of receive and ack at each depth, in a round."""
    work_seconds: float
    """How long a process publishes and acks before it is killed."""
    topics: int
    diamond_messages: int


FULL = Scale(
    rounds=3,
    slices=4,
    slice_seconds=0.5,
    cycle_messages=100_000,
    cycle_peer_seconds=4.0,
    backlog=10_000_000,
    small_backlog=10_000,
    single_records=1_000_000,
    depth_batches=2_000,
    work_seconds=5.0,
    topics=1_000,
    diamond_messages=100_000,
)

QUICK = Scale(
    rounds=1,
    slices=2,
    slice_seconds=0.25,
    cycle_messages=10_000,
    cycle_peer_seconds=0.5,
    backlog=200_000,
    small_backlog=10_000,
    single_records=20_000,
    depth_batches=50,
    work_seconds=0.5,
    topics=1_000,
    diamond_messages=5_000,
)
