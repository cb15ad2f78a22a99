"""Receive, poll, ask again and settle over the native API; long polls."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.http.v1.conftest import Api, Server, running


def fill(api: Api, queue: str, count: int) -> None:
    for number in range(count):
        assert api.send("POST", f"{queue}/messages", str(number).encode()).status == 201


def receive(api: Api, queue: str, **asked: Any) -> list[dict[str, Any]]:
    reply = api.post(f"{queue}/subscriptions/default/receive", asked)
    assert reply.status == 200, reply.json
    found: list[dict[str, Any]] = reply.json["deliveries"]
    return found


def test_a_delivery_is_the_message_with_receipt_count_and_deadline(user: Api, queue: str) -> None:
    fill(user, queue, 2)

    first, second = receive(user, queue, lease_seconds=60)

    assert (first["index"], first["body"], first["deliveries"]) == (0, "0", 1)
    assert first["receipt"] != second["receipt"]
    assert first["deadline"].endswith("Z")
    assert receive(user, queue) == []


def test_a_receive_without_a_body_takes_ten(api: Api, queue: str) -> None:
    fill(api, queue, 12)

    reply = api.post(f"{queue}/subscriptions/default/receive")

    assert len(reply.json["deliveries"]) == 10


def test_a_receive_of_many_gives_all_the_small_ones_but_not_all_the_large(
    api: Api, queue: str
) -> None:
    lines = {"Content-Type": "application/x-ndjson"}
    large = b'{"body": "%s"}' % (b"x" * 150_000) + b"\n"
    api.send("POST", f"{queue}/messages", b'{"body": "x"}\n' * 250, {**lines})
    small = receive(api, queue, limit=1000)
    for _ in range(3):
        assert api.send("POST", f"{queue}/messages", large * 50, {**lines}).status == 201

    assert len(small) == 250
    assert [len(receive(api, queue, limit=1000)) for _ in range(3)] == [111, 39, 0]


def test_one_request_acks_nacks_and_extends(user: Api, queue: str) -> None:
    fill(user, queue, 5)
    acked, nacked, extended, by_id, _ = receive(user, queue)

    reply = user.post(
        f"{queue}/subscriptions/default/settle",
        {
            "ack": [acked["receipt"], by_id["id"], "01a1dee3-8e5a-7000-8000-00001648cca2"],
            "nack": [{"targets": [nacked["receipt"]], "delay_seconds": 0, "reason": "busy"}],
            "extend": [{"targets": [extended["receipt"], acked["receipt"]], "seconds": 60}],
        },
    )

    assert reply.json == {
        "ack": ["done", "done", "not_found"],
        "nack": [["done"]],
        "extend": [["done", "already_settled"]],
        "give_back": [],
        "acked_up_to": 0,
    }
    [again] = receive(user, queue)
    assert (again["index"], again["deliveries"]) == (nacked["index"], 2)
    stale = user.post(f"{queue}/subscriptions/default/settle", {"ack": [nacked["receipt"]]})
    assert stale.json["ack"] == ["not_leased"]


def test_a_lease_can_be_made_longer_by_some_seconds(user: Api, queue: str) -> None:
    fill(user, queue, 1)
    [delivery] = receive(user, queue, lease_seconds=60)

    extend = {"targets": [delivery["receipt"]], "seconds": 10, "further": True}
    reply = user.post(f"{queue}/subscriptions/default/settle", {"extend": [extend]})

    assert reply.json["extend"] == [["done"]]
    [viewed] = user.get(f"{queue}/subscriptions/default/messages").json["messages"]
    until, before = (
        datetime.fromisoformat(text) for text in (viewed["leased_until"], delivery["deadline"])
    )
    assert until - before == timedelta(seconds=10)


def test_everything_below_an_index_can_be_acked(user: Api, queue: str) -> None:
    fill(user, queue, 5)

    reply = user.post(f"{queue}/subscriptions/default/settle", {"ack_up_to": 3})

    nothing: dict[str, list[str]] = {"ack": [], "nack": [], "extend": [], "give_back": []}
    assert reply.json == {**nothing, "acked_up_to": 3}
    assert [one["index"] for one in receive(user, queue)] == [3, 4]


def test_settling_nothing_is_allowed_on_what_exists(api: Api, queue: str) -> None:
    empty = {"ack": [], "nack": [], "extend": [], "give_back": [], "acked_up_to": 0}

    assert api.post(f"{queue}/subscriptions/default/settle", {}).json == empty
    assert api.post(f"{queue}/subscriptions/none/settle", {}).status == 404


@pytest.mark.parametrize(
    ("call", "body", "named"),
    [
        ("receive", {"limit": 0}, "limit"),
        ("receive", {"limit": 1001}, "limit"),
        ("receive", {"wait_seconds": 21}, "wait_seconds"),
        ("receive", {"lease_seconds": 0}, "lease_seconds"),
        ("receive", {"max": 3}, "max"),
        ("poll", {"start": 0}, "count"),
        ("poll", {"start": -1, "count": 1}, "start"),
        ("again", {"index": "0"}, "index"),
        ("settle", {"ack": ["nonsense"]}, "nonsense"),
        ("settle", {"ack": "nonsense"}, "ack"),
        ("settle", {"nack": [{"targets": [], "delay_seconds": -1}]}, "nack[0].delay_seconds"),
        ("settle", {"extend": [{"targets": []}]}, "seconds"),
        ("settle", {"ack_up_to": -1}, "ack_up_to"),
    ],
)
def test_what_is_wrong_with_a_call_is_named(
    api: Api, queue: str, call: str, body: Any, named: str
) -> None:
    reply = api.post(f"{queue}/subscriptions/default/{call}", body)

    assert reply.status == 400
    assert named in reply.json["detail"]


def test_a_poll_leases_by_index_and_again_repeats_one(user: Api, queue: str) -> None:
    fill(user, queue, 5)
    path = f"{queue}/subscriptions/default"

    polled = user.post(f"{path}/poll", {"start": 1, "count": 2}).json["deliveries"]
    again = user.post(f"{path}/again", {"index": 1})

    assert [one["index"] for one in polled] == [1, 2]
    assert (again.json["index"], again.json["deliveries"]) == (1, 2)
    assert user.post(f"{path}/again", {"index": 99}).json["code"] == "message_not_found"
    assert user.post(f"{path}/again", {"index": 4}).json["code"] == "not_leased"


def test_a_long_poll_is_answered_when_a_message_comes(api: Api, queue: str, server: Server) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(receive, api.anew(), queue, wait_seconds=20)
        _until(lambda: len(server.broker._polls._waiting) == 1)
        fill(api, queue, 1)

        assert len(waiting.result(15)) == 1


def test_a_long_poll_ends_with_nothing_when_its_time_is_up(api: Api, queue: str) -> None:
    began = time.monotonic()

    assert receive(api, queue, wait_seconds=0.2) == []
    assert 0.2 <= time.monotonic() - began < 15


def test_a_client_that_went_away_is_not_handed_a_message(
    api: Api, queue: str, server: Server
) -> None:
    # Given a long poll whose client closes its connection.
    gone = api.anew()
    path = f"{queue}/subscriptions/default/receive"
    thread = threading.Thread(target=lambda: _ignore(gone, path))
    thread.start()
    _until(lambda: len(server.broker._polls._waiting) == 1)
    gone.hang_up()
    thread.join(5)
    _until(lambda: not server.broker._polls._waiting)

    # When a message comes, it is there for the next one.
    fill(api, queue, 1)
    assert [one["deliveries"] for one in receive(api, queue)] == [1]


def test_long_polls_end_at_once_when_the_server_stops() -> None:
    with running() as server, ThreadPoolExecutor(8) as threads:
        api = Api(server.port)
        api.post("/v1/queues", {"name": "q"})
        polls = [
            threads.submit(receive, api.anew(), "/v1/queues/q", wait_seconds=20) for _ in range(8)
        ]
        _until(lambda: len(server.broker._polls._waiting) == len(polls))
        began = time.monotonic()

        server.stop()

        assert time.monotonic() - began < 15
        assert [poll.result(1) for poll in polls] == [[]] * len(polls)
        api.close()


def test_a_long_poll_on_a_queue_that_is_deleted_is_told_so(
    api: Api, queue: str, server: Server
) -> None:
    path = f"{queue}/subscriptions/default/receive"
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(api.anew().post, path, {"wait_seconds": 10})
        _until(lambda: len(server.broker._polls._waiting) == 1)
        api.call("DELETE", queue)

        assert waiting.result(5).json["code"] == "queue_not_found"


def _ignore(api: Api, path: str) -> None:
    try:
        api.post(path, {"wait_seconds": 20})
    except Exception:
        return


def _until(condition: Any) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_is_given_back_does_not_count(api: Api, queue: str) -> None:
    fill(api, queue, 2)
    path = f"{queue}/subscriptions/default"
    taken = api.post(f"{path}/receive", {"limit": 2}).json["deliveries"]
    receipts = [one["receipt"] for one in taken]

    reply = api.post(f"{path}/settle", {"give_back": receipts, "ack_up_to": 0})

    assert reply.json["give_back"] == ["done", "done"]
    again = api.post(f"{path}/receive", {"limit": 2}).json["deliveries"]
    assert [(one["index"], one["deliveries"]) for one in again] == [(0, 1), (1, 1)]
    assert api.get(path).json["returned"] == 2
    assert api.post(f"{path}/settle", {"ack": receipts}).json["ack"] == ["not_leased"] * 2


def test_a_poll_of_large_messages_ends_early_and_goes_on_from_there(api: Api, queue: str) -> None:
    body = b"x" * 1_000_000
    for _ in range(20):
        api.send("POST", f"{queue}/messages", body)
    path = f"{queue}/subscriptions/default/poll"

    first = api.post(path, {"start": 0, "count": 20}).json["deliveries"]
    rest = api.post(path, {"start": 0, "count": 20}).json["deliveries"]

    assert [one["index"] for one in first + rest] == list(range(20))
    assert len(first) == 16
