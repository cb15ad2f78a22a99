"""A message to be published, as JSON: the form, how it becomes a message, and the answer."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from penstock.core.limits import MAX_BATCH_MESSAGES, MAX_PRIORITY
from penstock.core.message import DEFAULT_CONTENT_TYPE, NewMessage, PublishedMessage
from penstock.errors import InvalidArgument
from penstock.http.v1.fields import Time

__all__ = ["NewBatchJson", "NewMessageJson", "PublishedJson", "new_message"]


class NewMessageJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message to be published.

    Exactly one of `body` (text), `body_base64` and `json` (any value; stored as its JSON text,
    with the content type application/json) is the body.
    """

    body: str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    json: msgspec.Raw | UnsetType = UNSET
    content_type: str | None = None
    attributes: dict[str, str] = {}
    topic: str | None = None
    priority: Annotated[int, Meta(ge=0, le=MAX_PRIORITY)] = 0
    not_before: Time | None = None
    expires_at: Time | None = None
    group_key: str | None = None
    dedup_key: str | None = None


class NewBatchJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[NewMessageJson], Meta(min_length=1, max_length=MAX_BATCH_MESSAGES)]


class PublishedJson(msgspec.Struct, kw_only=True):
    """One entry a message, in the order in which they came."""

    durability: str
    messages: list[PublishedMessage]


def new_message(form: NewMessageJson) -> NewMessage:
    """Raises `InvalidArgument`."""
    content_type = form.content_type
    if (form.body is UNSET) + (form.body_base64 is UNSET) + (form.json is UNSET) != 2:
        raise InvalidArgument("a message has exactly one of body, body_base64 and json")
    if form.body is not UNSET:
        body = form.body.encode()
    elif form.body_base64 is not UNSET:
        body = _from_base64(form.body_base64)
    else:
        assert form.json is not UNSET
        body = _json_text(form.json)
        content_type = content_type or "application/json"
    return NewMessage(
        body=body,
        content_type=content_type or DEFAULT_CONTENT_TYPE,
        attributes=form.attributes,
        topic=form.topic,
        priority=form.priority,
        not_before=form.not_before,
        expires_at=form.expires_at,
        group_key=form.group_key,
        dedup_key=form.dedup_key,
    )


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(
            "body_base64 is not base64: use the standard alphabet, with padding"
        ) from None


def _json_text(raw: msgspec.Raw) -> bytes:
    text = bytes(raw)
    if not text.isascii():
        # Its syntax was checked as it was decoded, but not the text inside its strings.
        try:
            text.decode()
        except UnicodeDecodeError:
            raise InvalidArgument(
                "json is not UTF-8: encode it so, or send it as body_base64"
            ) from None
    return text
