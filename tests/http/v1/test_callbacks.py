"""Callbacks in the definition of a subscription, and the secrets that sign them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.v1.conftest import Api

URL = "https://a.example/hook"


def test_a_subscription_is_made_with_its_callback_in_one_call(api: Api, queue: str) -> None:
    reply = api.post(
        f"{queue}/subscriptions",
        {
            "name": "s",
            "filter": "priority > 3",
            "after": ["default"],
            "callback": {"url": URL, "concurrency": 2, "timeout_seconds": 9},
        },
    )

    assert reply.status == 201
    assert reply.json["config"]["callback"] == {
        "url": URL,
        "mode": "deliver",
        "concurrency": 2,
        "connect_seconds": 5.0,
        "timeout_seconds": 9.0,
        "ordered": False,
        "cloudevents": False,
    }


def test_the_secret_is_answered_once(api: Api, queue: str) -> None:
    made = api.post(f"{queue}/subscriptions", {"name": "s", "callback": {"url": URL}})
    secret = made.json["secret"]

    assert secret.startswith("whsec_")
    for path in (f"{queue}/subscriptions/s", f"{queue}/subscriptions", queue, "/v1/stats"):
        assert b"whsec_" not in api.get(path).body
    altered = api.call("PATCH", f"{queue}/subscriptions/s", {"callback": {"url": f"{URL}/2"}})
    assert altered.json["config"]["callback"]["url"] == f"{URL}/2"
    assert "secret" not in altered.json


def test_a_callback_added_later_answers_its_secret(api: Api, queue: str) -> None:
    assert "secret" not in api.post(f"{queue}/subscriptions", {"name": "s"}).json
    altered = api.call("PATCH", f"{queue}/subscriptions/s", {"callback": {"url": URL}})
    assert altered.json["secret"].startswith("whsec_")


def test_a_rotation_answers_the_new_secret(api: Api, queue: str) -> None:
    made = api.post(f"{queue}/subscriptions", {"name": "s", "callback": {"url": URL}})
    rotated = api.post(f"{queue}/subscriptions/s/secret/rotate")

    assert rotated.status == 200
    assert rotated.json["secret"].startswith("whsec_")
    assert rotated.json["secret"] != made.json["secret"]


def test_only_an_admin_gets_a_secret(api: Api, user: Api, queue: str) -> None:
    new = {"name": "s", "callback": {"url": URL}}
    assert user.post(f"{queue}/subscriptions", new).status == 403
    api.post(f"{queue}/subscriptions", new)
    assert user.post(f"{queue}/subscriptions/s/secret/rotate").status == 403


@pytest.mark.parametrize(
    "callback",
    [
        "https://a.example/",
        {},
        {"url": "ftp://a.example/"},
        {"url": "http://me:secret@a.example/"},
        {"url": URL, "mode": "push"},
        {"url": URL, "concurrency": 0},
        {"url": URL, "timeout_seconds": -1},
        {"url": URL, "secret": "whsec_AAAA"},
    ],
)
def test_a_callback_that_cannot_be_is_refused(api: Api, queue: str, callback: Any) -> None:
    reply = api.post(f"{queue}/subscriptions", {"name": "s", "callback": callback})

    assert reply.status == 400
    assert reply.json["code"] == "invalid_argument"
    assert "callback" in reply.json["detail"]
    assert api.get(f"{queue}/subscriptions/s").status == 404
