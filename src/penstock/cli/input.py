"""Input: files and standard input, as a whole or line by line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from penstock.cli import exits
from penstock.core.limits import MAX_BODY_BYTES

__all__ = [
    "Line",
    "Source",
    "line_blocks",
    "opened",
    "total_bytes",
    "whole_file",
]

_BLOCK_BYTES = 1024 * 1024
# Room for the largest body, escaped or in base64, and for the other fields of the line.
_LINE_BYTES = 8 * MAX_BODY_BYTES


class Line(NamedTuple):
    """`number` counts from 1; `text` is without the line's end."""

    number: int
    text: bytes


class Source(NamedTuple):
    """What is read, and what people call it."""

    name: str
    file: BinaryIO


@contextmanager
def opened(path: str) -> Iterator[Source]:
    """``-`` is standard input. A file that cannot be read ends the program."""
    if path == "-":
        yield Source("standard input", sys.stdin.buffer)
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("rb"))
        except OSError as exc:
            exits.usage(f"{path} cannot be read: {exc.strerror}")
        yield Source(path, file)


def total_bytes(paths: list[str]) -> int | None:
    """The size of all files together; None when that is not known beforehand."""
    total = 0
    for path in paths:
        if path == "-" or not Path(path).is_file():
            return None
        total += Path(path).stat().st_size
    return total


def whole_file(path: str) -> bytes:
    """At most one byte more than can be sent, which is enough to be refused."""
    with opened(path) as source:
        return source.file.read(MAX_BODY_BYTES + 1)


def line_blocks(source: Source, advance: Callable[[int], None]) -> Iterator[list[Line]]:
    """Lines, in blocks of what can be read now. Empty lines are left out, but counted.

    From a pipe, a block is what its writer has written so far, so that nothing waits for the end.
    """
    number = 0
    rest = b""
    while True:
        block: bytes = source.file.read1(_BLOCK_BYTES)  # type: ignore[attr-defined]
        advance(len(block))
        *texts, rest = (rest + block).split(b"\n") if block else [rest, b""]
        if len(rest) > _LINE_BYTES:
            exits.usage(f"line {number + len(texts) + 1} of {source.name} is too long")
        lines = [Line(number + at, text.removesuffix(b"\r")) for at, text in enumerate(texts, 1)]
        number += len(texts)
        if found := [line for line in lines if line.text]:
            yield found
        if not block:
            return
