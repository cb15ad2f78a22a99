"""Settling: the acks, nacks and extensions of concurrent calls share a request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from penstock.client.coalescer import Coalescer, Limits
from penstock.client.codec import decode_json, encode_form
from penstock.client.errors import ServerFailed
from penstock.client.message import Delivery
from penstock.client.paths import subscription_path
from penstock.client.transport import Transport
from penstock.core.message import parse_message_id
from penstock.core.outcome import Outcome
from penstock.errors import InvalidArgument

__all__ = ["Settler", "Target"]

Target = str | Delivery
"""What is to be settled: a delivery, its receipt, or a message's id."""


class _Nack(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    targets: list[str]
    delay_seconds: float | None = None
    reason: str = ""


class _Extend(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    targets: list[str]
    seconds: float
    further: bool = False


class _Ack(msgspec.Struct, frozen=True, kw_only=True):
    targets: list[str]


class _GiveBack(msgspec.Struct, frozen=True, kw_only=True):
    targets: list[str]


_Settlement = _Ack | _Nack | _Extend | _GiveBack


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    ack: list[Outcome] = []
    nack: list[list[Outcome]] = []
    extend: list[list[Outcome]] = []
    give_back: list[Outcome] = []
    acked_up_to: int = 0


class Settler:
    """Settles deliveries of one subscription, with an outcome for each target, in order.

    The request goes out whether or not its future is awaited: that is for those who want to know
    the outcome.
    """

    def __init__(
        self, transport: Transport, queue: str, subscription: str, *, limits: Limits
    ) -> None:
        self._transport = transport
        self._path = subscription_path(queue, subscription, "/settle")
        self._coalescer: Coalescer[_Settlement, list[Outcome]] = Coalescer(self._send, limits)
        # What a second attempt could do twice, or by its id to a newer delivery, is sent only once.
        self._once: Coalescer[_Settlement, list[Outcome]] = Coalescer(self._send_once, limits)

    def ack(self, targets: Sequence[Target]) -> asyncio.Future[Sequence[list[Outcome]]]:
        return self._submit(_Ack(targets=_texts(targets)), is_repeatable=True)

    def nack(
        self, targets: Sequence[Target], *, delay_seconds: float | None = None, reason: str = ""
    ) -> asyncio.Future[Sequence[list[Outcome]]]:
        if not isinstance(reason, str):
            raise InvalidArgument(f"the reason is {type(reason).__name__}: pass a text")
        nack = _Nack(targets=_texts(targets), delay_seconds=delay_seconds, reason=reason)
        return self._submit(nack, is_repeatable=_are_receipts(nack.targets))

    def extend(
        self, targets: Sequence[Target], seconds: float, *, further: bool = False
    ) -> asyncio.Future[Sequence[list[Outcome]]]:
        extend = _Extend(targets=_texts(targets), seconds=seconds, further=bool(further))
        # A second attempt would add the seconds once more.
        is_repeatable = not extend.further and _are_receipts(extend.targets)
        return self._submit(extend, is_repeatable=is_repeatable)

    def give_back(self, targets: Sequence[Target]) -> asyncio.Future[Sequence[list[Outcome]]]:
        give_back = _GiveBack(targets=_texts(targets))
        return self._submit(give_back, is_repeatable=_are_receipts(give_back.targets))

    async def ack_up_to(self, index: int) -> int:
        if not isinstance(index, int):
            # None would be sent as null, which means not given.
            raise InvalidArgument(f"the index is {index!r}: use a whole number")
        return (await self._request({"ack_up_to": index}, is_repeatable=True)).acked_up_to

    async def close(self) -> None:
        await self._coalescer.close()
        await self._once.close()

    def _submit(
        self, settlement: _Settlement, *, is_repeatable: bool
    ) -> asyncio.Future[Sequence[list[Outcome]]]:
        coalescer = self._coalescer if is_repeatable else self._once
        targets = settlement.targets
        size = sum(map(len, targets)) + 8 * len(targets)
        if type(settlement) is _Nack:
            size += 4 * len(settlement.reason)
        return coalescer.submit([settlement], size)

    async def _send(self, settlements: list[_Settlement]) -> list[list[Outcome]]:
        return await self._settle(settlements, is_repeatable=True)

    async def _send_once(self, settlements: list[_Settlement]) -> list[list[Outcome]]:
        return await self._settle(settlements, is_repeatable=False)

    async def _settle(
        self, settlements: list[_Settlement], *, is_repeatable: bool
    ) -> list[list[Outcome]]:
        acks = [target for one in settlements if type(one) is _Ack for target in one.targets]
        back = [target for one in settlements if type(one) is _GiveBack for target in one.targets]
        nacks = [one for one in settlements if type(one) is _Nack]
        extensions = [one for one in settlements if type(one) is _Extend]
        parts = {"ack": acks, "nack": nacks, "extend": extensions, "give_back": back}
        request = {name: part for name, part in parts.items() if part}
        answer = await self._request(request, is_repeatable=is_repeatable)
        _check_counts([acks, back], [answer.ack, answer.give_back])
        _check_counts([one.targets for one in nacks], answer.nack)
        _check_counts([one.targets for one in extensions], answer.extend)
        acked, nacked, extended = 0, iter(answer.nack), iter(answer.extend)
        given_back = iter(answer.give_back)
        outcomes: list[list[Outcome]] = []
        for one in settlements:
            if type(one) is _Ack:
                start, acked = acked, acked + len(one.targets)
                outcomes.append(answer.ack[start:acked])
            elif type(one) is _GiveBack:
                outcomes.append([next(given_back) for _ in one.targets])
            else:
                outcomes.append(next(nacked if type(one) is _Nack else extended))
        return outcomes

    async def _request(self, request: dict[str, object], *, is_repeatable: bool) -> _Answer:
        data = await self._transport.request(
            "POST", self._path, body=encode_form(request), is_repeatable=is_repeatable
        )
        return decode_json(data, _Answer)


def _check_counts(asked: list[list[str]], outcomes: list[list[Outcome]]) -> None:
    """A target without an outcome must not pass for done."""
    if list(map(len, asked)) != list(map(len, outcomes)):
        raise ServerFailed(
            "the server's answer makes no sense: it has not one outcome for each target"
        )


def _texts(targets: Sequence[Target]) -> list[str]:
    if isinstance(targets, str | Delivery) or not isinstance(targets, Iterable):
        raise InvalidArgument("targets are a list: pass [delivery] for a single one")
    texts = []
    for one in targets:
        text = one.receipt if isinstance(one, Delivery) else one
        if not isinstance(text, str):
            raise InvalidArgument("a target is a delivery, a receipt or a message's id")
        texts.append(text)
    return texts


def _are_receipts(texts: list[str]) -> bool:
    return all(parse_message_id(text) is None for text in texts)
