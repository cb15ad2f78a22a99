"""Signatures of callbacks, as their receiver checks them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from penstock.client import AsyncClient, InvalidSignature, WebhookVerifier
from penstock.core.limits import NANOSECONDS
from penstock.errors import InvalidArgument
from penstock.push.signing import Signer
from tests.contract.clock import ManualClock

SECRET = f"whsec_{base64.b64encode(b'k' * 32).decode()}"
OTHER = f"whsec_{base64.b64encode(b'o' * 32).decode()}"
SECOND = ManualClock().now_ns() // NANOSECONDS
BODY = b'{"amount": 7}'


def verifier(*secrets: str, apart: float = 0) -> WebhookVerifier:
    clock = ManualClock()
    clock.advance(apart)
    return WebhookVerifier(*secrets, clock=clock)


def signed(*secrets: str, id: str = "msg_1", seconds: int = SECOND) -> dict[str, str]:
    return Signer(secrets).headers(id, seconds, BODY)


def test_what_the_server_signs_is_verified() -> None:
    assert verifier(SECRET).verify(signed(SECRET), BODY) == "msg_1"


def test_what_the_reference_library_signs_is_verified() -> None:
    signature = Webhook(SECRET).sign("msg_2", datetime.fromtimestamp(SECOND, UTC), BODY.decode())
    headers = {
        "Webhook-Id": "msg_2",
        "Webhook-Timestamp": str(SECOND),
        "Webhook-Signature": signature,
    }

    assert verifier(SECRET).verify(headers, BODY) == "msg_2"


@pytest.mark.parametrize("secrets", [(SECRET,), (OTHER,), (OTHER, SECRET)])
def test_while_a_secret_is_changed_either_will_do(secrets: tuple[str, ...]) -> None:
    assert verifier(*secrets).verify(signed(SECRET, OTHER), BODY) == "msg_1"


def test_another_secret_body_id_or_time_is_refused() -> None:
    good = signed(SECRET)
    for headers, body in [
        (signed(OTHER), BODY),
        (good, BODY + b" "),
        (good | {"webhook-id": "msg_2"}, BODY),
        (good | {"webhook-timestamp": str(SECOND + 1)}, BODY),
        (good | {"webhook-signature": ""}, BODY),
        (good | {"webhook-signature": good["webhook-signature"].replace("v1,", "v1a,")}, BODY),
        (good | {"webhook-signature": "v1,\udcff\u20ac"}, BODY),
    ]:
        with pytest.raises(InvalidSignature, match="none of the call's signatures"):
            verifier(SECRET).verify(headers, body)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_call_without_a_signature_is_refused(name: str) -> None:
    headers = signed(SECRET)
    del headers[name]

    with pytest.raises(InvalidSignature, match=name):
        verifier(SECRET).verify(headers, BODY)


@pytest.mark.parametrize("apart", [-301, 301])
def test_a_call_of_another_time_is_refused(apart: int) -> None:
    with pytest.raises(InvalidSignature, match="301 seconds"):
        verifier(SECRET, apart=apart).verify(signed(SECRET), BODY)

    assert verifier(SECRET, apart=apart / 2).verify(signed(SECRET), BODY)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e9", "9" * 30])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidSignature, match="not a time"):
        verifier(SECRET).verify(signed(SECRET) | {"webhook-timestamp": text}, BODY)


@pytest.mark.parametrize("secret", ["", "secret", "whsec_!"])
def test_a_secret_that_is_none_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        WebhookVerifier(secret)
    assert not secret or f"'{secret}'" not in str(caught.value)


def test_there_must_be_a_secret() -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        WebhookVerifier()


async def test_a_secret_is_shown_when_it_is_made_and_when_it_is_changed(
    client: AsyncClient, queue: str
) -> None:
    callback = {"url": "http://127.0.0.1:1/", "mode": "notify"}
    plain = await client.create_subscription(queue, "plain")
    made = await client.create_subscription(queue, "called", callback=callback)
    rotated = await client.rotate_secret(queue, "called")
    altered = await client.alter_subscription(queue, "plain", callback=callback)
    again = await client.alter_subscription(queue, "plain", lease_seconds=7)

    assert plain.secret is None
    assert made.secret is not None
    assert rotated.startswith("whsec_")
    assert rotated != made.secret
    assert altered.secret is not None
    assert (again.secret, again.config.lease_seconds) == (None, 7)
    with pytest.raises(InvalidArgument):
        await client.rotate_secret(queue, "default")
