"""``POST /api/consumers/addDependency``: who gets a message after whom."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import StorageFailed
from penstock.storage import base
from penstock.storage.registry import open_store
from tests.http.api.world import QUEUE, Person, World, world

ADD = "/api/consumers/addDependency"


async def people(api: World, names: str = "abc") -> list[Person]:
    return [await api.person(name) for name in names]


async def test_it_answers_as_the_document_shows(api: World) -> None:
    a, b, _ = await people(api)
    value = {"user": a.id, "dependent_on": [b.id]}
    answer = await api.post(ADD, value, await api.admin())
    assert (answer.status, answer.json) == (200, {"success": True, "message": "dependency added."})


@pytest.mark.parametrize("is_declared_first", [True, False])
async def test_c_gets_a_message_after_a_and_b_whichever_was_said_first(
    api: World, is_declared_first: bool
) -> None:
    a, b, c = await people(api)
    if is_declared_first:
        await api.wait_for(c, a, b)
    first, second, last = [await api.subscribe(one) for one in (c, a, b)]
    if not is_declared_first:
        await api.wait_for(c, a, b)
    await api.publish(1)
    assert await api.take(first) == []
    assert await api.take(second) == [1]
    assert await api.take(first) == []
    assert await api.take(last) == [1]
    assert await api.take(first) == [1]


async def test_only_messages_that_both_receive_are_waited_for(api: World) -> None:
    a, _, c = await people(api)
    await api.wait_for(c, a)
    a_sql = await api.subscribe(a, "sql")
    c_sql, c_nosql = await api.subscribe(c, "sql"), await api.subscribe(c, "nosql")
    await api.publish(1, "sql")
    await api.publish(2, "nosql")
    assert await api.take(c_sql) == []
    assert await api.take(c_nosql) == [2]
    assert await api.take(a_sql) == [1]
    assert await api.take(c_sql) == [1]


async def test_all_subscriptions_of_a_consumer_must_have_taken_it(api: World) -> None:
    a, _, c = await people(api)
    by_topic = await api.subscribe(a, "sql")
    by_filter = await api.subscribe(a, None, filter="body.n > 0")
    last = await api.subscribe(c, "sql")
    await api.wait_for(c, a)
    await api.publish({"n": 1})
    await api.take(by_topic)
    assert await api.take(last) == []
    await api.take(by_filter)
    assert await api.take(last) == [{"n": 1}]


async def test_a_topic_that_a_parent_adds_later_is_waited_for_too(api: World) -> None:
    a, _, c = await people(api)
    await api.wait_for(c, a)
    last = await api.subscribe(c, None, filter="true")
    await api.subscribe(a, "sql")
    await api.publish(1, "nosql")
    assert await api.take(last) == [1]
    nosql = await api.subscribe(a, "nosql")
    await api.publish(2, "nosql")
    assert await api.take(last) == []
    assert await api.take(nosql) == [2]
    assert await api.take(last) == [2]


async def test_dependencies_add_up(api: World) -> None:
    a, b, c = await people(api)
    names = {one.email: await api.subscribe(one) for one in (a, b, c)}
    await api.wait_for(c, a)
    await api.wait_for(c, b)
    await api.wait_for(c, a)
    assert (await api.after())[names[c.email]] == {names[a.email], names[b.email]}


async def test_users_are_named_by_id_email_or_name(api: World) -> None:
    a, b, c = await people(api)
    admin = await api.admin()
    for value in (
        {"user": c.email.upper(), "dependent_on": [a.id, b.email]},
        {"user": "user", "dependent_on": [a.email, "admin"]},
    ):
        assert (await api.post(ADD, value, admin)).status == 200


async def test_a_cycle_is_refused_and_shown(api: World) -> None:
    a, b, c = await people(api)
    await api.wait_for(b, a)
    await api.wait_for(c, b)
    answer = await api.post(ADD, {"user": a.id, "dependent_on": [c.id]}, await api.admin())
    assert answer.status == 400
    assert answer.json["success"] is False
    assert answer.json["code"] == "invalid_dependency"
    shown = "a@example.com after c@example.com after b@example.com after a@example.com"
    assert shown in answer.json["message"]
    # And nothing of it is left
    name = await api.subscribe(a)
    await api.subscribe(c)
    await api.publish(1)
    assert await api.take(name) == [1]


async def test_nobody_waits_for_itself(api: World) -> None:
    a, *_ = await people(api)
    answer = await api.post(ADD, {"user": a.id, "dependent_on": [a.email]}, await api.admin())
    assert (answer.status, answer.json["code"]) == (400, "invalid_dependency")


async def test_an_unknown_user_is_named(api: World) -> None:
    a, *_ = await people(api)
    for value in (
        {"user": a.id, "dependent_on": ["x" * 24]},
        {"user": "x", "dependent_on": [a.id]},
    ):
        answer = await api.post(ADD, value, await api.admin())
        assert (answer.status, answer.json["code"]) == (404, "user_not_found")
        assert "'x" in answer.json["message"]


async def test_only_an_admin_may_say_so(api: World) -> None:
    a, b, _ = await people(api)
    answer = await api.post(ADD, {"user": a.id, "dependent_on": [b.id]}, a.token)
    assert (answer.status, answer.json["success"]) == (403, False)
    assert (await api.create("root@example.com", "admin")).status == 200
    root = await api.log_in("root@example.com")
    assert (await api.post(ADD, {"user": a.id, "dependent_on": [b.id]}, root)).status == 200


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"user": "a"},
        {"dependent_on": ["a"]},
        {"user": "a", "dependent_on": []},
        {"user": "a", "dependent_on": "b"},
        {"user": "a", "dependent_on": [1]},
        {"user": 1, "dependent_on": ["a"]},
        {"user": "a", "dependent_on": ["b"], "more": 1},
        {"user": "a", "dependent_on": ["b"] * 101},
    ],
)
async def test_anything_else_is_refused(api: World, value: object) -> None:
    answer = await api.post(ADD, value, await api.admin())
    assert (answer.status, answer.json["success"]) == (400, False)


async def test_who_waited_for_a_removed_user_waits_no_more(api: World) -> None:
    a, _, c = await people(api)
    await api.subscribe(a)
    last = await api.subscribe(c)
    await api.wait_for(c, a)
    await api.publish(1)
    assert await api.take(last) == []
    path = f"/admin/subscribers/{a.email}"
    await api.app.ask("DELETE", path, authorization=await api.admin())
    assert await api.take(last) == [1]


async def test_what_a_parent_gave_up_on_is_held_until_its_replay() -> None:
    async with world(topics_retries=0) as api:
        a, _, c = await people(api)
        first, last = await api.subscribe(a), await api.subscribe(c)
        await api.wait_for(c, a)
        await api.publish(1)
        [delivery] = await api.broker.receive(QUEUE, subscription=first)
        await api.broker.nack(QUEUE, [delivery], first, reason="500 Internal Server Error")
        assert await api.take(last) == []
        # An admin sees why, and replays it
        path = f"/v1/queues/{QUEUE}/dead-letters"
        admin = await api.admin()
        [letter] = (await api.app.ask("GET", path, authorization=admin)).json["messages"]
        assert letter["dead_letter"]["reason"] == "500 Internal Server Error"
        answer = await api.post(f"{path}/replay", {}, admin)
        assert answer.status == 200
        assert await api.take(first) == [1]
        assert await api.take(last) == [1]


# What happens between the steps.


class Stepping(Broker):
    """Fails from one definition on, or at one, or does something between two of them."""

    fails_at = -1
    fails_once = False
    steps = 0

    async def between(self) -> None: ...

    async def _define(self, change: base.Change) -> None:
        if self.steps == self.fails_at:
            self.steps += self.fails_once
            raise StorageFailed("the power is out")
        self.steps += 1
        await super()._define(change)
        await self.between()


async def test_a_new_subscription_is_never_overtaken_while_it_is_made() -> None:
    broker = Stepping(await open_store("memory:"))
    taken: list[int] = []
    numbers = iter(range(1000))
    last = ""

    async def publish_and_take() -> None:
        value = {"topic": "sql", "content": next(numbers)}
        await api.post("/api/producers/publish", value, user)
        for delivery in await broker.receive(QUEUE, subscription=last, limit=100):
            taken.append(json.loads(delivery.body))
            await broker.ack(QUEUE, [delivery], last)

    async with broker, world(broker) as api:
        user = await api.log_in("user", "password")
        a, _, c = await people(api)
        await api.wait_for(c, a)
        last = await api.subscribe(c)
        # Given a publish, and a delivery to C, after each step of A's subscription
        broker.between = publish_and_take  # type: ignore[method-assign]
        first = await api.subscribe(a)
        broker.between = Stepping.between.__get__(broker)  # type: ignore[method-assign]
        # Then C had none of those that A gets
        assert taken
        await publish_and_take()
        for content in await api.take(first):
            assert content not in taken
        # And gets every one, once, in the end
        await publish_and_take()
        await publish_and_take()
        await api.take(first)
        taken += await api.take(last)
        assert sorted(taken) == list(range(next(numbers)))


@pytest.mark.parametrize("workers", [1, 8])
async def test_a_restart_alters_no_subscription_that_is_as_it_should_be(
    tmp_path: Path, workers: int
) -> None:
    broker = Stepping(await open_store("memory:"))
    settings: dict[str, Any] = {"data": str(tmp_path), "topics_workers": workers}
    async with broker:
        async with world(broker, **settings) as api:
            for one in await people(api):
                await api.subscribe(one)
        # When the server starts again, first with the same settings, then with others
        steps = []
        for retries in ({}, {"topics_retries": 77}):
            broker.steps = 0
            async with world(broker, **settings, **retries):
                steps.append(broker.steps)
        # Then it sees to the queue, and the second time to the three subscriptions as well
        assert steps == [1, 4]
        found = await broker.subscriptions(QUEUE)
        assert {one.config.max_deliveries for one in found} == {78}


@pytest.mark.parametrize("fails_at", range(6))
async def test_after_a_crash_between_any_two_steps_nobody_is_overtaken_or_stuck(
    tmp_path: Path, fails_at: int
) -> None:
    broker = Stepping(await open_store("memory:"))
    data: dict[str, Any] = {"data": str(tmp_path)}
    async with broker:
        async with world(broker, **data) as api:
            a, _, c = await people(api)
            last = await api.subscribe(c)
            await api.wait_for(c, a)
            # Given a subscription during which the power goes out
            broker.steps, broker.fails_at = 0, fails_at
            value = {"topic": "sql", "callback_url": "http://127.0.0.1:1/"}
            answer = await api.post("/api/consumers/subscribe", value, a.token)
            is_done = answer.status == 200
            assert answer.status in (200, 503)
            broker.fails_at = -1
            await api.publish(1)
        async with world(broker, **data) as api:
            # Then after the restart C is not stuck, if A's was never made
            if not is_done:
                assert await api.take(last) == [1]
            # And when A tries again, all is as it should be
            first = await api.subscribe(a)
            await api.publish(2)
            assert 2 not in await api.take(last)
            assert 2 in await api.take(first)
            assert 2 in await api.take(last)


@pytest.mark.parametrize("fails_at", range(1, 5))
async def test_a_subscription_that_fails_leaves_nobody_waiting(fails_at: int) -> None:
    broker = Stepping(await open_store("memory:"))
    async with broker, world(broker) as api:
        a, _, c = await people(api)
        last = await api.subscribe(c)
        await api.wait_for(c, a)
        broker.steps, broker.fails_at, broker.fails_once = 0, fails_at, True
        value = {"topic": "sql", "callback_url": "http://127.0.0.1:1/"}
        answer = await api.post("/api/consumers/subscribe", value, a.token)
        assert answer.status == 503
        await api.publish(1)
        assert await api.take(last) == [1]


async def test_a_crash_between_the_users_file_and_the_queue_is_put_right(tmp_path: Path) -> None:
    broker = Stepping(await open_store("memory:"))
    data: dict[str, Any] = {"data": str(tmp_path)}
    async with broker:
        async with world(broker, **data) as api:
            a, b, c = await people(api)
            first, other, last = [await api.subscribe(one) for one in (a, b, c)]
            admin = await api.admin()
            broker.steps, broker.fails_at = 0, 0
            answer = await api.post(ADD, {"user": c.id, "dependent_on": [a.id]}, admin)
            assert answer.status == 503
            path = f"/admin/subscribers/{b.email}"
            assert (await api.app.ask("DELETE", path, authorization=admin)).status == 503
            broker.fails_at = -1
        async with world(broker, **data) as api:
            assert await api.after() == {first: set(), last: {first}}
            assert other not in await api.after()


async def test_a_server_whose_disk_is_full_at_start_starts_all_the_same(tmp_path: Path) -> None:
    broker = Stepping(await open_store("memory:"))
    async with broker:
        async with world(broker, data=str(tmp_path)) as api:
            name = await api.subscribe(await api.person("a"))
        broker.steps, broker.fails_at = 0, 0
        async with world(broker, data=str(tmp_path), topics_size=5) as api:
            await api.broker.publish(QUEUE, [NewMessage(body=b"1", topic="sql")])
            assert await api.take(name) == [1]
