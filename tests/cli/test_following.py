"""Commands that go on until they are interrupted, each in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.shell import Shell

_PATIENCE_SECONDS = 30


@contextmanager
def running(
    penstock: Shell,
    *arguments: str,
    stdin: int | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    columns: int = 200,
    before: str = "",
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", f"{before}\nfrom penstock.cli import main; main()", *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, "PENSTOCK_URL": penstock.url, "COLUMNS": str(columns), "LINES": "50"},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def interrupt(
    process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT
) -> tuple[int, bytes]:
    process.send_signal(number)
    assert process.stderr is not None
    said = process.stderr.read()
    return process.wait(_PATIENCE_SECONDS), said


def until_asleep(process: subprocess.Popen[bytes]) -> None:
    patience = time.monotonic() + _PATIENCE_SECONDS
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] != "S":
        assert time.monotonic() < patience
        time.sleep(0.01)


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_tail_follows_until_it_is_interrupted(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "before")
    with running(penstock, "tail", queue, "--follow", "--json") as process:
        assert json.loads(line_of(process))["body"] == "before"

        penstock.ok("publish", queue, "-m", "after")

        assert json.loads(line_of(process))["body"] == "after"
        assert interrupt(process) == (130, b"")


def test_tail_follows_a_queue_that_is_made_anew(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "before", "-m", "more")
    with running(penstock, "tail", queue, "--follow", "--body") as process:
        assert [line_of(process), line_of(process)] == [b"before\n", b"more\n"]

        penstock.ok("queue", "delete", queue, "--yes")
        penstock.ok("queue", "create", queue)
        penstock.ok("publish", queue, "-m", "after")

        assert process.stdout is not None
        assert select.select([process.stdout], [], [], _PATIENCE_SECONDS)[0]
        assert line_of(process) == b"after\n"


def test_receive_follows_and_acks(penstock: Shell, queue: str) -> None:
    with running(penstock, "receive", queue, "--follow", "--ack", "--body") as process:
        for body in ("one", "two"):
            penstock.ok("publish", queue, "-m", body)
            assert line_of(process) == f"{body}\n".encode()
        assert interrupt(process) == (130, b"")
    assert penstock.json("sub", "show", queue, "default")["acked"] >= 1


def test_publish_does_not_wait_for_the_end_of_a_pipe(penstock: Shell, queue: str) -> None:
    with running(penstock, "publish", queue, "--lines", "--json", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\nsecond, not yet comp")
        process.stdin.flush()

        assert json.loads(line_of(process))["index"] == 0

        process.stdin.write(b"lete\n")
        process.stdin.close()
        assert json.loads(line_of(process))["index"] == 1
        assert process.wait(_PATIENCE_SECONDS) == 0
    assert penstock.ok("view", queue, "--body") == "first\nsecond, not yet complete\n"


def test_a_publish_that_is_interrupted_tells_what_is_stored_for_certain(
    penstock: Shell, queue: str
) -> None:
    with running(penstock, "publish", queue, "--lines", "--json", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert json.loads(line_of(process))["index"] == 0

        told = b"published before that: at least 1 message\n"
        assert interrupt(process) == (130, told)


@pytest.mark.parametrize("option", ["--delay", "--ttl"])
def test_a_delay_and_a_ttl_count_from_when_a_message_comes_out_of_the_pipe(
    penstock: Shell, queue: str, option: str
) -> None:
    # Given a pipe out of which a message has come
    arguments = ("publish", queue, "--lines", "--json", option, "1000")
    with running(penstock, *arguments, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        # When another one comes later
        for body in (b"first\n", b"second\n"):
            process.stdin.write(body)
            process.stdin.flush()
            assert json.loads(line_of(process))["durability"] == "memory"
        process.stdin.close()
        assert process.wait(_PATIENCE_SECONDS) == 0
    # Then its time is later, too
    first, second = penstock.lines("view", queue)
    name = "not_before" if option == "--delay" else "expires_at"
    assert first[name] < second[name]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_load_that_is_interrupted_leaves_nothing_behind(
    penstock: Shell, number: signal.Signals
) -> None:
    def queues() -> list[str]:
        names = [one["name"] for one in penstock.json("queue", "list")]
        return [name for name in names if name.startswith("bench-")]

    with running(penstock, "bench", "--messages", "10000000") as process:
        until = time.monotonic() + _PATIENCE_SECONDS
        while not queues():
            assert time.monotonic() < until
            time.sleep(0.02)
        assert interrupt(process, number) == (130, b"")
    assert queues() == []


def test_a_listener_whose_terminal_is_closed_takes_its_subscription_with_it(
    penstock: Shell, queue: str
) -> None:
    with running(penstock, "listen", "--queue", queue) as process:
        assert process.stderr is not None
        assert b"listening" in process.stderr.readline()

        assert interrupt(process, signal.SIGHUP) == (130, b"")
    assert [one["name"] for one in penstock.json("sub", "list", queue)] == ["default"]


def test_whoever_reads_may_go_away(penstock: Shell, queue: str) -> None:
    with running(penstock, "tail", queue, "--follow", "--body") as process:
        penstock.ok("publish", queue, "-m", "first")
        assert line_of(process) == b"first\n"
        assert process.stdout is not None
        process.stdout.close()

        penstock.ok("publish", queue, "-m", "second")

        assert process.wait(_PATIENCE_SECONDS) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["tail", "receive"])
def test_a_follower_with_nothing_to_say_notices_that_nobody_reads(
    penstock: Shell, queue: str, command: str
) -> None:
    # Given a follower to whom nothing comes any more
    penstock.ok("publish", queue, "-m", "first")
    short = "import penstock.cli.receive as r; r._LONGEST_WAIT_SECONDS = 0.1"
    with running(penstock, command, queue, "--follow", "--body", before=short) as process:
        assert line_of(process) == b"first\n"

        # When its reader goes
        assert process.stdout is not None
        process.stdout.close()

        # Then it ends, although it had nothing to write
        assert process.wait(_PATIENCE_SECONDS) == 141


def test_ack_does_not_wait_for_the_end_of_a_pipe(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b")
    first, second = penstock.lines("receive", queue, "--limit", "2")
    with running(penstock, "ack", queue, "-", "--json", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(first).encode() + b"\n")
        process.stdin.flush()

        assert json.loads(line_of(process)) == {"target": first["receipt"], "outcome": "done"}

        process.stdin.write(second["receipt"].encode())
        process.stdin.close()
        assert json.loads(line_of(process))["target"] == second["receipt"]
        assert process.wait(_PATIENCE_SECONDS) == 0


def test_stats_refresh_on_a_terminal(penstock: Shell, queue: str) -> None:
    with (
        terminal() as (ours, theirs),
        running(penstock, "stats", queue, "-i", "0.1", stdout=theirs) as process,
    ):
        read_until(ours, b"0 B")
        penstock.ok("publish", queue, "-m", "x" * 2000)
        read_until(ours, b"2.0 KiB")
        assert interrupt(process)[0] == 130


def test_a_large_file_is_published_with_a_bar_that_is_no_part_of_the_output(
    penstock: Shell, queue: str, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_text(f"{'x' * 1000}\n" * 4000)
    with terminal() as (ours, theirs):
        arguments = ["publish", queue, "--lines", str(path)]
        with running(penstock, *arguments, stderr=theirs) as process:
            read_until(ours, b"/3.8 MiB")
            said = line_of(process).decode()
            assert process.wait(_PATIENCE_SECONDS) == 0
    assert said == f"published 4000 messages to {queue}, index 0 to 3999 (memory)\n"


def test_an_interrupted_question_exits_like_any_other_command(penstock: Shell, queue: str) -> None:
    question = ["queue", "delete", queue]
    with (
        terminal() as (ours, theirs),
        running(penstock, *question, stdin=theirs, stderr=theirs) as process,
    ):
        read_until(ours, b"[y/N]:")
        # The interpreter would notice a signal just before the read only after it.
        until_asleep(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(_PATIENCE_SECONDS) == 130
    assert penstock.json("queue", "show", queue)["name"] == queue


def test_what_is_typed_is_not_drawn_over(penstock: Shell, queue: str) -> None:
    with terminal() as (ours, theirs):
        arguments = ["publish", queue, "--lines"]
        with running(penstock, *arguments, stdin=theirs, stderr=theirs) as process:
            read_until(ours, b"ends it")
            os.write(ours, b"one\ntwo\n\x04")
            said = line_of(process).decode()
            assert process.wait(_PATIENCE_SECONDS) == 0
        shown = read_until(ours, b"two\r\n").decode()
    assert said == f"published 2 messages to {queue}, index 0 to 1 (memory)\n"
    assert "\x1b" not in shown


def test_in_a_narrow_terminal_receipts_are_whole_and_bodies_are_cut(
    penstock: Shell, queue: str
) -> None:
    penstock.ok("publish", queue, "-m", "x" * 1000)
    with terminal() as (ours, theirs):
        with running(penstock, "receive", queue, stdout=theirs, columns=70) as process:
            assert process.wait(_PATIENCE_SECONDS) == 0
        shown = read_until(ours, "…".encode()).decode()
    row = shown.splitlines()[-1]
    assert len(row.split()[-3].split(".")) == 3
    assert row.split()[-1].startswith("xxx")


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_in_the_narrowest_terminal_it_is_still_clear_what_is_meant(
    penstock: Shell, queue: str, columns: int
) -> None:
    penstock.ok("publish", queue, "-m", "hello, it is me")
    with terminal() as (ours, theirs):
        for command in (["queue", "list"], ["stats", queue, "--once"], ["receive", queue]):
            with running(penstock, *command, stdout=theirs, columns=columns) as process:
                assert process.wait(_PATIENCE_SECONDS) == 0
        shown = read_until(ours, b"hello").decode()
    assert "queue-" in shown
    assert "default" in shown
    *_, row = shown.splitlines()
    assert any(cell.count(".") == 2 for cell in row.split()), row


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Our end of it, and that of a program."""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def read_until(terminal: int, words: bytes) -> bytes:
    seen = b""
    until = time.monotonic() + _PATIENCE_SECONDS
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], until - time.monotonic())
        assert ready, seen
        seen += os.read(terminal, 65536)
    return seen
