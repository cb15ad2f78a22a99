"""Answers that are already known, but are given only once everything is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TypeVar

from penstock.errors import PenstockError

__all__ = ["Answer", "Done", "answer_when_committed", "conclude", "reject"]

T = TypeVar("T")

Answer = tuple[asyncio.Future[T], T]
"""A waiting caller, and its answer."""


Done = Callable[[PenstockError | None], None]
"""Called when a commit is done, or with why it failed. Must not raise."""


def answer_when_committed(
    call_when_committed: Callable[[Done], None], answers: Sequence[Answer[T]]
) -> None:
    try:
        call_when_committed(partial(_settle, answers))
    except PenstockError as exc:
        _settle(answers, exc)


def conclude(waiting: asyncio.Future[None], error: PenstockError | None) -> None:
    """Tell one who waits for nothing but the commit."""
    if waiting.done():  # it may have been cancelled
        return
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)


def reject(waiting: asyncio.Future[T], error: BaseException) -> None:
    """Give each caller its own copy: a shared exception would collect everybody's traceback."""
    if not waiting.done():
        own = copy(error)
        own.__cause__ = error.__cause__
        waiting.set_exception(own)


def _settle(answers: Sequence[Answer[T]], error: PenstockError | None) -> None:
    for waiting, answer in answers:
        if error is not None:
            reject(waiting, error)
        elif not waiting.done():
            waiting.set_result(answer)
