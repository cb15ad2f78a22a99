"""Entries of a stream as messages and deliveries.

An entry has the fields ``t`` (when it was created, in microseconds), ``s`` (bytes of all messages
published before its batch), ``b`` (body) and, unless the message is plain, ``h`` (its envelope). A
dead letter also says ``subscription``, ``index``, ``deliveries``, ``reason`` and ``created``, and
its ``t`` is when it failed.
"""

from __future__ import annotations

from array import array
from itertools import groupby
from typing import Any

from penstock.core.message import DeadLetter, Delivery, Envelope, Message, message_id
from penstock.storage.block import Block, message_block
from penstock.storage.redis.definitions import QueueDefinition, ReaderDefinition

__all__ = ["MICROSECONDS", "to_blocks", "to_deliveries", "to_letters", "to_messages"]

MICROSECONDS = 1000
"""Nanoseconds per microsecond."""

_PLAIN = Envelope.decode(b"")


def _index(entry: list[Any]) -> int:
    return int(entry[0].partition(b"-")[0])


def _parts(queue: QueueDefinition, fields: list[bytes]) -> tuple[int, Envelope, DeadLetter | None]:
    """When it was created, its envelope, and why it is a dead letter, if it is one."""
    at_ns = int(fields[1]) * MICROSECONDS
    has_head = len(fields) > 6 and fields[6] == b"h"
    envelope = Envelope.decode(fields[7]) if has_head else _PLAIN
    if queue.source is None:
        return at_ns, envelope, None
    rest = fields[8:] if has_head else fields[6:]
    letter = dict(zip(rest[::2], rest[1::2], strict=True))
    why = DeadLetter(
        queue=queue.source,
        subscription=letter[b"subscription"].decode(),
        index=int(letter[b"index"]),
        deliveries=int(letter[b"deliveries"]),
        reason=letter[b"reason"].decode(),
        failed_at_ns=at_ns,
    )
    return int(letter[b"created"]) * MICROSECONDS, envelope, why


def to_letters(queue: str, rows: list[list[bytes]]) -> list[tuple[str, DeadLetter]]:
    """The dead letters in the answer of `sweep.lua`, each with the id of its message."""
    found = []
    for salt, failed, subscription, index, deliveries, reason, created in rows:
        letter = DeadLetter(
            queue=queue,
            subscription=subscription.decode(),
            index=int(index),
            deliveries=int(deliveries),
            reason=reason.decode(),
            failed_at_ns=int(failed) * MICROSECONDS,
        )
        found.append((message_id(int(created) * MICROSECONDS, letter.index, int(salt)), letter))
    return found


def to_messages(queue: QueueDefinition, entries: list[list[Any]]) -> list[Message]:
    messages = []
    for entry in entries:
        fields = entry[1]
        created_ns, envelope, letter = _parts(queue, fields)
        messages.append(
            Message(
                queue=queue.name,
                index=_index(entry),
                created_at_ns=created_ns,
                salt=queue.message_salt,
                body=fields[5],
                envelope=envelope,
                dead_letter=letter,
            )
        )
    return messages


def to_blocks(queue: QueueDefinition, entries: list[list[Any]]) -> list[Block]:
    """Like `to_messages`, in bulk: a block per publish."""
    if queue.source is not None:
        return [message_block(letter) for letter in to_messages(queue, entries)]
    blocks = []
    numbered = enumerate(entries)
    for _, same in groupby(numbered, key=lambda one: (_index(one[1]) - one[0], one[1][1][:4])):
        batch = [entry for _, entry in same]
        bodies = [entry[1][5] for entry in batch]
        heads = [entry[1][7] if len(entry[1]) > 6 else b"" for entry in batch]
        first = _index(batch[0])
        blocks.append(
            Block(
                first,
                first,
                int(batch[0][1][1]) * MICROSECONDS,
                array("I", map(len, bodies)),
                memoryview(b"".join(bodies)),
                heads if any(heads) else None,
            )
        )
    return blocks


def to_deliveries(
    queue: QueueDefinition, reader: ReaderDefinition, answer: list[Any]
) -> list[Delivery]:
    """Parse the answer of a script that delivers."""
    _, first_epoch, deadline, again, found, indexes = answer
    deadline_ns = int(deadline) * MICROSECONDS if deadline else None
    tried = {again[at]: (again[at + 1], again[at + 2]) for at in range(0, len(again), 3)}
    first = (1, first_epoch)
    if queue.source is not None:
        return [
            Delivery(
                queue=letter.queue,
                index=letter.index,
                created_at_ns=letter.created_at_ns,
                salt=letter.salt,
                body=letter.body,
                envelope=letter.envelope,
                dead_letter=letter.dead_letter,
                subscription_id=reader.id,
                epoch=tried.get(letter.index, first)[1],
                deliveries=tried.get(letter.index, first)[0],
                deadline_ns=deadline_ns,
            )
            for letter in to_messages(queue, found)
        ]
    name, salt, id = queue.name, queue.message_salt, reader.id
    deliveries = []
    if isinstance(indexes, int):
        indexes = range(indexes, indexes + len(found) // 3)
    for index, created, body, head in zip(
        indexes, found[::3], found[1::3], found[2::3], strict=True
    ):
        count, epoch = tried.get(index, first) if tried else first
        deliveries.append(
            Delivery(
                queue=name,
                index=index,
                created_at_ns=int(created) * MICROSECONDS,
                salt=salt,
                body=body,
                envelope=Envelope.decode(head) if head else _PLAIN,
                dead_letter=None,
                subscription_id=id,
                epoch=epoch,
                deliveries=count,
                deadline_ns=deadline_ns,
            )
        )
    return deliveries
