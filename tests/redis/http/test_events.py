"""The events of a queue, asked for at a server that keeps its messages in Redis."""

from __future__ import annotations

from tests.http.client import Client
from tests.http.server import Server


def test_what_happened_is_answered_row_by_row(server: Server, admin: Client, user: Client) -> None:
    made = admin.send_json("POST", "/v1/queues", {"name": "told", "events": True})
    assert made.status == 201, made.body
    pushed = [user.push("told", str(number)).json["id"] for number in range(2)]
    assert user.pop("told").json["id"] == pushed[0]
    assert user.ack("told", pushed[0]).status == 200
    answer = user.ask("GET", "/v1/queues/told/events")
    assert answer.status == 200, answer.body
    rows = [(row["event"], row["index"]) for row in answer.json["events"]]
    assert rows == [("published", 0), ("published", 1), ("delivered", 0), ("acked", 0)]
