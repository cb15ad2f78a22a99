"""``penstock view`` and ``penstock tail``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shell import Shell


def test_messages_are_shown_from_an_index_on_without_being_received(
    penstock: Shell, queue: str
) -> None:
    penstock.ok("publish", queue, "--lines", stdin="a\nb\nc\nd")

    shown = penstock.ok("view", queue, "--start", "1", "-n", "2")

    assert [line.split()[-1] for line in shown.splitlines()] == ["body", "b", "c"]
    assert penstock.json("sub", "show", queue, "default")["ready"] == 4


def test_more_than_a_page_is_read_page_by_page(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "--lines", stdin="".join(f"{n}\n" for n in range(2500)))

    found = penstock.lines("view", queue, "-n", "2300", "--start", "100")

    assert [one["index"] for one in found] == list(range(100, 2400))


def test_one_message_is_shown_by_its_id_with_all_there_is(penstock: Shell, queue: str) -> None:
    (answer,) = penstock.lines(
        "publish", queue, "-m", "hello", "--topic", "t", "-a", "colour=red", "--ttl", "600"
    )

    shown = penstock.ok("view", queue, "--id", answer["id"])

    for words in ("topic  ", "attribute colour", "expires", "content type", answer["id"], "hello"):
        assert words in shown
    assert "priority" not in shown


def test_the_body_of_one_message_comes_to_the_byte(
    penstock: Shell, queue: str, tmp_path: Path
) -> None:
    (answer,) = penstock.lines("publish", queue, stdin=b"\x00\xff no newline")

    result = penstock("view", queue, "--id", answer["id"], "--body")

    assert result.stdout_bytes == b"\x00\xff no newline"


def test_bodies_alone_have_a_line_each(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b")

    assert penstock.ok("view", queue, "--body") == "a\nb\n"
    assert penstock.ok("tail", queue, "--body", "-n", "1") == "b\n"


def test_a_body_cannot_play_with_the_terminal(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "\x1b[2J[red]boo\nhoo", "--topic", "a\tb")

    shown = penstock.ok("view", queue)

    assert r"\x1b[2J[red]boo\nhoo" in shown
    assert r"a\tb" in shown
    assert "\x1b" not in shown


def test_what_is_no_text_is_not_shown_as_one(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, stdin=b"\xff" * 2048)

    assert "(2.0 KiB of no text)" in penstock.ok("view", queue)


def test_a_long_body_is_cut(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "x" * 1000)

    assert f"{'x' * 59}…\n" in penstock.ok("view", queue)


def test_an_empty_queue_is_said_to_be_empty(penstock: Shell, queue: str) -> None:
    assert penstock.ok("view", queue) == f"there is nothing in {queue} from there on\n"
    assert penstock.ok("view", queue, "--json") == ""
    assert penstock.ok("tail", queue) == ""


def test_tail_shows_the_newest(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "--lines", stdin="".join(f"{n}\n" for n in range(30)))

    assert [one["index"] for one in penstock.lines("tail", queue)] == list(range(20, 30))
    assert [one["index"] for one in penstock.lines("tail", queue, "-n", "2")] == [28, 29]
    assert penstock.lines("tail", queue, "-n", "0") == []


def test_dead_letters_are_a_queue_that_can_be_viewed(penstock: Shell, queue: str) -> None:
    penstock.ok("sub", "alter", queue, "default", "--max-deliveries", "1")
    penstock.ok("publish", queue, "-m", "a")
    (delivery,) = penstock.lines("receive", queue)
    penstock.ok("nack", queue, delivery["receipt"])

    (letter,) = penstock.lines("view", f"{queue}-dlq")
    assert letter["dead_letter"]["index"] == 0


def test_what_is_not_there_is_refused_and_body_excludes_json(penstock: Shell, queue: str) -> None:
    for arguments in (["view", "nowhere"], ["tail", "nowhere"], ["view", queue, "--id", "x"]):
        assert penstock(*arguments).exit_code == 1
    for command in ("view", "tail"):
        assert penstock(command, queue, "--body", "--json").exit_code == 2
