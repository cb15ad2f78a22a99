"""``penstock publish``."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell


def bodies(penstock: Shell, queue: str) -> list[str]:
    return [one["body"] for one in penstock.lines("view", queue, "--limit", "100000")]


def test_messages_on_the_command_line(penstock: Shell, queue: str) -> None:
    said = penstock.ok("publish", queue, "-m", "hello", "-m", "größer")

    assert said == f"published 2 messages to {queue}, index 0 to 1 (memory)\n"
    assert bodies(penstock, queue) == ["hello", "größer"]


def test_standard_input_is_one_message_to_the_byte(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, stdin=b"two\nlines\xff\n")
    (message,) = penstock.lines("view", queue)

    assert base64.b64decode(message["body_base64"]) == b"two\nlines\xff\n"


def test_each_file_is_one_message(penstock: Shell, queue: str, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("first\n")
    second.write_text("second")

    penstock.ok("publish", queue, str(first), str(second))

    assert bodies(penstock, queue) == ["first\n", "second"]


def test_with_lines_each_line_is_a_message_and_empty_ones_are_passed_over(
    penstock: Shell, queue: str
) -> None:
    said = penstock.ok("publish", queue, "--lines", "-", stdin="a\n\nb\r\nc")

    assert "published 3 messages" in said
    assert bodies(penstock, queue) == ["a", "b", "c"]


def test_a_large_file_takes_many_requests_and_keeps_its_order(
    penstock: Shell, queue: str, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    wanted = [f"{number:06} {'x' * 100}" for number in range(5_000)]
    path.write_text("\n".join(wanted))

    said = penstock.ok("publish", queue, "--lines", str(path))

    assert "index 0 to 4999" in said
    assert bodies(penstock, queue) == wanted


def test_with_ndjson_a_line_has_every_field_of_a_message(penstock: Shell, queue: str) -> None:
    fields = {
        "content_type": "text/plain",
        "attributes": {"colour": "red"},
        "topic": "orders.new",
        "priority": 3,
        "not_before": "2031-01-31T12:00:00Z",
        "expires_at": "2032-01-31T12:00:00Z",
        "group_key": "customer-7",
        "dedup_key": "once",
    }
    lines = [
        {"body": "text", **fields},
        {"body_base64": base64.b64encode(b"\xff\x00").decode()},
        {"json": {"amount": 7}},
    ]
    penstock.ok("publish", queue, "--ndjson", stdin="\n".join(map(json.dumps, lines)))

    text, binary, value = penstock.lines("view", queue)
    assert {name: text[name] for name in fields} == fields
    assert base64.b64decode(binary["body_base64"]) == b"\xff\x00"
    assert json.loads(value["body"]) == {"amount": 7}
    assert value["content_type"] == "application/json"


def test_what_view_prints_can_be_published_to_another_queue(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b", "--topic", "t")
    penstock.ok("queue", "create", f"{queue}-copy")

    printed = penstock.ok("view", queue, "--json")
    penstock.ok("publish", f"{queue}-copy", "--ndjson", stdin=printed)

    copies = penstock.lines("view", f"{queue}-copy")
    assert [(one["body"], one["topic"]) for one in copies] == [("a", "t"), ("b", "t")]


def test_options_say_what_the_messages_are(penstock: Shell, queue: str) -> None:
    options = "--content-type text/plain -a colour=red -a size=a=b --topic t --priority 4"
    keys = "--group-key g --dedup-key d"
    times = "--not-before 2031-01-01T00:00:00Z --expires-at 2032-01-01T00:00:00Z"
    told = f"{options} {keys} {times}".split()
    penstock.ok("publish", queue, "-m", "x", *told)

    (message,) = penstock.lines("view", queue)
    expected: dict[str, Any] = {
        "content_type": "text/plain",
        "attributes": {"colour": "red", "size": "a=b"},
        "topic": "t",
        "priority": 4,
        "group_key": "g",
        "dedup_key": "d",
        "not_before": "2031-01-01T00:00:00Z",
    }
    assert {name: message[name] for name in expected} == expected
    assert message["expires_at"] == "2032-01-01T00:00:00Z"


def test_a_delayed_message_waits(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "later", "--delay", "3600")

    assert penstock("receive", queue).exit_code == 3
    assert penstock.json("sub", "show", queue, "default")["delayed"] == 1


def test_json_has_a_line_for_each_message(penstock: Shell, queue: str) -> None:
    answers = penstock.lines("publish", queue, "-m", "a", "-m", "b")

    assert [one["index"] for one in answers] == [0, 1]
    assert {one["durability"] for one in answers} == {"memory"}
    assert answers[0].keys() == {"index", "id", "duplicate", "durability"}


def test_the_same_idempotency_key_stores_nothing_twice(penstock: Shell, queue: str) -> None:
    command = ["publish", queue, "--lines", "--idempotency-key", "import-7", "--batch", "2"]
    penstock.ok(*command, stdin="a\nb\nc")

    said = penstock.ok(*command, stdin="a\nb\nc\nd")

    assert "published 1 message" in said
    assert "3 were there already" in said
    assert bodies(penstock, queue) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "a", "-m", "b"],
        ["--lines"],
        ["--lines", "--batch", "1"],
        ["--ndjson"],
    ],
)
def test_a_dedup_key_for_several_messages_is_wrong_usage(
    penstock: Shell, queue: str, arguments: list[str]
) -> None:
    """All but the first would be taken for duplicates, and dropped."""
    lines = '{"body": "a"}\n{"body": "b"}\n'

    result = penstock("publish", queue, *arguments, "--dedup-key", "k", stdin=lines)

    assert result.exit_code == 2
    assert "--dedup-key is for a single message" in result.stderr
    assert len(penstock.lines("view", queue)) == ("--batch" in arguments)


def test_a_dedup_key_is_for_the_line_that_has_none(penstock: Shell, queue: str) -> None:
    lines = '{"body": "a", "dedup_key": "own"}\n{"body": "b"}\n'
    penstock.ok("publish", queue, "--ndjson", "--dedup-key", "k", stdin=lines)
    assert [one["dedup_key"] for one in penstock.lines("view", queue)] == ["own", "k"]


def test_quiet_says_nothing(penstock: Shell, queue: str) -> None:
    assert penstock.ok("publish", queue, "-m", "a", "--quiet") == ""


def test_nothing_to_publish_is_said(penstock: Shell, queue: str) -> None:
    assert penstock.ok("publish", queue, "--lines", stdin="") == "there was nothing to publish\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nonsense", "line 2 of standard input is not a message"),
        ('{"body": "a", "colour": 1}', "colour"),
        ('{"topic": "t"}', "exactly one of body, body_base64 and json"),
        ('{"body_base64": "!"}', "body_base64 is not base64"),
        ('{"body": "a", "priority": "high"}', "priority"),
    ],
)
def test_a_line_that_is_no_message_is_named_and_nothing_of_its_batch_is_sent(
    penstock: Shell, queue: str, line: str, reason: str
) -> None:
    result = penstock("publish", queue, "--ndjson", stdin=f'{{"body": "good"}}\n{line}\n')

    assert result.exit_code == 2
    assert reason in result.stderr
    assert bodies(penstock, queue) == []


def test_a_json_value_that_is_no_utf_8_is_no_message(penstock: Shell, queue: str) -> None:
    result = penstock("publish", queue, "--ndjson", stdin=b'{"json": "\xff"}\n')

    assert (result.exit_code, bodies(penstock, queue)) == (2, [])


def test_how_many_went_through_before_a_refusal_is_said(penstock: Shell, queue: str) -> None:
    penstock.ok("queue", "alter", queue, "--max-messages", "4")

    result = penstock("publish", queue, "--lines", "--batch", "2", stdin="1\n2\n3\n4\n5\n6")

    assert result.exit_code == 1
    assert result.stderr.startswith("published before that: 4 messages\nqueue_full: ")
    assert len(bodies(penstock, queue)) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["--lines", "--ndjson"],
        ["-m", "a", "file"],
        ["-m", "a", "-a", "colour"],
        ["-m", "a", "--not-before", "tomorrow"],
        ["-m", "a", "--not-before", "2031-01-01T00:00:00"],
        ["-m", "a", "--not-before", "2031-01-01T00:00:00Z", "--delay", "1"],
        ["-m", "a", "--priority", "11"],
        ["-m", "a", "--idempotency-key", ""],
        ["no-such-file"],
    ],
)
def test_wrong_usage_exits_with_2(penstock: Shell, queue: str, arguments: list[str]) -> None:
    result = penstock("publish", queue, *arguments)

    assert result.exit_code == 2
    assert result.stderr
    assert bodies(penstock, queue) == []


def test_refusals_have_their_code_and_exit_with_1(
    penstock: Shell, queue: str, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (1024 * 1024 + 1))

    missing = penstock("publish", "nowhere", "-m", "a")
    too_large = penstock("publish", queue, str(large))

    assert (missing.exit_code, too_large.exit_code) == (1, 1)
    assert missing.stderr.startswith("queue_not_found: ")
    assert too_large.stderr.startswith("message_too_large: ")


def test_a_time_that_no_calendar_has_is_wrong_usage(penstock: Shell, queue: str) -> None:
    result = penstock("publish", queue, "-m", "x", "--ttl", "1e300")

    assert result.exit_code == 2
    assert "--ttl" in result.stderr
