from __future__ import annotations

from typing import Any

import pytest

from penstock.client import AsyncClient
from penstock.errors import InvalidArgument


async def test_messages_are_found_by_id_however_many(client: AsyncClient, queue: str) -> None:
    published = await client.publish(queue, [str(n).encode() for n in range(250)])
    ids = [one.id for one in published]
    unknown = "01890000-0000-7000-8000-000000000000"

    found = await client.find(queue, [*ids, unknown, ids[0]])

    assert [None if one is None else one.text for one in found] == [
        *(str(n) for n in range(250)),
        None,
        "0",
    ]
    assert {one.queue for one in found if one is not None} == {queue}
    assert await client.find(queue, []) == []


async def test_a_view_shows_how_messages_stand_with_a_subscription(
    client: AsyncClient, queue: str
) -> None:
    await client.publish(queue, [b"acked", b"leased", b"new"])
    acked, leased = await client.receive(queue, limit=2)
    await client.ack(queue, [acked])

    every = await client.view(queue)
    settled = await client.view(queue, settled=True)
    unsettled = await client.view(queue, settled=False, limit=1)
    later = await client.view(queue, start=2)

    assert [(one.text, one.is_settled, one.deliveries) for one in every] == [
        ("acked", True, 0),
        ("leased", False, 1),
        ("new", False, 0),
    ]
    assert [one.leased_until for one in every] == [None, leased.deadline, None]
    assert [one.text for one in settled] == ["acked"]
    assert [one.text for one in unsettled] == ["leased"]
    assert [one.text for one in later] == ["new"]


@pytest.mark.parametrize("settled", ["false", 0, 1.0, []])
async def test_a_view_of_neither_settled_nor_unsettled_is_refused(
    client: AsyncClient, queue: str, settled: Any
) -> None:
    with pytest.raises(InvalidArgument, match="settled"):
        await client.view(queue, settled=settled)


@pytest.mark.parametrize("ids", ["an id", None, 7])
async def test_ids_that_are_no_list_are_refused(client: AsyncClient, queue: str, ids: Any) -> None:
    with pytest.raises(InvalidArgument, match="ids"):
        await client.find(queue, ids)
