"""Calls in JSON: a form is sent, and an answer of a known type comes back."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.client.transport import Transport, decode_answer
from penstock.errors import InvalidArgument

__all__ = ["JsonCalls", "encode_form"]

_Kind = TypeVar("_Kind")


class JsonCalls:
    """Raises what `Transport.request` raises, and `ServerFailed` for an answer of another type."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def read(self, path: str, kind: type[_Kind]) -> _Kind:
        """A GET. It changes nothing, so it is sent again when its answer is lost."""
        return decode_answer(await self._transport.request("GET", path, is_repeatable=True), kind)

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[_Kind],
        form: dict[str, object] | None = None,
        *,
        is_repeatable: bool = False,
    ) -> _Kind:
        data = await self._transport.request(
            method, path, body=encode_form(form or {}), is_repeatable=is_repeatable
        )
        return decode_answer(data, kind)

    async def tell(self, method: str, path: str, form: dict[str, object] | None = None) -> None:
        """For calls whose answer holds nothing of interest."""
        data = None if form is None else encode_form(form)
        await self._transport.request(method, path, body=data)


def encode_form(form: dict[str, object]) -> bytes:
    """Raises `InvalidArgument`."""
    try:
        return msgspec.json.encode(form)
    except (TypeError, ValueError) as exc:
        raise InvalidArgument(f"a value cannot be sent as JSON: {exc}") from exc
