"""``penstock receive``, ``ack``, ``nack`` and ``extend``."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Shell


def test_a_delivery_is_shown_with_its_receipt(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "hello")

    shown = penstock.ok("receive", queue)

    header, row = shown.splitlines()
    assert header.split() == ["index", "id", "created", "size", "receipt", "delivery", "body"]
    assert row.split()[-1] == "hello"


def test_nothing_received_exits_with_3(penstock: Shell, queue: str) -> None:
    result = penstock("receive", queue, "--json")

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "nothing was received\n"


def test_json_has_a_line_for_each_delivery_with_all_its_fields(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b", "-m", "c", "--topic", "t")

    found = penstock.lines("receive", queue, "-n", "2")

    assert [one["body"] for one in found] == ["a", "b"]
    assert found[0]["topic"] == "t"
    assert found[0]["deliveries"] == 1
    assert found[0]["subscription"] == "default"
    assert found[0]["receipt"] != found[1]["receipt"]


def test_bodies_alone_are_for_pipes(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b")

    assert penstock.ok("receive", queue, "-n", "5", "--body") == "a\nb\n"


def test_more_than_a_request_can_hold_is_received_with_several(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "--lines", stdin="x\n" * 2500)

    assert len(penstock.lines("receive", queue, "-n", "2200", "--ack")) == 2200
    assert penstock.json("sub", "show", queue, "default")["acked"] == 2200


def test_with_ack_what_was_printed_does_not_come_again(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a")
    penstock.ok("receive", queue, "--ack")

    assert penstock.json("sub", "show", queue, "default")["acked"] == 1


def test_it_waits_for_the_first_one(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "soon", "--delay", "0.3")

    assert penstock.ok("receive", queue, "--wait", "25", "--body") == "soon\n"


def test_a_subscription_and_a_lease_may_be_chosen(penstock: Shell, queue: str) -> None:
    penstock.ok("sub", "create", queue, "billing", "--lease-seconds", "none")
    penstock.ok("publish", queue, "-m", "a")

    (own,) = penstock.lines("receive", queue, "--lease", "600")
    (other,) = penstock.lines("receive", queue, "-s", "billing")

    assert own["deadline"] is not None
    assert other["deadline"] is None


def test_body_and_json_exclude_each_other(penstock: Shell, queue: str) -> None:
    assert penstock("receive", queue, "--body", "--json").exit_code == 2


def test_deliveries_are_acked_by_receipt_and_by_id(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b")
    first, second = penstock.lines("receive", queue, "-n", "2")

    assert penstock.ok("ack", queue, first["receipt"], second["id"]) == "2 done\n"
    assert penstock.json("sub", "show", queue, "default")["acked"] == 2


def test_receive_pipes_into_ack(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "--lines", stdin="x\n" * 1500)
    received = penstock.ok("receive", queue, "-n", "1500", "--json")

    assert penstock.ok("ack", queue, "-", stdin=received) == "1500 done\n"


def test_receipts_come_one_a_line_as_well(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b")
    receipts = [one["receipt"] for one in penstock.lines("receive", queue, "-n", "2")]

    assert penstock.ok("ack", queue, "-", stdin="\n".join(receipts)) == "2 done\n"


def test_everything_below_an_index_is_acked(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b", "-m", "c")

    assert penstock.json("ack", queue, "--up-to", "2") == {"acked_up_to": 2}
    assert penstock.ok("ack", queue, "--up-to", "3") == "1 settled\n"


def test_a_nacked_delivery_comes_again_and_keeps_its_reason(penstock: Shell, queue: str) -> None:
    penstock.ok("sub", "alter", queue, "default", "--max-deliveries", "2")
    penstock.ok("publish", queue, "-m", "a")
    for _ in range(2):
        (delivery,) = penstock.lines("receive", queue)
        penstock.ok("nack", queue, delivery["receipt"], "--reason", "out of paper", "--delay", "0")

    (letter,) = penstock.lines("dlq", "list", queue)
    assert letter["dead_letter"]["reason"] == "out of paper"


def test_a_lease_is_extended(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a")
    (delivery,) = penstock.lines("receive", queue)

    (answer,) = penstock.lines("extend", queue, delivery["receipt"], "--seconds", "600")

    assert answer == {"target": delivery["receipt"], "outcome": "done"}


@pytest.mark.parametrize("command", ["nack", "extend"])
def test_what_is_not_in_flight_any_more_is_named_and_exits_with_1(
    penstock: Shell, queue: str, command: str
) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b")
    settled, leased = penstock.lines("receive", queue, "-n", "2")
    penstock.ok("ack", queue, settled["receipt"])

    result = penstock(command, queue, settled["receipt"], leased["receipt"])

    assert result.exit_code == 1
    assert result.stdout == "1 done\n"
    assert result.stderr.endswith(f": {settled['receipt']}\n")


def test_an_ack_that_was_done_before_is_as_good(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a")
    (delivery,) = penstock.lines("receive", queue, "--ack")

    (answer,) = penstock.lines("ack", queue, delivery["receipt"])

    assert answer["outcome"] == "already_settled"


@pytest.mark.parametrize("command", ["ack", "nack", "extend"])
def test_a_target_that_is_none_is_refused(penstock: Shell, queue: str, command: str) -> None:
    assert penstock(command, queue).exit_code == 2
    assert penstock(command, queue, "-", stdin='{"body": "no receipt"}').exit_code == 2

    result = penstock(command, queue, "nonsense")
    assert result.exit_code == 1
    assert result.stderr.startswith("invalid_receipt: ")


def test_ack_takes_either_targets_or_an_index(penstock: Shell, queue: str) -> None:
    assert penstock("ack", queue, "2.0.1", "--up-to", "7").exit_code == 2


def test_json_of_ack_has_an_outcome_for_each(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a")
    (delivery,) = penstock.lines("receive", queue)
    stranger = delivery["receipt"].rpartition(".")[0] + ".77"

    result = penstock("ack", queue, delivery["receipt"], stranger, "--json")

    outcomes = [json.loads(line)["outcome"] for line in result.stdout.splitlines()]
    assert outcomes[0] == "done"
    assert len(outcomes) == 2


def test_a_target_that_is_no_text_is_refused(penstock: Shell, queue: str) -> None:
    result = penstock("ack", queue, "\udcff")

    assert (result.exit_code, result.stderr.partition(":")[0]) == (1, "invalid_argument")


def test_a_name_that_is_no_text_is_wrong_usage(penstock: Shell) -> None:
    result = penstock("stats", "--once", "--user", "\udcff", "--password", "x")

    assert (result.exit_code, result.stderr.partition(":")[0]) == (2, "invalid_argument")
