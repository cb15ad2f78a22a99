"""Calls in JSON: a form is sent, and an answer of a known type comes back."""

from __future__ import annotations

from typing import TypeVar

from penstock.client.arguments import check_finite
from penstock.client.codec import decode_json, encode_form
from penstock.client.transport import Transport

__all__ = ["JsonCalls"]

_Kind = TypeVar("_Kind")


class JsonCalls:
    """Raises what `Transport.request` raises, and `ServerFailed` for an answer of another type."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def read(self, path: str, kind: type[_Kind]) -> _Kind:
        """A GET. It changes nothing, so it is sent again when its answer is lost."""
        return decode_json(await self._transport.request("GET", path, is_repeatable=True), kind)

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[_Kind],
        form: dict[str, object] | None = None,
        *,
        is_repeatable: bool = False,
    ) -> _Kind:
        check_finite(form)
        data = await self._transport.request(
            method, path, body=encode_form(form or {}), is_repeatable=is_repeatable
        )
        return decode_json(data, kind)

    async def tell(self, method: str, path: str, form: dict[str, object] | None = None) -> None:
        """For calls whose answer holds nothing of interest."""
        check_finite(form)
        data = None if form is None else encode_form(form)
        await self._transport.request(method, path, body=data)
