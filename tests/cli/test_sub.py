"""``penstock sub``."""

from __future__ import annotations

import re
import time

import msgspec
import pytest

from penstock import SubscriptionConfig
from tests.cli.shell import Shell


def test_a_subscription_is_created_with_settings_and_shown(penstock: Shell, queue: str) -> None:
    options = [
        *("--filter", 'topic == "a,b" && priority > 3'),
        *("--after", "default"),
        *("--on-dead-parent", "cascade"),
        *("--backoff", "kind=exponential,base_seconds=1,max_seconds=60,jitter=0.5"),
        *("--max-deliveries", "none"),
        *("--lease-seconds", "2.5"),
    ]

    made = penstock.json("sub", "create", queue, "billing", *options)

    config = made["config"]
    assert config["filter"] == 'topic == "a,b" && priority > 3'
    assert config["after"] == ["default"]
    assert config["on_dead_parent"] == "cascade"
    assert config["backoff"]["kind"] == "exponential"
    assert config["backoff"]["jitter"] == 0.5
    assert (config["max_deliveries"], config["lease_seconds"]) == (None, 2.5)
    assert made.pop("secret") is None
    assert penstock.json("sub", "show", queue, "billing") == made


def test_with_if_absent_one_with_the_same_settings_may_be_there(
    penstock: Shell, queue: str
) -> None:
    command = ["sub", "create", queue, "billing", "--if-absent", "--lease-seconds", "7"]

    assert penstock.json(*command)["config"]["lease_seconds"] == 7
    assert penstock.json(*command)["config"]["lease_seconds"] == 7
    other = penstock(*command[:-1], "8")
    assert (other.exit_code, other.stderr.partition(":")[0]) == (1, "subscription_exists")


def test_every_setting_is_an_option(penstock: Shell) -> None:
    shown = penstock("sub", "create", "--help").stdout
    for field in msgspec.structs.fields(SubscriptionConfig):
        assert f"│ --{field.name.replace('_', '-')} " in shown
    assert "--filter" not in penstock("sub", "alter", "--help").stdout


def test_a_structured_setting_may_be_json(penstock: Shell, queue: str) -> None:
    text = '{"kind": "fixed", "base_seconds": 7}'
    config = penstock.json("sub", "alter", queue, "default", "--backoff", text)["config"]

    assert (config["backoff"]["kind"], config["backoff"]["base_seconds"]) == ("fixed", 7)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--backoff", "{nonsense", "not JSON"),
        ("--backoff", "colour=red", "use name=value with kind, base_seconds"),
        ("--backoff", "fixed", "use name=value"),
        ("--on-dead-parent", "shrug", "use hold, cascade, ignore"),
        ("--start", "someday", "use earliest, latest, an index, or a time"),
        ("--start", "2031-01-31T12:00:00", "with its zone"),
    ],
)
def test_a_value_that_is_none_is_wrong_usage(
    penstock: Shell, queue: str, option: str, value: str, words: str
) -> None:
    result = penstock("sub", "create", queue, "bad", option, value)

    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("start", "ready"), [("earliest", 2), ("latest", 0), ("1", 1), ("2020-01-01T00:00:00Z", 2)]
)
def test_it_starts_where_it_is_told(penstock: Shell, queue: str, start: str, ready: int) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b")

    made = penstock.json("sub", "create", queue, "late", "--start", start)

    assert made["ready"] == ready


def test_subscriptions_are_listed(penstock: Shell, queue: str) -> None:
    penstock.ok("sub", "create", queue, "some", "--filter", "priority > 3", "--paused")

    assert [one["name"] for one in penstock.json("sub", "list", queue)] == ["default", "some"]
    header, _, row = penstock.ok("sub", "list", queue).splitlines()
    assert header.split()[:2] == ["subscription", "ready"]
    assert row.endswith("priority > 3  paused")


def test_a_subscription_is_shown_to_people(penstock: Shell, queue: str) -> None:
    shown = penstock.ok("sub", "show", queue, "default")

    assert "lowest unacked index  0\n" in shown
    assert "backoff               kind=fixed,base_seconds=0,factor=2," in shown


