"""Messages as documents, with the field names of the earlier services, and back."""

from __future__ import annotations

from penstock.core.limits import DEAD_LETTER_SUFFIX
from penstock.core.message import PLAIN, DeadLetter, Envelope, Message, message_id, to_datetime
from penstock.core.publishing import NewBatch, PublishResult
from penstock.storage.mongo.connection import Document

__all__ = ["batch_documents", "letter_document", "message_document", "to_message"]


def batch_documents(queue: str, batch: NewBatch, result: PublishResult) -> list[Document]:
    """The documents of a publish, without duplicates, which were stored before."""
    created_ns, salt = result.created_ns, result.salt
    created_at = to_datetime(created_ns)
    duplicates = result.duplicates
    documents = []
    for at, (index, body) in enumerate(zip(result.indexes, batch.bodies, strict=True)):
        if at not in duplicates:
            head = batch.heads[at] if batch.heads is not None else b""
            document = {
                "_id": message_id(created_ns, index, salt),
                "index": index,
                "content": _content(body),
                "consumerGroup": queue,
                "createdAt": created_at,
                "createdNs": created_ns,
                "consumed": False,
                "deliveryCount": 0,
                "done": False,
                "salt": salt,
            }
            if head:
                document["envelope"] = head
            documents.append(document)
    return documents


def _content(body: bytes) -> str | bytes:
    """Text if it is UTF-8, which is easier to read for people."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def message_document(message: Message) -> Document:
    """The document of an existing message."""
    document: Document = {
        "_id": message.id,
        "index": message.index,
        "content": _content(message.body),
        "consumerGroup": message.queue,
        "createdAt": message.created_at,
        "createdNs": message.created_at_ns,
        "consumed": False,
        "deliveryCount": 0,
        "done": False,
        "salt": message.salt,
    }
    if message.envelope != PLAIN:
        document["envelope"] = message.envelope.encode()
    return document


def letter_document(message: Message) -> Document:
    """The document of a dead letter. A message may have several, so it needs an id of its own."""
    letter = message.dead_letter
    assert letter is not None
    document = message_document(message)
    del document["consumed"]
    document.update(
        _id=f"{message.id}/{message.index}",
        id=message.id,
        consumerGroup=letter.queue,
        deliveryCount=letter.deliveries,
        failedAt=letter.failed_at,
        failedNs=letter.failed_at_ns,
        dlqReason=letter.reason,
        subscription=letter.subscription,
        sourceIndex=letter.index,
    )
    return document


def to_message(queue: str, document: Document) -> Message:
    content: str | bytes = document["content"]
    letter = None
    if "failedNs" in document:
        letter = DeadLetter(
            queue=queue.removesuffix(DEAD_LETTER_SUFFIX),
            subscription=document["subscription"],
            index=document["sourceIndex"],
            deliveries=document["deliveryCount"],
            reason=document["dlqReason"],
            failed_at_ns=document["failedNs"],
        )
    return Message(
        queue=queue,
        index=document["index"],
        created_at_ns=document["createdNs"],
        salt=document["salt"],
        body=content.encode() if isinstance(content, str) else content,
        envelope=Envelope.decode(document.get("envelope", b"")),
        dead_letter=letter,
    )
