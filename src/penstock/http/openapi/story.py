"""The story that the request collection tells: its calls in order, and what each of them sends.

A value in double braces is a variable, of the collection or saved from an earlier answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["STORY", "VARIABLES", "Step"]

VARIABLES = {
    "baseUrl": "http://127.0.0.1:8080",
    "username": "admin",
    "password": "adminpassword",
    "group": "collection-group",
    "queue": "collection-queue",
    "subscription": "collection-readers",
    "subscriber": "collection-user",
    "email": "collection@example.com",
    "topics": "topics",
}

_BATCH = "application/vnd.penstock.batch+json"


class Step(NamedTuple):
    """One request.

    - `values`: those of its parameters.
    - `saves`: variables to set, each from a place in the answer's JSON.
    - `status`: what to expect; None is the document's first successful one.
    """

    method: str
    path: str
    body: Any = None
    values: Mapping[str, str] = {}
    saves: Mapping[str, str] = {}
    status: int | None = None
    content_type: str | None = None
    name: str | None = None


_MESSAGES = "/v1/queues/{queue}/messages"
_LETTERS = "/v1/queues/{queue}/dead-letters"
_READERS = "/v1/queues/{queue}/subscriptions"
_READER = f"{_READERS}/{{subscription}}"

STORY: dict[str, list[Step]] = {
    "Health and figures": [
        Step("GET", "/livez"),
        Step("GET", "/readyz"),
        Step("GET", "/actuator/health"),
        Step("GET", "/metrics"),
        Step("GET", "/actuator/loggers"),
        Step(
            "POST", "/actuator/loggers/{name}", {"configuredLevel": "INFO"}, values={"name": "ROOT"}
        ),
        Step("GET", "/openapi.json"),
        Step("GET", "/docs"),
        Step("GET", "/swagger-ui/index.html"),
    ],
    "Users": [
        Step(
            "POST",
            "/admin/subscribers",
            {"username": "{{subscriber}}", "password": "a first password", "role": "USER"},
        ),
        Step("GET", "/admin/subscribers"),
        Step(
            "POST",
            "/auth/local",
            {"username": "{{subscriber}}", "password": "a first password"},
            saves={"token": "token"},
        ),
        Step(
            "POST",
            "/auth/password",
            {
                "username": "{{subscriber}}",
                "password": "a first password",
                "new_password": "a second password",
            },
        ),
        Step(
            "PATCH",
            "/admin/subscribers/{username}",
            {"password": "a third password", "rateLimit": 100},
            values={"username": "{{subscriber}}"},
        ),
        Step("DELETE", "/admin/subscribers/{username}", values={"username": "{{subscriber}}"}),
    ],
    "LightQ's API": [
        Step("POST", "/queue/push", "Hello, World!", saves={"messageId": "id"}),
        Step("GET", "/queue/view", values={"messageCount": "10", "consumed": "no"}),
        Step("GET", "/queue/pop"),
        Step("POST", "/queue/extend-visibility", values={"seconds": "60"}),
        Step("POST", "/queue/nack", values={"reason": "retry"}),
        Step("POST", "/queue/ack"),
        Step("POST", "/queue/batch/push", ["one", "two"], saves={"messageId": "[0].id"}),
        Step("GET", "/queue/batch/pop", values={"count": "2"}),
        Step("POST", "/queue/batch/ack", ["{{messageId}}"]),
        Step("GET", "/queue/dlq/view", values={"limit": "10"}),
        Step("POST", "/queue/dlq/replay", ["{{messageId}}"]),
        Step(
            "DELETE",
            "/v1/queues/{queue}",
            values={"queue": "{{group}}"},
            name="Delete the group, which is a queue",
        ),
    ],
    "Topics": [
        Step(
            "POST",
            "/api/users/create",
            {"name": "A consumer", "email": "{{email}}", "password": "a password", "role": "user"},
            saves={"consumer": "id"},
        ),
        Step(
            "POST",
            "/api/consumers/addDependency",
            {"user": "{{consumer}}", "dependent_on": ["{{username}}"]},
        ),
        Step(
            "POST",
            "/api/consumers/subscribe",
            {"topic": "sql", "callback_url": "127.0.0.1:8000/consume"},
        ),
        Step("POST", "/api/producers/publish", {"topic": "sql", "content": "mysql"}),
        Step("POST", "/api/consumers/unsubscribe", {"topic": "sql"}),
        Step("DELETE", "/admin/subscribers/{username}", values={"username": "{{email}}"}),
        Step("DELETE", "/v1/queues/{queue}", values={"queue": "{{topics}}"}),
    ],
    "The native API": [
        Step("POST", "/v1/queues", {"name": "{{queue}}"}),
        Step("GET", "/v1/queues", values={"limit": "10"}),
        Step("GET", "/v1/queues/{queue}"),
        Step("PUT", "/v1/queues/{queue}"),
        Step("PATCH", "/v1/queues/{queue}", {"max_messages": 100_000}),
        Step("GET", "/v1/stats"),
        Step("POST", _READERS, {"name": "{{subscription}}", "start": "earliest"}),
        Step("GET", _READERS),
        Step("GET", _READER),
        Step("PUT", _READER, {"start": "earliest"}),
        Step("PATCH", _READER, {"lease_seconds": 60}),
        Step("POST", _MESSAGES, "Hello, World!", saves={"messageId": "messages[0].id"}),
        Step(
            "POST",
            _MESSAGES,
            {"messages": [{"body": "text"}, {"json": {"number": 1}, "topic": "numbers"}]},
            content_type=_BATCH,
            name="Publish a batch",
        ),
        Step("GET", _MESSAGES, values={"limit": "10"}),
        Step("GET", f"{_MESSAGES}/{{id}}"),
        Step(
            "POST",
            f"{_READER}/receive",
            {"limit": 1, "wait_seconds": 1},
            saves={"receipt": "deliveries[0].receipt"},
        ),
        Step(
            "POST",
            f"{_READER}/settle",
            {"nack": [{"targets": ["{{receipt}}"], "delay_seconds": 0, "reason": "retry"}]},
            name="Give a delivery back",
        ),
        Step("POST", f"{_READER}/poll", {"start": 1, "count": 1}),
        Step("POST", f"{_READER}/again", {"index": 1}, saves={"receipt": "receipt"}),
        Step(
            "POST",
            f"{_READER}/settle",
            {"ack": ["{{receipt}}", "{{messageId}}"]},
            name="Acknowledge, by receipt or id",
        ),
        Step("GET", f"{_READER}/held"),
        Step("POST", f"{_READER}/release", {"indexes": []}),
        Step("POST", f"{_READER}/pause"),
        Step("POST", f"{_READER}/resume"),
        Step("POST", f"{_READER}/seek", {"start": "earliest"}),
        Step("GET", _LETTERS, values={"limit": "10"}),
        Step("POST", f"{_LETTERS}/replay", {"ids": []}),
        Step("POST", f"{_LETTERS}/discard", {"ids": []}),
        Step("POST", "/v1/queues/{queue}/purge"),
        Step("DELETE", _READER),
        Step("DELETE", "/v1/queues/{queue}"),
    ],
}
