"""The state of a queue, which an archive keeps, and restoring a queue from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from random import SystemRandom
from typing import Any

import msgspec

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.filters import compile_filter
from penstock.core.limits import DEAD_LETTER_SUFFIX
from penstock.core.message import PLAIN, Message
from penstock.core.runs import Runs
from penstock.errors import StoreUnavailable
from penstock.storage.archiving import QueueState, ReaderState, Tries
from penstock.storage.redis.connection import Argument
from penstock.storage.redis.definitions import Feed
from penstock.storage.redis.matching import extra_of, matches
from penstock.storage.redis.messages import MICROSECONDS
from penstock.storage.redis.steps import Steps

__all__ = ["Rebuilding", "parse_snapshot"]

_encode = msgspec.msgpack.Encoder().encode
_queue_config = msgspec.json.Decoder(QueueConfig).decode
_reader_config = msgspec.json.Decoder(SubscriptionConfig).decode

# Fields that are not restored: they follow from the messages and subscriptions, or are temporary.
_DERIVED = {b"version", b"next", b"first", b"bytes", b"subs", b"odd", b"expires", b"pending"}
_CHUNK_BYTES = 4 * 1024 * 1024


class Rebuilding:
    """The part of `HotStore` that is not in `Store`: see there."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def snapshot(self, queue: str, known: QueueState | None) -> QueueState | None:
        last: tuple[Argument, Argument] = ("", "") if known is None else (known.id, known.at)
        answer = await self._steps.run("snapshot", self._steps.keys.queue(queue), *last)
        try:
            return parse_snapshot(queue, answer, known)
        except KeyError:
            if known is None:
                raise
            # Redis has older data than ``known``, with a subscription that was deleted since.
            return await self.snapshot(queue, None)

    async def restore(
        self,
        state: QueueState,
        messages: AsyncIterator[Sequence[Message]],
        had_from: int | None,
    ) -> bool:
        key = self._steps.keys.queue(state.name)
        if not state.name.endswith(DEAD_LETTER_SUFFIX):
            # First, since the list may be on another node: a queue that is not in it is not found.
            await self._steps.command("SADD", self._steps.keys.queues, state.name)
        is_left = "1" if had_from is None else "0"
        token = f"{SystemRandom().getrandbits(64):x}"
        fields = _fields(state)
        if had_from is None:  # otherwise nothing that was answered is lost
            fields += [b"rebuilt", token.encode()]
        (answer,) = await self._steps.run("restore_queue", key, _pack(fields), is_left, token)
        if answer != b"ok":
            return False
        present, matched, lost = await self._restore_messages(key, token, state, messages, had_from)
        await self._restore_readers(key, token, _without(state, lost), present, matched)
        self._steps.forget(state.name)
        return True

    async def _restore_messages(
        self,
        key: str,
        token: str,
        state: QueueState,
        messages: AsyncIterator[Sequence[Message]],
        had_from: int | None,
    ) -> tuple[Runs, dict[str, Runs], Runs]:
        """Returns the indexes of all, of those that match, by subscription, and of the lost ones.

        A message is lost if the queue did not have it as it was dropped.
        """
        present, lost = Runs(), Runs()
        matched = {reader.name: Runs() for reader in state.readers}
        feeds = list(_feeds(state))
        async for part in messages:
            for chunk in _chunks(part):
                since = "" if had_from is None else had_from
                new = await self._steps.run(
                    "restore_messages", key, token, since, *_message_arguments(chunk)
                )
                if new is None:
                    raise _lost_again(state.name)
                for index in new:
                    lost.add(int(index), int(index) + 1)
                for message in chunk:
                    present.add(message.index, message.index + 1)
                    for feed, since in feeds:
                        if message.index >= since and matches(feed, message):
                            matched[feed.key].add(message.index, message.index + 1)
        return present, matched, lost

    async def is_complete(self, archive: str) -> bool:
        found = await self._steps.command("GET", self._steps.keys.archive)
        return bool(found == archive.encode())

    async def set_complete(self, archive: str) -> None:
        await self._steps.command("SET", self._steps.keys.archive, archive)

    async def lock(self, name: str, token: str, seconds: float) -> bool:
        key, milliseconds = self._steps.keys.lock(name), round(seconds * 1000)
        return bool(await self._steps.run("lock", key, token, milliseconds))

    async def renew(self, name: str, token: str, seconds: float) -> bool:
        key, milliseconds = self._steps.keys.lock(name), round(seconds * 1000)
        return bool(await self._steps.run("renew", key, token, milliseconds))

    async def unlock(self, name: str, token: str) -> None:
        await self._steps.run("unlock", self._steps.keys.lock(name), token)

    async def _restore_readers(
        self, key: str, token: str, state: QueueState, present: Runs, matched: dict[str, Runs]
    ) -> None:
        """Restore the subscriptions, for which all indexes without a message are settled."""
        steps = self._steps
        stop = max(state.next, present.stop)
        # What is missing in front may still come, and then it must not seem to be removed.
        first = state.first if present.first is None else min(state.first, present.first)
        gone = [bound for run in present.outside(0, stop) for bound in run]
        number = _number(dict(_pairs(state.fields)))
        (answer,) = await steps.run(
            "restore_readers",
            key,
            steps.time,
            token,
            number + 1,
            _pack((first, stop, state.next)),
            _pack((state.refers, state.pins)),
            _pack(gone),
            *(
                _pack(
                    (
                        reader.name,
                        reader.fields,
                        reader.settled,
                        reader.dead,
                        reader.opened,
                        [bound for run in matched[reader.name] for bound in run],
                        [
                            part
                            for tries in sorted(reader.tries, key=lambda one: one.index)
                            for part in msgspec.structs.astuple(tries)
                        ],
                        [part for wait in reader.waiting for part in wait],
                    )
                )
                for reader in state.readers
            ),
        )
        if answer != b"ok":
            raise _lost_again(state.name)


