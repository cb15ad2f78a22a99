"""Signatures as Standard Webhooks has them: an HMAC of id, time and body for each live secret."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable

from penstock.core.callback import secret_key

__all__ = ["Signer"]


class Signer:
    """Signs with every live secret, so that a receiver may know either."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._keys = [secret_key(secret) for secret in secrets]

    def headers(self, id: str, timestamp_seconds: int, body: bytes) -> dict[str, str]:
        signed = b"%b.%d.%b" % (id.encode(), timestamp_seconds, body)
        signatures = [
            "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
            for key in self._keys
        ]
        return {
            "webhook-id": id,
            "webhook-timestamp": str(timestamp_seconds),
            "webhook-signature": " ".join(signatures),
        }
