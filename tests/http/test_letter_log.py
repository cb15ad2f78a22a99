"""The lines that dead letters leave in the log."""

from __future__ import annotations

import asyncio
import time

import pytest
import structlog
from structlog.testing import capture_logs

from penstock import letter_log
from penstock.core.message import DeadLetter
from penstock.letter_log import LetterLog
from tests.http.client import Client
from tests.http.server import Server


def letter(index: int, *, subscription: str = "default", reason: str = "no good") -> DeadLetter:
    return DeadLetter(
        queue="jobs",
        subscription=subscription,
        index=index,
        deliveries=3,
        reason=reason,
        failed_at_ns=0,
    )


def test_a_letter_is_one_line_without_what_is_in_it(
    server: Server, user: Client, admin: Client, group: str
) -> None:
    # Given a message that may be delivered once
    id = user.push(group, "a-private-matter").json["id"]
    path = f"/v1/queues/{group}/subscriptions/default"
    assert admin.send_json("PATCH", path, {"max_deliveries": 1}).status == 200
    assert user.pop(group).status == 200
    # When its consumer gives up on it
    nacked = user.ask("POST", f"/queue/nack?id={id}&reason=poison", consumerGroup=group)
    assert nacked.status == 200, nacked.body
    # Then the log says so
    deadline = time.monotonic() + 10
    while not (found := [one for one in server.log_lines() if one.get("id") == id]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    [line] = found
    assert line.pop("timestamp")
    assert line == {
        "event": "a message became a dead letter",
        "level": "warning",
        "queue": group,
        "subscription": "default",
        "id": id,
        "index": 0,
        "deliveries": 1,
        "reason": "poison",
    }
    assert "a-private-matter" not in server.log_text()


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_log, "_SECONDS", 0.01)


async def test_a_flood_is_a_few_lines_and_a_number(seconds: None) -> None:
    log = LetterLog(most_lines=3)
    with capture_logs() as lines:
        # When many letters come at once, on two subscriptions
        for index in range(1000):
            log.buried(f"id-{index}", letter(index))
        log.buried("other", letter(0, subscription="other"))
        log.more("jobs", 500)
        while len(lines) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0)
        # Then there are the first of each, and how many more there were
        told = [one for one in lines if one["event"] == "a message became a dead letter"]
        assert [one["id"] for one in told] == ["id-0", "id-1", "id-2", "other"]
        counted = [one for one in lines if one["event"] == "more messages became dead letters"]
        assert sorted((one.get("subscription", ""), one["count"]) for one in counted) == [
            ("", 500),
            ("default", 997),
        ]
        # And in the next second it begins anew
        lines.clear()
        log.buried("later", letter(2000))
        await asyncio.sleep(0)
        assert [one["id"] for one in lines] == ["later"]
        log.close()
        assert len(lines) == 1


async def test_what_was_left_out_is_said_at_the_end(seconds: None) -> None:
    log = LetterLog(most_lines=1)
    with capture_logs() as lines:
        for index in range(3):
            log.buried(f"id-{index}", letter(index))
        log.close()
        await asyncio.sleep(0)
    assert [one.get("count") for one in lines] == [2, None]


async def test_a_reason_cannot_pretend_to_be_another_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = structlog.get_config()
    log = LetterLog()
    try:
        letter_log.logger = structlog.get_logger()
        log.buried("id", letter(0, reason="x\n2026 [error] all is lost \x1b[31m"))
        await asyncio.sleep(0)
    finally:
        structlog.configure(**before)
    log.close()
    written = capsys.readouterr()
    text = written.out + written.err
    assert "all is lost" in text
    assert len(text.splitlines()) == 1
    assert "\x1b[31m" not in text
