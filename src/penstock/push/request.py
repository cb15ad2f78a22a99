"""What a call carries: the headers that go with a message, and the body of a notice."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from penstock.core.callback import CallbackTarget
from penstock.core.message import Delivery, to_datetime
from penstock.core.stats import SubscriptionStats
from penstock.push.signing import Signer

__all__ = ["Notice", "Requests"]

# What a header can carry as it is.
_PLAIN = re.compile(r"[!-~]([ -~]*[!-~])?\Z")
_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '%"')
_INNER = _PRINTABLE + " "
_TOKEN = "!#$&'*+-.^_`|~"

_encoder = msgspec.json.Encoder()


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a call in mode ``notify``."""

    queue: str
    subscription: str
    lowest_unacked_index: int
    ready: int


class Requests:
    """Builds the requests of one subscription's calls."""

    def __init__(self, target: CallbackTarget) -> None:
        self._target = target
        self._signer = Signer(target.secrets)
        self._always = {
            "Penstock-Queue": target.queue,
            "Penstock-Subscription": target.subscription,
        }
        if target.callback.cloudevents:
            self._always["ce-specversion"] = "1.0"
            self._always["ce-source"] = f"/queues/{target.queue}"

    def delivery_headers(self, delivery: Delivery, now_ns: int) -> dict[str, str]:
        """The id is the message's own, so it is the same each time the message is delivered."""
        envelope = delivery.envelope
        id = delivery.id
        content_type = envelope.content_type
        headers = self._signer.headers(id, now_ns // 1_000_000_000, delivery.body)
        headers |= self._always
        headers["Content-Type"] = (
            content_type if _PLAIN.match(content_type) else _quoted(content_type)
        )
        headers["Penstock-Index"] = str(delivery.index)
        headers["Penstock-Deliveries"] = str(delivery.deliveries)
        if envelope.topic is not None:
            headers["Penstock-Topic"] = _quoted(envelope.topic)
        if envelope.group_key is not None:
            headers["Penstock-Group-Key"] = _quoted(envelope.group_key)
        for name, value in envelope.attributes.items():
            headers[f"Penstock-Attribute-{quote(name, safe=_TOKEN)}"] = _quoted(value)
        if self._target.callback.cloudevents:
            headers["ce-id"] = id
            headers["ce-type"] = _quoted(envelope.topic or "penstock.message")
            headers["ce-time"] = _time(delivery.created_at_ns)
            if envelope.group_key is not None:
                headers["ce-partitionkey"] = _quoted(envelope.group_key)
        return headers

    def notice_body(self, stats: SubscriptionStats) -> bytes:
        return _encoder.encode(
            Notice(
                queue=self._target.queue,
                subscription=self._target.subscription,
                lowest_unacked_index=stats.lowest_unacked_index,
                ready=stats.ready,
            )
        )

    def notice_headers(self, id: str, body: bytes, now_ns: int) -> dict[str, str]:
        headers = self._signer.headers(id, now_ns // 1_000_000_000, body)
        headers |= self._always
        headers["Content-Type"] = "application/json"
        if self._target.callback.cloudevents:
            headers["ce-id"] = id
            headers["ce-type"] = "penstock.notice"
            headers["ce-time"] = _time(now_ns)
        return headers


def _time(time_ns: int) -> str:
    return to_datetime(time_ns).isoformat().replace("+00:00", "Z")


def _quoted(text: str) -> str:
    """As CloudEvents has it: what is not printable ASCII, and % and ", are percent-encoded."""
    return quote(text, safe=_INNER if text == text.strip() else _PRINTABLE)
