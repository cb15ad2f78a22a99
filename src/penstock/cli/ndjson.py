"""Messages as NDJSON: one JSON object a line."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from penstock.cli import exits
from penstock.cli.input import Line
from penstock.core.message import NewMessage

__all__ = ["ndjson_message"]


class NdjsonForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message as a line of JSON. What ``--json`` prints can be published again.

    The fields that say where the message was, and what happened to it there, are ignored.
    """

    body: str | None = None
    body_base64: str | None = None
    json: msgspec.Raw | UnsetType = UNSET
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
        """The message, completed from the template. Raises `ValueError`."""
        if (self.body is None) + (self.body_base64 is None) + (self.json is UNSET) != 2:
            raise ValueError("a message has exactly one of body, body_base64 and json")
        content_type = self.content_type
        if self.body is not None:
            body = self.body.encode()
        elif self.body_base64 is not None:
            body = _from_base64(self.body_base64)
        else:
            assert self.json is not UNSET
            body = bytes(self.json)
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
    """A line that is not a message ends the program."""
    try:
        # The decoder does not look inside `json`.
        line.text.decode()
        return _decoder.decode(line.text).message(template)
    except (ValueError, RecursionError) as exc:
        exits.usage(f"line {line.number} of {name} is not a message: {exc}")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("body_base64 is not base64") from None
