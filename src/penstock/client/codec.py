"""Values as bytes: forms in JSON, and answers in JSON or MessagePack."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.client.errors import ServerFailed
from penstock.errors import InvalidArgument

__all__ = ["JSON", "MSGPACK", "decode_json", "decode_msgpack", "encode_form"]

JSON = "application/json"
MSGPACK = "application/msgpack"

_Kind = TypeVar("_Kind")


def encode_form(form: dict[str, object]) -> bytes:
    """In JSON. Raises `InvalidArgument` when a value cannot be expressed in it."""
    try:
        return msgspec.json.encode(form)
    except (TypeError, ValueError) as exc:
        raise InvalidArgument(f"a value cannot be sent as JSON: {exc}") from exc


def decode_json(data: bytes, kind: type[_Kind]) -> _Kind:
    """Raises `ServerFailed` when it is not of this type."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as exc:
        raise ServerFailed(f"the server's answer makes no sense: {exc}") from exc


def decode_msgpack(data: bytes, kind: type[_Kind]) -> _Kind:
    """For an answer that was asked for in MessagePack. Raises `ServerFailed`."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as exc:
        raise ServerFailed(f"the server's answer makes no sense: {exc}") from exc
