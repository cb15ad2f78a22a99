"""What a call says: the headers beside a message, and the text of a notice."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from penstock.core.callback import CallbackTarget, News
from penstock.core.message import Delivery, to_datetime
from penstock.push.signing import Signer

__all__ = ["Notice", "delivery_headers", "notice_body", "notice_headers"]

_JSON = "application/json"
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


def delivery_headers(
    target: CallbackTarget, signer: Signer, delivery: Delivery, now_ns: int
) -> dict[str, str]:
    """The id is the message's own, so it stays the same whenever the message comes again."""
    envelope = delivery.envelope
    id = delivery.id
    content_type = envelope.content_type
    headers = signer.headers(id, now_ns // 1_000_000_000, delivery.body)
    headers["Content-Type"] = content_type if _PLAIN.match(content_type) else _quoted(content_type)
    headers["Penstock-Queue"] = target.queue
    headers["Penstock-Subscription"] = target.subscription
    headers["Penstock-Index"] = str(delivery.index)
    headers["Penstock-Deliveries"] = str(delivery.deliveries)
    if envelope.topic is not None:
        headers["Penstock-Topic"] = _quoted(envelope.topic)
    if envelope.group_key is not None:
        headers["Penstock-Group-Key"] = _quoted(envelope.group_key)
    for name, value in envelope.attributes.items():
        headers[f"Penstock-Attribute-{quote(name, safe=_TOKEN)}"] = _quoted(value)
    if target.callback.cloudevents:
        headers["ce-specversion"] = "1.0"
        headers["ce-id"] = id
        headers["ce-source"] = f"/queues/{target.queue}"
        headers["ce-type"] = _quoted(envelope.topic or "penstock.message")
        headers["ce-time"] = to_datetime(delivery.created_at_ns).isoformat().replace("+00:00", "Z")
        if envelope.group_key is not None:
            headers["ce-partitionkey"] = _quoted(envelope.group_key)
    return headers


def notice_body(target: CallbackTarget, news: News) -> bytes:
    return _encoder.encode(
        Notice(
            queue=target.queue,
            subscription=target.subscription,
            lowest_unacked_index=news.lowest_unacked_index,
            ready=news.ready,
        )
    )


def notice_headers(
    target: CallbackTarget, signer: Signer, id: str, body: bytes, now_ns: int
) -> dict[str, str]:
    headers = signer.headers(id, now_ns // 1_000_000_000, body)
    headers["Content-Type"] = _JSON
    headers["Penstock-Queue"] = target.queue
    headers["Penstock-Subscription"] = target.subscription
    if target.callback.cloudevents:
        headers["ce-specversion"] = "1.0"
        headers["ce-id"] = id
        headers["ce-source"] = f"/queues/{target.queue}"
        headers["ce-type"] = "penstock.notice"
        headers["ce-time"] = to_datetime(now_ns).isoformat().replace("+00:00", "Z")
    return headers


def _quoted(text: str) -> str:
    """As CloudEvents has it: what is not printable ASCII, and % and ", are percent-encoded."""
    return quote(text, safe=_INNER if text == text.strip() else _PRINTABLE)
