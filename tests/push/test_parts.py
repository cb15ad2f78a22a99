"""Small parts: Retry-After, the circuit, signatures."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from penstock.push.circuit import Circuit
from penstock.push.retry_after import retry_after_seconds
from penstock.push.signing import Signer

NOW = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 5 ", 5),
        ("3601", 3600),
        ("9" * 30, 3600),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30),
        ("Fri, 15 Jan 2027 08:00:30", 30),
        ("Friday, 15-Jan-27 08:00:30 GMT", 30),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
        ("Fri, 15 Jan 2117 08:00:00 GMT", 3600),
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("Fri, 99 Foo 2027 08:00:30 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_bounded(
    text: str | None, seconds: float | None
) -> None:
    assert retry_after_seconds(text, NOW) == seconds


def test_a_circuit_opens_at_the_threshold_and_closes_with_a_success() -> None:
    circuit = Circuit(threshold=3, first_seconds=10, most_seconds=35)
    for now in (0, 1):
        circuit.failed(now)
    assert circuit.state(1) == "closed"
    circuit.failed(2)
    assert [circuit.state(now) for now in (2, 11.9, 12)] == ["open", "open", "half_open"]
    circuit.succeeded()
    assert circuit.state(12) == "closed"
    assert circuit.failures == 0


def test_a_circuit_stays_open_longer_with_every_try_that_fails() -> None:
    circuit = Circuit(threshold=1, first_seconds=10, most_seconds=35)
    now = 0.0
    waits = []
    for _ in range(4):
        circuit.failed(now)
        assert circuit.open_until is not None
        waits.append(circuit.open_until - now)
        now = circuit.open_until
    assert waits == [10, 20, 35, 35]


def test_calls_that_were_under_way_when_it_opened_do_not_open_it_longer() -> None:
    circuit = Circuit(threshold=1, first_seconds=10)
    circuit.failed(0)
    circuit.failed(1)
    assert circuit.open_until == 10


def test_a_signature_is_what_the_standards_own_library_makes() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    headers = Signer([other, secret]).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b"\x80{")
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"
    first, second = headers["webhook-signature"].split(" ")
    assert first != second
    text = Signer([secret]).headers("m", 1614265330, b'{"test": 2432232314}')
    assert text["webhook-signature"] == Webhook(secret).sign(
        "m", datetime.fromtimestamp(1614265330, UTC), '{"test": 2432232314}'
    )