def test_it_is_sought_paused_resumed_and_deleted(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a")
    penstock.ok("receive", queue, "--ack")

    penstock.ok("sub", "seek", queue, "default", "earliest")
    assert penstock.json("sub", "show", queue, "default")["ready"] == 1

    penstock.ok("sub", "pause", queue, "default")
    assert penstock("receive", queue).exit_code == 3
    penstock.ok("sub", "resume", queue, "default")
    penstock.ok("receive", queue)

    assert penstock("sub", "delete", queue, "default").exit_code == 2
    penstock.ok("sub", "delete", queue, "default", "--yes")
    assert penstock.json("sub", "list", queue) == []


def test_programs_get_the_subscription_as_it_is_after_a_change(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a")

    assert penstock.json("sub", "pause", queue, "default")["config"]["paused"] is True
    assert penstock.json("sub", "resume", queue, "default")["config"]["paused"] is False
    assert penstock.json("sub", "seek", queue, "default", "latest")["ready"] == 0
    assert penstock.json("sub", "delete", queue, "default", "--yes") == {"deleted": "default"}
    assert penstock.json("queue", "delete", queue, "--yes") == {"deleted": queue}


def test_what_a_dependency_holds_is_listed_and_released(penstock: Shell, queue: str) -> None:
    penstock.ok("sub", "create", queue, "after", "--after", "default")
    penstock.ok("publish", queue, "-m", "a", "-m", "b")

    assert penstock.ok("sub", "held", queue, "after") == "0\tdefault\n1\tdefault\n"
    assert penstock.json("sub", "held", queue, "after", "-n", "1") == {
        "messages": [{"index": 0, "waits_for": ["default"]}]
    }
    assert penstock.json("sub", "release", queue, "after", "1") == {"released": [1]}

    assert penstock.ok("receive", queue, "-s", "after", "--body") == "b\n"
    result = penstock("sub", "release", queue, "after", "1")
    assert (result.exit_code, result.stderr.partition(":")[0]) == (1, "not_held")


def test_a_list_is_one_option_with_commas_or_one_for_each_and_stays_unless_it_is_given(
    penstock: Shell, queue: str
) -> None:
    def after(*arguments: str) -> object:
        return penstock.json("sub", *arguments)["config"]["after"]

    penstock.ok("sub", "create", queue, "a")
    penstock.ok("sub", "create", queue, "b")
    create = ("create", queue, "c", "--after", "a", "--after", "b,default")
    assert after(*create) == ["a", "b", "default"]
    assert after("alter", queue, "c", "--max-deliveries", "2") == ["a", "b", "default"]
    assert after("alter", queue, "c", "--after", "b") == ["b"]
    assert after("alter", queue, "c", "--after", "") == []


def test_a_filter_is_tried_out_before_anybody_subscribes_with_it(
    penstock: Shell, queue: str
) -> None:
    bodies = ['{"amount": 5}', '{"amount": 500}', "{}"]
    penstock.ok("publish", queue, *(part for body in bodies for part in ("-m", body)))

    result = penstock("sub", "test-filter", queue, "body.amount > 100")

    assert (result.exit_code, result.stdout) == (0, "1\ttakes\n2\tfails\n")
    assert result.stderr == "of 3 messages it takes 1, and fails for 1\n"
    found = penstock.json("sub", "test-filter", queue, "body.amount > 1", "--last", "2")
    assert found == {"tested": 2, "matched": [1], "failed": [2]}
    assert penstock("sub", "test-filter", queue, "1 +").stderr.startswith("invalid_filter: ")


def test_how_calls_go_is_shown_to_people(penstock: Shell, queue: str) -> None:
    url = "http://127.0.0.1:1/"  # nobody is there
    penstock.ok("sub", "create", queue, "called", "--callback", f"url={url}")
    penstock.ok("publish", queue, "-m", "a")
    until = time.monotonic() + 20
    while not (callback := penstock.json("sub", "show", queue, "called")["callback"])["failures"]:
        assert time.monotonic() < until, callback

    shown = dict(
        re.split(r"\s{2,}", line, maxsplit=1)
        for line in penstock.ok("sub", "show", queue, "called").splitlines()
        if "  " in line.strip()
    )

    assert shown["circuit"] == "closed"
    assert int(shown["calls that failed"]) >= 1
    assert shown["last error"].startswith("no connection: ")


def test_that_nothing_is_held_is_said_beside_the_output(penstock: Shell, queue: str) -> None:
    result = penstock("sub", "held", queue, "default")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"nothing waits on default of {queue}\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "nobody"], "subscription_not_found"),
        (["create", "default"], "subscription_exists"),
        (["create", "bad", "--filter", "1 +"], "invalid_filter"),
        (["create", "bad", "--after", "nobody"], "invalid_dependency"),
        (["seek", "nobody", "0"], "subscription_not_found"),
        (["pause", "nobody"], "subscription_not_found"),
        (["resume", "nobody"], "subscription_not_found"),
        (["held", "nobody"], "subscription_not_found"),
        (["delete", "nobody", "--yes"], "subscription_not_found"),
        (["alter", "nobody", "--paused"], "subscription_not_found"),
    ],
)
def test_refusals_have_their_code_and_exit_with_1(
    penstock: Shell, queue: str, arguments: list[str], code: str
) -> None:
    command, *rest = arguments

    result = penstock("sub", command, queue, *rest)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"{code}: ")
