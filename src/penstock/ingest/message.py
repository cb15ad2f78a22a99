"""What is ingested: a file that arrived for a tenant, or any other typed message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from penstock.errors import InvalidArgument

__all__ = ["Codec", "IngestMessage", "TenantMessage"]


class TenantMessage(Protocol):
    """Anything that msgspec can encode, and that names its tenant."""

    @property
    def tenant_code(self) -> str: ...


class IngestMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A file that is waiting to be ingested.

    `file_path` is where it is, `tenant_code` whose it is, `received_at` when it came (aware).
    """

    file_path: str
    tenant_code: str
    received_at: datetime

    def __post_init__(self) -> None:
        if self.received_at.tzinfo is None:
            raise InvalidArgument("received_at has no time zone: pass an aware datetime")

    def to_map(self) -> dict[str, str]:
        """As strings, by the names that other programs use: filePath, tenantCode, receivedAt."""
        as_texts: dict[str, str] = msgspec.to_builtins(self)
        return as_texts

    @classmethod
    def from_map(cls, texts: Mapping[str, str]) -> Self:
        """The inverse of `to_map`. Raises `InvalidArgument` for a missing or malformed field."""
        try:
            return msgspec.convert(dict(texts), cls)
        except msgspec.ValidationError as exc:
            raise InvalidArgument(f"that is not an {cls.__name__}: {exc}") from exc


M = TypeVar("M", bound=TenantMessage)


class Codec(Generic[M]):
    """Encodes messages of one type as bodies, in JSON."""

    def __init__(self, kind: type[M]) -> None:
        if not isinstance(kind, type):
            raise InvalidArgument(f"the type of the messages is {kind!r}: pass a class")
        self.kind = kind
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def encode(self, message: M) -> bytes:
        if not isinstance(message, self.kind):
            raise InvalidArgument(
                f"a message is {type(message).__name__}: this queue takes {self.kind.__name__}"
            )
        return msgspec.json.encode(message)

    def decode(self, body: bytes) -> M:
        """Raises `InvalidArgument`."""
        try:
            message: M = self._decoder.decode(body)
        except msgspec.DecodeError as exc:
            raise InvalidArgument(f"the body is not a valid {self.kind.__name__}: {exc}") from exc
        return message
