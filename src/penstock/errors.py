"""Every error that Penstock raises on purpose.

::

    PenstockError
    ├── InvalidRequest              the caller must change the request
    │   ├── InvalidArgument         invalid_argument
    │   ├── InvalidName             invalid_name
    │   ├── InvalidFilter           invalid_filter
    │   ├── InvalidReceipt          invalid_receipt
    │   ├── InvalidDependency       invalid_dependency
    │   ├── MessageTooLarge         message_too_large
    │   ├── BatchTooLarge           batch_too_large
    │   └── MissingExtra            missing_extra
    ├── NotFound
    │   ├── QueueNotFound           queue_not_found
    │   ├── SubscriptionNotFound    subscription_not_found
    │   ├── MessageNotFound         message_not_found
    │   └── UserNotFound            user_not_found
    ├── Conflict                    the state does not allow it now
    │   ├── QueueExists             queue_exists
    │   ├── SubscriptionExists      subscription_exists
    │   ├── QueueFull               queue_full
    │   ├── ReservedQueue           reserved_queue
    │   ├── NotLeased               not_leased
    │   ├── NotHeld                 not_held
    │   └── UserExists              user_exists
    └── StorageError                the store cannot do it
        ├── DiskFull                disk_full
        ├── MemoryFull              memory_full
        ├── StoreUnavailable        store_unavailable
        ├── StorageFailed           storage_failed
        ├── StorageClosed           storage_closed
        ├── CorruptLog              corrupt_log
        ├── DirectoryLocked         directory_locked
        ├── NewerFormat             newer_format
        └── UnknownBackend          unknown_backend

``code`` is stable: programs may compare it. The text says what happened and what to do.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BatchTooLarge",
    "Conflict",
    "CorruptLog",
    "DirectoryLocked",
    "DiskFull",
    "InvalidArgument",
    "InvalidDependency",
    "InvalidFilter",
    "InvalidName",
    "InvalidReceipt",
    "InvalidRequest",
    "MemoryFull",
    "MessageNotFound",
    "MessageTooLarge",
    "MissingExtra",
    "NewerFormat",
    "NotFound",
    "NotHeld",
    "NotLeased",
    "PenstockError",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "ReservedQueue",
    "StorageClosed",
    "StorageError",
    "StorageFailed",
    "StoreUnavailable",
    "SubscriptionExists",
    "SubscriptionNotFound",
    "UnknownBackend",
    "UserExists",
    "UserNotFound",
]


class PenstockError(Exception):
    """The root of the tree."""

    code: ClassVar[str] = "error"


class InvalidRequest(PenstockError):
    """The request can never succeed as it is."""

    code = "invalid_request"


class InvalidArgument(InvalidRequest):
    """A value is out of its range or of the wrong kind."""

    code = "invalid_argument"


class InvalidName(InvalidRequest):
    """A queue or subscription name breaks the rule for names."""

    code = "invalid_name"


class InvalidFilter(InvalidRequest):
    """A filter is not a CEL expression that yields true or false."""

    code = "invalid_filter"


class InvalidReceipt(InvalidRequest):
    """A receipt was not made by this queue and subscription, or is damaged."""

    code = "invalid_receipt"


class InvalidDependency(InvalidRequest):
    """A subscription cannot wait for the ones named: unknown, itself, or a cycle."""

    code = "invalid_dependency"


class MessageTooLarge(InvalidRequest):
    """A body or its attributes exceed the limit."""

    code = "message_too_large"


class BatchTooLarge(InvalidRequest):
    """One request holds more messages or bytes than a batch may."""

    code = "batch_too_large"


class MissingExtra(InvalidRequest):
    """It needs a package that is not installed; the text names the extra that brings it."""

    code = "missing_extra"


class NotFound(PenstockError):
    """What the request names does not exist."""

    code = "not_found"


class QueueNotFound(NotFound):
    """There is no queue of that name."""

    code = "queue_not_found"


class SubscriptionNotFound(NotFound):
    """The queue has no subscription of that name."""

    code = "subscription_not_found"


class MessageNotFound(NotFound):
    """The queue holds no message of that id or index."""

    code = "message_not_found"


class UserNotFound(NotFound):
    """There is no user of that id, name or e-mail."""

    code = "user_not_found"


class Conflict(PenstockError):
    """The state of the queue does not allow the request now."""

    code = "conflict"


class QueueExists(Conflict):
    """A queue of that name exists already."""

    code = "queue_exists"


class SubscriptionExists(Conflict):
    """The queue has a subscription of that name already."""

    code = "subscription_exists"


class QueueFull(Conflict):
    """The queue's bound is reached; the whole batch was refused and nothing was stored."""

    code = "queue_full"


class ReservedQueue(Conflict):
    """Dead-letter queues are written by the broker alone."""

    code = "reserved_queue"


class NotLeased(Conflict):
    """The message is not in flight under that lease (any more)."""

    code = "not_leased"


class NotHeld(Conflict):
    """The message is not held back by a dependency."""

    code = "not_held"


class UserExists(Conflict):
    """There is a user of that name or e-mail already."""

    code = "user_exists"


class StorageError(PenstockError):
    """The store could not do what was asked."""

    code = "storage_error"


class DiskFull(StorageError):
    """There is no space for the write; it was refused and nothing was stored."""

    code = "disk_full"


class MemoryFull(StorageError):
    """The server that keeps the messages has no memory left; nothing was stored."""

    code = "memory_full"


class StoreUnavailable(StorageError):
    """The server that keeps the messages is away for now; a write may have reached it or not."""

    code = "store_unavailable"


class StorageFailed(StorageError):
    """A write or sync failed, so the store is read-only until it is opened again."""

    code = "storage_failed"


class StorageClosed(StorageError):
    """The store was closed."""

    code = "storage_closed"


class CorruptLog(StorageError):
    """Bytes that had been synced do not read back as they were written."""

    code = "corrupt_log"

    def __init__(self, message: str, *, file: str = "", offset: int = 0) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset


class DirectoryLocked(StorageError):
    """Another process owns the data directory."""

    code = "directory_locked"


class NewerFormat(StorageError):
    """The data directory was written by a newer version."""

    code = "newer_format"


class UnknownBackend(StorageError):
    """No backend serves that URL, or its extra is not installed."""

    code = "unknown_backend"
