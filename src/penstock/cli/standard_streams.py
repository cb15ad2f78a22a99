"""The standard streams: all three are always open, and output that fails ends the program."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["CUT_OFF", "end_if_unread", "prepare_streams"]

CUT_OFF = 141
_FAILED = 1


class _Output(io.FileIO):
    """Standard output. When it takes no more, the program ends, wherever the write came from.

    `SystemExit` passes through everything in between, which would turn an `OSError` into something
    else: rich and typer exit with 1, and some commands would blame a data directory.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._let_go()
            raise SystemExit(CUT_OFF) from None
        except OSError as exc:
            self._let_go()
            print(f"the output cannot be written: {exc.strerror}", file=sys.stderr)
            raise SystemExit(_FAILED) from None

    def _let_go(self) -> None:
        # What is left in buffers is flushed at the very end, and has nowhere to go either.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def prepare_streams() -> None:
    """Call it first of all: a socket would take the file descriptor of a stream that is closed."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    encoding, is_unbuffered = "utf-8", False
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding, is_unbuffered = sys.stdout.encoding, sys.stdout.write_through
    output = _Output(1, "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=encoding,
        # A message may hold anything, and not every terminal can show all of it.
        errors="backslashreplace",
        line_buffering=is_unbuffered or output.isatty(),
    )


def end_if_unread() -> None:
    """End the program if the reader of a pipe has left, which a write would otherwise tell."""
    output = select.poll()
    output.register(1, 0)
    if any(events & select.POLLERR for _, events in output.poll(0)):
        raise SystemExit(CUT_OFF)
