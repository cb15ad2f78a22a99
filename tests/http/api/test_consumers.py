"""``POST /api/consumers/subscribe`` and ``unsubscribe``, and what a publish reaches."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.http.api import topics
from tests.http.api.world import QUEUE, World, world

SUBSCRIBE = "/api/consumers/subscribe"
PUBLISH = "/api/producers/publish"


async def test_it_answers_as_the_document_shows(api: World) -> None:
    person = await api.person("a")
    value = {"topic": "sql", "callback_url": "localhost:8000/consume"}
    answer = await api.post(SUBSCRIBE, value, person.token)
    assert answer.status == 200
    assert answer.json["success"] is True
    assert answer.json["message"] == "subscribed."
    answer = await api.post(PUBLISH, {"topic": "sql", "content": "mysql"}, person.token)
    assert (answer.status, answer.json) == (200, {"success": True, "message": "Published."})


async def test_a_url_without_a_scheme_is_http(api: World) -> None:
    person = await api.person("a")
    name = await api.subscribe(person, callback_url="localhost:8000/consume")
    [one] = (await api.broker.queue_stats(QUEUE)).subscriptions
    assert one.name == name
    assert one.config.callback is not None
    assert one.config.callback.url == "http://localhost:8000/consume"


async def test_the_secret_of_the_calls_is_answered_once(api: World) -> None:
    person = await api.person("a")
    value = {"topic": "sql", "callback_url": "http://127.0.0.1:1/"}
    first = await api.post(SUBSCRIBE, value, person.token)
    again = await api.post(SUBSCRIBE, value, person.token)
    [target] = await api.broker.callbacks()
    assert target.secrets == (first.json["secret"],)
    assert "secret" not in again.json


async def test_a_publish_reaches_every_consumer_of_its_topic_and_nobody_else(api: World) -> None:
    a, b, c = [await api.person(name) for name in "abc"]
    first, second, other = [
        await api.subscribe(a, "sql"),
        await api.subscribe(b, "sql"),
        await api.subscribe(c, "nosql"),
    ]
    await api.publish({"n": 1}, "sql")
    await api.publish({"n": 2}, "nosql")
    await api.publish({"n": 3}, "unheard of")
    assert await api.take(first) == [{"n": 1}]
    assert await api.take(second) == [{"n": 1}]
    assert await api.take(other) == [{"n": 2}]


async def test_a_consumer_may_have_many_topics_each_with_its_url(api: World) -> None:
    a = await api.person("a")
    sql = await api.subscribe(a, "sql", callback_url="http://127.0.0.1:1/sql")
    nosql = await api.subscribe(a, "nosql", callback_url="http://127.0.0.1:1/nosql")
    targets = {one.subscription: one.callback.url for one in await api.broker.callbacks()}
    assert targets == {sql: "http://127.0.0.1:1/sql", nosql: "http://127.0.0.1:1/nosql"}


async def test_a_filter_looks_into_the_content(api: World) -> None:
    a, b, c = [await api.person(name) for name in "abc"]
    large = await api.subscribe(a, "orders", filter="body.amount > 100")
    everywhere = await api.subscribe(b, None, filter="has(body.amount) && body.amount > 100")
    commented = await api.subscribe(c, "orders", filter="body.amount <= 100 // small ones")
    for topic, amount in (("orders", 50), ("orders", 150), ("refunds", 200)):
        await api.publish({"amount": amount}, topic)
    await api.publish("no amount", "orders")
    assert await api.take(large) == [{"amount": 150}]
    assert await api.take(everywhere) == [{"amount": 150}, {"amount": 200}]
    assert await api.take(commented) == [{"amount": 50}]


@pytest.mark.parametrize(
    "filter",
    [
        "",
        " ",
        "body.",
        "1",
        "'a'",
        "true) || (true",
        ") || (",
        "true // )\n|| (",
        "nobody == 1",
        "(",
    ],
)
async def test_a_filter_that_is_none_is_refused(api: World, filter: str) -> None:
    a = await api.person("a")
    value = {"topic": "sql", "callback_url": "http://127.0.0.1:1/", "filter": filter}
    answer = await api.post(SUBSCRIBE, value, a.token)
    assert (answer.status, answer.json["success"]) == (400, False)
    # And nothing was made of it
    await api.publish(1)
    assert (await api.broker.queue_stats(QUEUE)).subscriptions == []


@pytest.mark.parametrize(
    "topic", ['a"b', "a\\b", "a'b", "ünï", "😀", '" || true || topic == "', "a b", "\\u0041", "`"]
)
async def test_a_topic_is_taken_as_it_is(api: World, topic: str) -> None:
    a = await api.person("a")
    name = await api.subscribe(a, topic)
    await api.publish(1, topic)
    await api.publish(2, "another")
    assert await api.take(name) == [1]


async def test_subscribing_again_changes_the_url_and_keeps_the_backlog(api: World) -> None:
    a = await api.person("a")
    name = await api.subscribe(a)
    await api.publish(1)
    await api.broker.pause(QUEUE, name)
    assert await api.subscribe(a, callback_url="http://127.0.0.1:2/") == name
    [target] = await api.broker.callbacks()
    assert target.callback.url == "http://127.0.0.1:2/"
    # And what was paused goes on
    assert await api.take(name) == [1]


async def test_what_was_published_before_is_not_delivered(api: World) -> None:
    a = await api.person("a")
    await api.publish(1)
    name = await api.subscribe(a)
    await api.publish(2)
    assert await api.take(name) == [2]


async def test_who_unsubscribes_is_called_no_more(api: World) -> None:
    a = await api.person("a")
    await api.subscribe(a, "sql")
    kept = await api.subscribe(a, "nosql")
    answer = await api.post("/api/consumers/unsubscribe", {"topic": "sql"}, a.token)
    assert answer.json == {"success": True, "message": "unsubscribed."}
    assert [one.subscription for one in await api.broker.callbacks()] == [kept]
    answer = await api.post("/api/consumers/unsubscribe", {"topic": "sql"}, a.token)
    assert (answer.status, answer.json["code"]) == (404, "subscription_not_found")


async def test_a_consumer_has_only_so_many_subscriptions(
    api: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MAX_SUBSCRIPTIONS", 2)
    a, b = await api.person("a"), await api.person("b")
    for topic in ("one", "two", "one"):
        await api.subscribe(a, topic)
    value = {"topic": "three", "callback_url": "http://127.0.0.1:1/"}
    answer = await api.post(SUBSCRIBE, value, a.token)
    assert (answer.status, answer.json["code"]) == (409, "conflict")
    # Others have their own, and who ends one may have another
    await api.subscribe(b, "three")
    await api.post("/api/consumers/unsubscribe", {"topic": "one"}, a.token)
    await api.subscribe(a, "three")


async def test_a_removed_user_is_called_no_more(api: World) -> None:
    a, b = await api.person("a"), await api.person("b")
    await api.subscribe(a)
    kept = await api.subscribe(b)
    path = f"/admin/subscribers/{a.email}"
    assert (await api.app.ask("DELETE", path, authorization=await api.admin())).status == 204
    assert [one.subscription for one in await api.broker.callbacks()] == [kept]


@pytest.mark.parametrize("content", ["text", 1, 1.5, None, True, [], {}, [1, {"a": None}], "ü😀\0"])
async def test_content_is_any_json_and_comes_as_it_was(api: World, content: object) -> None:
    a = await api.person("a")
    name = await api.subscribe(a)
    assert (await api.publish(content)).status == 200
    [delivery] = await api.broker.receive(QUEUE, subscription=name)
    assert delivery.content_type == "application/json"
    assert delivery.topic == "sql"
    await api.broker.nack(QUEUE, [delivery], name, delay_seconds=0)
    assert await api.take(name) == [content]


async def test_content_is_not_written_anew(api: World) -> None:
    a = await api.person("a")
    name = await api.subscribe(a)
    content = b'{"b": 1.0, "a": 12345678901234567890, "b": "\\u00fc"}'
    await api.post(PUBLISH, b'{"content": ' + content + b', "topic": "sql"}', a.token)
    [delivery] = await api.broker.receive(QUEUE, subscription=name)
    assert delivery.body == content


async def test_a_full_queue_refuses_and_loses_nothing() -> None:
    async with world(topics_size=2) as api:
        a = await api.person("a")
        name = await api.subscribe(a)
        for content in (1, 2):
            assert (await api.publish(content)).status == 200
        refused = await api.publish(3)
        assert refused.status == 429
        assert refused.json["success"] is False
        assert refused.json["code"] == "queue_full"
        assert refused.headers["retry-after"] == "1"
        assert await api.take(name) == [1, 2]
        assert (await api.publish(3)).status == 200
        assert await api.take(name) == [3]


async def test_a_queue_without_consumers_is_never_full() -> None:
    async with world(topics_size=1) as api:
        for _ in range(3):
            assert (await api.publish(1)).status == 200


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"topic": "a"},
        {"callback_url": "http://a"},
        {"topic": "", "callback_url": "http://a"},
        {"topic": "a\n", "callback_url": "http://a"},
        {"topic": "a\0", "callback_url": "http://a"},
        {"topic": "x" * 201, "callback_url": "http://a"},
        {"topic": 1, "callback_url": "http://a"},
        {"topic": "a", "callback_url": ""},
        {"topic": "a", "callback_url": 1},
        {"topic": "a", "callback_url": "ftp://a"},
        {"topic": "a", "callback_url": "http://"},
        {"topic": "a", "callback_url": "http://u:p@a/"},
        {"topic": "a", "callback_url": "x" * 2001},
        {"topic": "a", "callback_url": "http://a", "filtr": "true"},
        {"topic": "a", "callback_url": "http://a", "filter": 1},
        {"topic": "a", "callback_url": "http://a", "filter": "x" * 5000},
    ],
)
async def test_anything_else_is_no_subscription(api: World, value: object) -> None:
    a = await api.person("a")
    answer = await api.post(SUBSCRIBE, value, a.token)
    assert (answer.status, answer.json["success"]) == (400, False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"topic": "a"}',
        b'{"content": 1}',
        b'{"topic": "", "content": 1}',
        b'{"topic": "a", "content": }',
        b'{"topic": "a", "content": 01}',
        b'{"topic": "a", "content": "\xff"}',
        b'{"topic": "a", "content": "\\ud800"}',
        b'{"topic": "a", "content": ' + b"[" * 50_000 + b"}",
        b'{"topic": "a", "content": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"topic": "a", "content": 1, "more": 1}',
        b'{"topic": 1, "content": 1}',
        b'{"topic": "a\\u0000", "content": 1}',
    ],
)
async def test_anything_else_is_no_content(api: World, body: bytes) -> None:
    answer = await api.post(PUBLISH, body, await api.log_in("user", "password"))
    assert (answer.status, answer.json["success"]) == (400, False)


async def test_content_that_is_too_large_is_refused(api: World) -> None:
    answer = await api.publish("x" * (1024 * 1024 - 2))
    assert answer.status == 200
    for content in ("x" * (1024 * 1024), "x" * (1024 * 1024 + 5000)):
        answer = await api.publish(content)
        assert (answer.status, answer.json["success"]) == (413, False)


async def test_a_queue_of_somebody_else_is_left_alone(api: World) -> None:
    # Given a consumer group of that name that is in use
    push = await api.app.ask("POST", "/queue/push", b"hello", consumerGroup=QUEUE)
    assert push.status == 200
    a = await api.person("a")
    # Then neither call touches it, and both say what to do
    for path, value in (
        (SUBSCRIBE, {"topic": "sql", "callback_url": "http://127.0.0.1:1/"}),
        (PUBLISH, {"topic": "sql", "content": 1}),
    ):
        answer = await api.post(path, value, a.token)
        assert (answer.status, answer.json["code"]) == (409, "conflict")
        assert "PENSTOCK_TOPICS_QUEUE" in answer.json["message"]
    pop = await api.app.ask("GET", "/queue/pop", consumerGroup=QUEUE)
    assert (pop.status, pop.json["content"]) == (200, "hello")


async def test_a_queue_that_was_deleted_is_made_again(api: World) -> None:
    a = await api.person("a")
    await api.subscribe(a)
    await api.broker.delete_queue(QUEUE)
    assert (await api.publish(1)).status == 200
    await api.broker.delete_queue(QUEUE)
    name = await api.subscribe(a)
    await api.publish(2)
    assert await api.take(name) == [2]


async def test_the_settings_are_those_of_the_queue_and_its_consumers(api: World) -> None:
    a = await api.person("a")
    await api.subscribe(a)
    queue = await api.broker.queue_stats(QUEUE)
    config = queue.subscriptions[0].config
    assert queue.config.max_messages == 10_000
    assert config.max_deliveries == 6
    assert config.callback is not None
    assert (config.callback.concurrency, config.callback.ordered) == (8, False)


async def test_one_worker_calls_in_order() -> None:
    async with world(topics_workers=1) as api:
        await api.subscribe(await api.person("a"))
        config = (await api.broker.queue_stats(QUEUE)).subscriptions[0].config
        assert config.max_in_flight == 1
        assert config.callback is not None
        assert config.callback.ordered


async def test_changed_settings_count_from_the_next_start_on(tmp_path: Any) -> None:
    async with world(data=str(tmp_path), topics_workers=1) as api:
        name = await api.subscribe(await api.person("a"))
        changed: dict[str, Any] = {
            "topics_size": 7,
            "topics_workers": 3,
            "topics_retries": 0,
        }
        async with world(api.broker, data=str(tmp_path), **changed):
            queue = await api.broker.queue_stats(QUEUE)
            [one] = queue.subscriptions
            assert one.name == name
            assert queue.config.max_messages == 7
            config = one.config
            assert config.max_deliveries == 1
            assert config.max_in_flight > 3
            assert config.callback is not None
            assert config.callback.url == "http://127.0.0.1:1/"
            assert (config.callback.concurrency, config.callback.ordered) == (3, False)
