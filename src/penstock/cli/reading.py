"""Messages from files and from standard input."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from penstock.cli import exits
from penstock.core.limits import MAX_BODY_BYTES
from penstock.core.message import NewMessage

__all__ = [
    "Line",
    "NdjsonForm",
    "Source",
    "line_blocks",
    "ndjson_message",
    "opened",
    "total_bytes",
    "whole_file",
]

_BLOCK_BYTES = 1024 * 1024
# A line with a body of the largest size, all of it escaped or in base64, and the other fields.
_LINE_BYTES = 8 * MAX_BODY_BYTES


class Line(NamedTuple):
    """`number` counts from 1, and the text is without its end."""

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
    """Of all of them; None when that is not known beforehand."""
    total = 0
    for path in paths:
        if path == "-" or not Path(path).is_file():
            return None
        total += Path(path).stat().st_size
    return total


def whole_file(path: str) -> bytes:
    """No more than can be sent is read; one byte more says that it is too much."""
    with opened(path) as source:
        return source.file.read(MAX_BODY_BYTES + 1)


def line_blocks(source: Source, advance: Callable[[int], None]) -> Iterator[list[Line]]:
    """Lines, in blocks of what is there to be read. Empty ones are left out, but counted.

    From a pipe a block is what its writer has written so far, so that nothing waits for the end.
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


class NdjsonForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message in a line of JSON: what ``--json`` prints can be published again.

    Where a message was and what became of it there does not come along.
    """

    body: str | None = None
    body_base64: str | None = None
    json: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    content_type: str | None = None
    attributes: dict[str, str] = {}
    topic: str | None = None
    priority: int = 0
    not_before: datetime | None = None
    expires_at: datetime | None = None
    group_key: str | None = None
    dedup_key: str | None = None

    index: object = None
    id: object = None
    queue: object = None
    created_at: object = None
    subscription: object = None
    receipt: object = None
    deliveries: object = None
    deadline: object = None
    dead_letter: object = None

    def message(self, template: NewMessage) -> NewMessage:
        """With what the line leaves out from the template. Raises `ValueError`."""
        given = (self.body is not None, self.body_base64 is not None, bool(self.json))
        if sum(given) != 1:
            raise ValueError("a message has exactly one of body, body_base64 and json")
        content_type = self.content_type
        if self.body is not None:
            body = self.body.encode()
        elif self.body_base64 is not None:
            body = _from_base64(self.body_base64)
        else:
            body = bytes(self.json)  # type: ignore[arg-type]
            content_type = content_type or "application/json"
        return NewMessage(
            body=body,
            content_type=content_type or template.content_type,
            attributes={**template.attributes, **self.attributes},
            topic=self.topic or template.topic,
            priority=self.priority or template.priority,
            not_before=self.not_before or template.not_before,
            expires_at=self.expires_at or template.expires_at,
            group_key=self.group_key or template.group_key,
            dedup_key=self.dedup_key or template.dedup_key,
        )


_decoder = msgspec.json.Decoder(NdjsonForm)


def ndjson_message(line: Line, name: str, template: NewMessage) -> NewMessage:
    """A line that is no message ends the program."""
    try:
        # What is within `json` is not looked at otherwise.
        line.text.decode()
        return _decoder.decode(line.text).message(template)
    except (ValueError, RecursionError) as exc:
        exits.usage(f"line {line.number} of {name} is no message: {exc}")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("body_base64 is not base64") from None
