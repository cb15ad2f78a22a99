"""Which documents are marked as consumed and as done."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config import QueueConfig
from penstock.core.runs import runs_of
from penstock.storage.archiving import QueueState, ReaderState
from penstock.storage.mongo.marks import mark_updates

_MOST = 12
_indexes = st.sets(st.integers(0, _MOST - 1))


@st.composite
def _states(draw: st.DrawFn) -> QueueState:
    names = draw(st.lists(st.sampled_from(["default", "a", "b"]), unique=True))
    readers = [_reader(name, draw(_indexes)) for name in names]
    pins = [part for index in draw(_indexes) for part in (b"%d" % index, b"1")]
    return QueueState(
        name="jobs",
        id=1,
        salt=1,
        at=1,
        first=0,
        next=draw(st.integers(0, _MOST)),
        config=QueueConfig(),
        fields=[],
        refers=[],
        pins=pins,
        readers=readers,
    )


def _reader(name: str, settled: set[int]) -> ReaderState:
    bounds = [bound for run in runs_of(settled) for bound in run]
    return ReaderState(
        name=name, fields=[], settled=bounds, dead=[], opened=[], tries=[], waiting=[]
    )


def _settled(reader: ReaderState) -> set[int]:
    runs = zip(reader.settled[::2], reader.settled[1::2], strict=True)
    return {index for start, stop in runs for index in range(start, stop)}


def _marks(state: QueueState) -> dict[str, set[int]]:
    everything = set(range(state.next))
    default = state.reader("default")
    done = everything - {int(pin) for pin in state.pins[::2]}
    for reader in state.readers:
        done &= _settled(reader)
    return {"consumed": everything & (_settled(default) if default else set()), "done": done}


@given(_states(), _states(), st.booleans())
def test_marks_that_were_right_are_right_after_the_updates(
    before: QueueState, state: QueueState, is_unchanged: bool
) -> None:
    if is_unchanged:
        state = before
    # Given the marks of one state
    marks = _marks(before)
    # When they are updated for another
    for update in mark_updates(before, state, None):
        changes: Any = update._doc
        ((field, value),) = changes["$set"].items()
        condition = update._filter
        run = set(range(condition["index"]["$gte"], condition["index"]["$lt"]))
        assert condition[field] is not value
        marks[field] = marks[field] | run if value else marks[field] - run
    # Then they are the marks of that one
    assert marks == _marks(state)
    assert state is not before or not list(mark_updates(before, state, None))