def _lost_again(queue: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"queue {queue!r} was lost again, or is rebuilt by another server: try again shortly"
    )


def _without(state: QueueState, lost: Runs) -> QueueState:
    """The state without the progress at lost indexes, which is that of other messages."""

    def minus(bounds: Sequence[int]) -> list[int]:
        runs = Runs(zip(bounds[::2], bounds[1::2], strict=True))
        for start, stop in lost:
            runs.discard(start, stop)
        return [bound for run in runs for bound in run]

    readers = [
        msgspec.structs.replace(
            reader,
            settled=minus(reader.settled),
            dead=minus(reader.dead),
            opened=minus(reader.opened),
            tries=[one for one in reader.tries if one.index not in lost],
            waiting=[one for one in reader.waiting if one[0] not in lost],
        )
        for reader in state.readers
    ]
    return msgspec.structs.replace(state, readers=readers)


def _pack(value: Any) -> bytes:
    """MessagePack with bytes as strings, since Lua has no other type for bytes."""
    return _encode(_as_strings(value))


def _as_strings(value: Any) -> Any:
    """Encode all bytes in it as MessagePack strings, which need not be UTF-8 for Lua."""
    if isinstance(value, bytes):
        size = len(value)
        if size < 2**5:
            head = bytes([0xA0 | size])
        elif size < 2**16:
            head = b"\xda" + size.to_bytes(2, "big")
        else:
            head = b"\xdb" + size.to_bytes(4, "big")
        return msgspec.Raw(head + value)
    if isinstance(value, list | tuple):
        return [_as_strings(one) for one in value]
    return value


def _fields(state: QueueState) -> list[bytes]:
    """The fields of a queue that has no messages and subscriptions yet."""
    fields = [
        part
        for name, value in _pairs(state.fields)
        if name not in _DERIVED
        for part in (name, value)
    ]
    if state.config.events:
        fields += [b"expires", b"1"]  # see `queue_fields`
    return [*fields, b"next", b"0", b"first", b"0", b"bytes", b"0"]


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def parse_snapshot(
    queue: str, answer: list[Any], known: QueueState | None = None
) -> QueueState | None:
    """None if there is no such queue. A subscription that has not changed is that of ``known``.

    Raises `KeyError` if ``known`` does not have it.
    """
    if not answer:
        return None
    letters = None
    if len(answer) > 1:
        letters = _queue_state(queue + DEAD_LETTER_SUFFIX, answer[1], None, [])
    return _queue_state(queue, answer[0], letters, known.readers if known else [])


