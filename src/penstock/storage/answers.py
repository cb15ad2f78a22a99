"""Answers that are known, and are given once what they stand for is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from typing import TypeVar

from penstock.errors import PenstockError

__all__ = ["Answer", "answer_when_committed", "reject"]

T = TypeVar("T")

Answer = tuple[asyncio.Future[T], T]
"""Who waits, and for what."""


def answer_when_committed(
    submit: Callable[[], asyncio.Future[None] | None], answers: Sequence[Answer[T]]
) -> None:
    """``submit`` returns what is done when all is committed, or None when it is so already."""
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
    """Each caller raises an error of its own: one object would gather everybody's traceback."""
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
