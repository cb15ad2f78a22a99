from __future__ import annotations

from time import perf_counter

import msgspec
import pytest

from benchmarks.engine.process import Child, ChildFailed

ECHO = "benchmarks.engine.tests.echo"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    greeting: str


def test_a_child_speaks_answers_and_ends() -> None:
    with Child(ECHO, Task(greeting="hello")) as child:
        assert child.hear(str) == "hello"
        assert child.ask(21, int) == 42
        child.finish()


def test_a_child_that_ends_instead_of_answering_is_an_error() -> None:
    with Child(ECHO, Task(greeting="bye")) as child:
        assert child.hear(str) == "bye"
        with pytest.raises(ChildFailed, match="status 0"):
            child.hear(str)


def test_a_child_that_fails_is_an_error_when_it_is_to_finish() -> None:
    with Child(ECHO, Task(greeting="hello")) as child:
        child.hear(str)
        with pytest.raises(ChildFailed, match="status 1"):
            child.ask("not a number", int)


def test_a_child_is_gone_when_the_block_ends() -> None:
    began = perf_counter()
    with Child(ECHO, Task(greeting="hello")) as child:
        child.hear(str)

    assert perf_counter() - began < 10


def test_a_killed_child_says_no_more() -> None:
    with Child(ECHO, Task(greeting="hello")) as child:
        child.hear(str)
        child.kill()
        with pytest.raises(ChildFailed, match="status -9"):
            child.hear(str)
