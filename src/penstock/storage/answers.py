"""Answers that are already known, but are given only once everything is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import TypeVar

from penstock.errors import PenstockError

__all__ = ["Answer", "answer_when_committed", "reject"]

T = TypeVar("T")

Answer = tuple[asyncio.Future[T], T]
"""A waiting caller, and its answer."""


def answer_when_committed(
    submit: Callable[[], asyncio.Future[None] | None], answers: Sequence[Answer[T]]
) -> None:
    """``submit`` returns a future for the commit, or None if everything is committed already."""
    try:
        committed = submit()
    except PenstockError as exc:
        _refuse(answers, exc)
        return
    if committed is None:
        _answer(answers)
    else:
        committed.add_done_callback(lambda done: _settle(answers, done))


def reject(waiting: asyncio.Future[T], error: BaseException) -> None:
    """Give each caller its own copy: a shared exception would collect everybody's traceback."""
    if not waiting.done():
        own = copy(error)
        own.__cause__ = error.__cause__
        waiting.set_exception(own)


def _settle(answers: Sequence[Answer[T]], done: asyncio.Future[None]) -> None:
    error = done.exception()
    if error is None:
        _answer(answers)
    else:
        _refuse(answers, error)


def _answer(answers: Sequence[Answer[T]]) -> None:
    for waiting, answer in answers:
        if not waiting.done():
            waiting.set_result(answer)


def _refuse(answers: Sequence[Answer[T]], error: BaseException) -> None:
    for waiting, _ in answers:
        reject(waiting, error)
