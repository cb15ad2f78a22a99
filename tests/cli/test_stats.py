"""``penstock stats`` and ``penstock bench``."""

from __future__ import annotations

from tests.cli.shell import Shell


def test_a_table_has_a_line_for_each_subscription(penstock: Shell, queue: str) -> None:
    penstock.ok("sub", "create", queue, "billing", "--paused")
    penstock.ok("publish", queue, "-m", "a", "-m", "b")
    penstock.ok("receive", queue)

    header, own, other = penstock.ok("stats", queue, "--once").splitlines()

    assert header.split()[:4] == ["queue", "messages", "size", "in/s"]
    assert own.split()[:2] == [queue, "2"]
    assert own.split()[4:7] == ["default", "1", "1"]
    assert other.split()[:3] == ["billing", "2", "0"]
    assert other.endswith("paused")


def test_without_a_terminal_it_is_shown_once(penstock: Shell, queue: str) -> None:
    assert queue in penstock.ok("stats")


def test_json_is_what_the_server_says(penstock: Shell, queue: str) -> None:
    (found,) = penstock.json("stats", queue, "--once")

    assert found["name"] == queue
    assert found["subscriptions"][0]["name"] == "default"


def test_queues_come_in_the_order_asked_for(penstock: Shell, queue: str) -> None:
    penstock.ok("queue", "create", f"{queue}-a")

    found = penstock.json("stats", f"{queue}-a", queue, "--once")

    assert [one["name"] for one in found] == [f"{queue}-a", queue]


def test_an_unknown_queue_is_refused(penstock: Shell) -> None:
    result = penstock("stats", "nowhere", "--once")

    assert (result.exit_code, result.stderr) == (
        1,
        "queue_not_found: there is no queue 'nowhere'\n",
    )


def test_a_load_is_measured_and_leaves_nothing_behind(penstock: Shell) -> None:
    measured = penstock.json("bench", "-n", "300", "--size", "10", "-c", "4")

    publish, consume = measured["phases"]
    assert (publish["name"], publish["messages"], publish["calls"]) == ("publish", 300, 300)
    assert (consume["name"], consume["messages"], consume["calls"]) == ("receive + ack", 300, 3)
    for phase in measured["phases"]:
        times = [phase[name] for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
        assert times == sorted(times)
        assert phase["per_second"] * phase["seconds"] > 299
    assert not [one for one in penstock.json("queue", "list") if one["name"].startswith("bench-")]


def test_a_load_is_shown_as_a_table(penstock: Shell) -> None:
    header, publish, consume = penstock.ok("bench", "-n", "20", "--batch", "10").splitlines()

    assert header.split()[:4] == ["messages/s", "calls", "p50", "ms"]
    assert publish.split()[0] == "publish"
    assert publish.split()[2] == "2"
    assert consume.startswith("receive + ack")


def test_a_load_needs_an_administrator(penstock: Shell) -> None:
    result = penstock("bench", PENSTOCK_USER="user", PENSTOCK_PASSWORD="password")

    assert (result.exit_code, result.stderr.partition(":")[0]) == (6, "forbidden")
