from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.dependencies import check_dependencies
from penstock.errors import InvalidDependency

NAMES = "abcdef"


def test_a_subscription_may_wait_for_any_others_that_exist() -> None:
    check_dependencies("d", ["b", "c"], {"a": [], "b": ["a"], "c": ["a"]})
    check_dependencies("a", [], {})


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (["x"], "no such subscription"),
        (["c"], "cannot wait for itself"),
        (["a", "a"], "twice"),
        (["d"], "c after d after c"),
        (["a", "e"], "c after e after d after c"),
    ],
)
def test_what_cannot_be_waited_for_is_said(after: list[str], words: str) -> None:
    graph = {"a": [], "b": [], "c": ["a"], "d": ["c"], "e": ["b", "d"]}
    with pytest.raises(InvalidDependency, match=words):
        check_dependencies("c", after, graph)


def test_its_own_former_dependencies_do_not_count() -> None:
    check_dependencies("a", ["c"], {"a": ["b"], "b": [], "c": []})


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES), max_size=3))))
def test_what_is_accepted_never_makes_a_cycle_and_what_is_refused_would(
    wishes: list[tuple[str, set[str]]],
) -> None:
    graph: dict[str, list[str]] = {name: [] for name in NAMES}
    for name, after in wishes:
        wanted = {**graph, name: sorted(after)}
        try:
            TopologicalSorter(wanted).prepare()
            is_sound = True
        except CycleError:
            is_sound = False
        if is_sound:
            check_dependencies(name, sorted(after), graph)
            graph = wanted
        else:
            with pytest.raises(InvalidDependency):
                check_dependencies(name, sorted(after), graph)
