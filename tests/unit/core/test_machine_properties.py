"""Random histories of the core: after every step the machine is where the naive model says."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.config import QueueConfig
from tests.unit.core.history import CONFIGS, History, Step
from tests.unit.core.steps import NAMES

_NUMBER = st.integers(0, 999)
_STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), _NUMBER, _NUMBER, _NUMBER), min_size=20, max_size=70
)


@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(config=st.sampled_from(CONFIGS), steps=_STEPS)
def test_any_history_keeps_every_promise_and_can_be_replayed(
    config: QueueConfig, steps: list[Step]
) -> None:
    history = History(config)
    for step in steps:
        history.do(step)
    history.compare_with_replay()
