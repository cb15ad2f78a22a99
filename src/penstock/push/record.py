"""The record of one subscription's calls, as its stats show it."""

from __future__ import annotations

import re

from penstock.clock import Clock
from penstock.core.callback import CallbackState
from penstock.core.message import to_datetime
from penstock.push.circuit import Circuit
from penstock.push.transport import Answer

__all__ = ["Record", "failure_text"]

# How much of an endpoint's answer to keep: enough to see what went wrong.
_EXCERPT_CHARACTERS = 500
_SPACE = re.compile(r"[\x00-\x20\x7f-\x9f]+")


def failure_text(answer: Answer) -> str:
    """The status and the beginning of the body, to be the reason of a nack."""
    text = _SPACE.sub(" ", f"{answer.status} {answer.reason}").strip()
    if 300 <= answer.status < 400:
        text += f", to {(answer.location or 'nowhere')[:200]!r}: redirects are not followed"
    said = _SPACE.sub(" ", answer.excerpt.decode(errors="replace")).strip()
    return f"{text}: {said[:_EXCERPT_CHARACTERS]}" if said else text


class Record:
    """Counts calls, and holds the circuit breaker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.circuit = Circuit()
        self.under_way = 0
        self._calls = 0
        self._failures = 0
        self._last_status: int | None = None
        self._last_error: str | None = None
        self._last_success_ns: int | None = None

    def begin_anew(self) -> None:
        """Forget the failures of a former endpoint, but not that there were calls.

        Calls to it that are still under way count for the circuit that they began with.
        """
        self.circuit = Circuit()

    def succeeded(self, status: int, circuit: Circuit) -> None:
        self._calls += 1
        self._last_status = status
        self._last_success_ns = self._clock.now_ns()
        circuit.succeeded()

    def failed(self, now: float, reason: str, status: int | None, circuit: Circuit) -> None:
        self._calls += 1
        self._failures += 1
        self._last_status = status
        self._last_error = reason
        circuit.failed(now)

    def put_off(self, reason: str, status: int | None) -> None:
        """The endpoint is alive, and has said when to call again."""
        self._calls += 1
        self._failures += 1
        self._last_status = status
        self._last_error = reason

    def state(self, now: float, not_before: float) -> CallbackState:
        """``not_before`` is when the endpoint asked to be called; both are on the loop's clock."""
        circuit = self.circuit
        next_call = max(circuit.open_until or 0.0, not_before)
        now_ns = self._clock.now_ns()
        return CallbackState(
            circuit=circuit.state(now),
            calls=self._calls,
            failures=self._failures,
            failures_in_a_row=circuit.failures,
            calls_under_way=self.under_way,
            last_status=self._last_status,
            last_error=self._last_error,
            last_success_at=(
                None if self._last_success_ns is None else to_datetime(self._last_success_ns)
            ),
            next_call_at=(
                to_datetime(now_ns + round((next_call - now) * 1e9)) if next_call > now else None
            ),
        )
