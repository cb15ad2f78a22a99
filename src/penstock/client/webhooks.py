"""Callbacks on the receiving side: was this call made by our server, and just now?"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

from penstock.client.errors import InvalidSignature
from penstock.clock import Clock, SystemClock
from penstock.core.callback import secret_key
from penstock.core.limits import NANOSECONDS
from penstock.errors import InvalidArgument

__all__ = ["WebhookVerifier"]

_VERSION = "v1"


class WebhookVerifier:
    """Verifies calls that are signed according to Standard Webhooks.

    ``secrets`` are those that the server showed, ``whsec_`` and base64; there are two while one is
    being replaced. A call whose time is more than ``tolerance_seconds`` away is refused, so that it
    cannot be recorded and replayed later. Within that time, remember the ids: a message that is
    delivered again has the same one. Raises `InvalidArgument` for a malformed secret.
    """

    def __init__(
        self, *secrets: str, tolerance_seconds: float = 300.0, clock: Clock | None = None
    ) -> None:
        if not secrets:
            raise InvalidArgument("there is no secret to verify with: pass at least one")
        self._keys = [secret_key(secret) for secret in secrets]
        self._tolerance_seconds = tolerance_seconds
        self._clock = clock or SystemClock()

    def verify(self, headers: Mapping[str, str], body: bytes) -> str:
        """The call's id. ``body`` is exactly what arrived. Raises `InvalidSignature`."""
        found = {name.lower(): value for name, value in headers.items()}
        try:
            id = found["webhook-id"]
            stated = found["webhook-timestamp"]
            signatures = found["webhook-signature"]
        except KeyError as exc:
            raise InvalidSignature(f"the call is not signed: it has no {exc.args[0]}") from None
        if not (stated.isascii() and stated.isdigit() and len(stated) <= 12):
            raise InvalidSignature("the call's webhook-timestamp is not a time")
        apart = abs(self._clock.now_ns() / NANOSECONDS - int(stated))
        if apart > self._tolerance_seconds:
            raise InvalidSignature(
                f"the call was made {apart:.0f} seconds from now: is it an old one?"
            )
        # Odd bytes in a header become surrogates; the signature is over the bytes.
        signed = b".".join((id.encode(errors="surrogateescape"), stated.encode(), body))
        given = [
            text.encode(errors="replace")
            for version, _, text in (one.partition(",") for one in signatures.split())
            if version == _VERSION
        ]
        for key in self._keys:
            expected = base64.b64encode(hmac.digest(key, signed, "sha256"))
            if any(hmac.compare_digest(expected, one) for one in given):
                return id
        raise InvalidSignature("none of the call's signatures was made with a secret given here")
