"""What the clients asked for and what they were told, in the order it happened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from tests.simulation.clock import VirtualClock

_LINES_SHOWN = 60


class Violation(Exception):
    """The store broke a promise. ``words`` pick the lines of the history that matter."""

    def __init__(self, invariant: str, text: str, words: Iterable[str] = ()) -> None:
        super().__init__(f"{invariant}: {text}")
        self.words = list(words)


@dataclass(kw_only=True, eq=False)
class Call:
    """One request of a client. Moments are numbers that grow with every line of the history.

    A call that was neither answered nor refused may or may not have taken effect, now or until the
    process that it was made to ends.
    """

    what: str
    asked: float
    asked_ns: int
    answered: float | None = None
    refused: bool = False

    @property
    def end(self) -> float:
        """The last moment at which it can have taken effect."""
        return -inf if self.refused else inf if self.answered is None else self.answered

    def may_fall_between(self, after: float, before: float) -> bool:
        """Whether it can have taken effect between two moments."""
        return self.end > after and self.asked < before


@dataclass
class History:
    """The lines, and the calls that are still open."""

    clock: VirtualClock
    verbose: bool = False
    lines: list[str] = field(default_factory=list)

    @property
    def moment(self) -> int:
        return len(self.lines)

    def note(self, text: str) -> int:
        """Add a line; returns its moment."""
        line = f"{len(self.lines):5} {self.clock.elapsed_seconds:9.3f}s  {text}"
        self.lines.append(line)
        if self.verbose:
            print(line)
        return len(self.lines) - 1

    def ask(self, what: str) -> Call:
        return Call(what=what, asked=self.note(f"? {what}"), asked_ns=self.clock.now_ns())

    def answer(self, call: Call, text: str = "done") -> None:
        call.answered = self.note(f"= {call.what} [{call.asked}]: {text}")

    def refuse(self, call: Call, error: Exception) -> None:
        """It was told that nothing has changed."""
        call.refused = True
        self.note(f"! {call.what} [{call.asked}]: refused, {error!r}")

    def give_up(self, call: Call, error: BaseException) -> None:
        """It was told that something may have changed."""
        self.note(f"! {call.what} [{call.asked}]: unknown, {error!r}")

    def about(self, words: Iterable[str]) -> str:
        """The last lines that hold one of these words, and those about the machine itself.

        Without what says little: that something was asked for, and that there was nothing.
        """
        wanted = [*words, "***"]
        found = [
            line
            for line in self.lines
            if any(word in line for word in wanted)
            and "s  ? receive" not in line
            and not line.endswith(": nothing")
        ]
        return "\n".join(found[-_LINES_SHOWN:])