def _queue_state(
    name: str, answer: list[Any], letters: QueueState | None, known: list[ReaderState]
) -> QueueState:
    flat, refers, pins, readers = answer
    fields = dict(_pairs(flat))
    by_name = {reader.name: reader for reader in known}
    by_name.update((reader[0].decode(), _reader_state(reader)) for reader in readers)
    return QueueState(
        name=name,
        id=int(fields[b"id"]),
        salt=int(fields.get(b"source_salt") or fields[b"salt"]),
        at=int(fields[b"now"]),
        first=int(fields[b"first"]),
        next=int(fields[b"next"]),
        config=_queue_config(fields[b"config"]),
        is_told=b"observed" in fields,
        number=_number(fields),
        fields=flat,
        refers=refers,
        pins=pins,
        readers=[by_name[name] for name in fields.get(b"subs", b"").decode().split()],
        letters=letters,
    )


def _number(fields: dict[bytes, bytes]) -> int:
    """Of the version of the definitions."""
    return int(fields[b"version"].partition(b".")[2])


def _reader_state(answer: list[Any]) -> ReaderState:
    name, fields, settled, dead, opened, tried, leased, waiting, flights = answer
    generation = int(dict(_pairs(fields))[b"gen"])
    in_flight = {int(index) for index in leased}
    for flight in flights:
        start, stop = flight.split(b":")
        in_flight.update(range(int(start), int(stop)))
    tries = []
    for index, value in _pairs(tried):
        deliveries, epoch, late, reason = value.split(b":", 3)
        is_late = late == b"1" or int(index) in in_flight
        tries.append(Tries(int(index), int(deliveries), int(epoch), is_late, reason))
    # Messages in flight for the first time have a lease, but no entry in :tries.
    known = {one.index for one in tries}
    tries += [Tries(index, 1, generation, True, b"") for index in in_flight - known]
    return ReaderState(
        name=name.decode(),
        fields=fields,
        settled=_bounds(settled),
        dead=_bounds(dead),
        opened=_bounds(opened),
        # Redis may return a hash in another order each time.
        tries=sorted(tries, key=lambda one: one.index),
        waiting=[(int(index), int(float(due))) for index, due in _pairs(waiting)],
    )


def _bounds(flat: list[bytes]) -> list[int]:
    """The bounds of a sorted set of runs, with stops as members and starts as scores."""
    return [bound for stop, start in _pairs(flat) for bound in (int(float(start)), int(stop))]


def _feeds(state: QueueState) -> Iterator[tuple[Feed, int]]:
    """The filters of its subscriptions, and the index from which on each is to be applied."""
    for reader in state.readers:
        fields = dict(_pairs(reader.fields))
        text = _reader_config(fields[b"config"]).filter
        if text is not None:
            yield Feed(key=reader.name, filter=compile_filter(text)), int(fields.get(b"since") or 0)


def _chunks(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Split messages by size, for one call of a script each."""
    chunk: list[Message] = []
    size = 0
    for message in messages:
        chunk.append(message)
        size += len(message.body)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _message_arguments(chunk: list[Message]) -> list[Argument]:
    """The arguments of restore_messages.lua."""
    extras = {}
    packed: list[Argument] = []
    for position, message in enumerate(chunk, 1):
        extra = extra_of(message.envelope)
        letter = message.dead_letter
        if extra is not None and letter is None:
            extras[position] = extra
        head = b"" if message.envelope == PLAIN else message.envelope.encode()
        created = message.created_at_ns // MICROSECONDS
        time = letter.failed_at_ns // MICROSECONDS if letter else created
        fields: list[Any] = ["t", str(time), "b", message.body]
        if head:
            fields += ["h", head]
        if letter:
            fields += ["subscription", letter.subscription, "index", str(letter.index)]
            fields += ["deliveries", str(letter.deliveries), "reason", letter.reason]
            fields += ["created", str(created)]
        packed.append(_pack((message.index, len(message.body) + len(head), *fields)))
    return [_encode(extras) if extras else b"", *packed]
