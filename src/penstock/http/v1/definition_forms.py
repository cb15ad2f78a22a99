"""The settings of queues and subscriptions as JSON, to create one or to change some of them.

The fields are those of `QueueConfig` and `SubscriptionConfig`, so all forms get a new setting.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.errors import InvalidArgument
from penstock.http.v1.fields import MAX_NUMBER, Start

__all__ = [
    "EnsuredSubscriptionJson",
    "NewQueueJson",
    "NewSubscriptionJson",
    "QueueChangesJson",
    "SubscriptionChangesJson",
    "settings_of",
]


class NewQueueJson(QueueConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to be created: its name, and any of its settings."""

    name: str


class NewSubscriptionJson(
    SubscriptionConfig, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A subscription to be created. `start`: earliest, latest, an index or a time with a zone."""

    name: str
    start: Start = "latest"


class EnsuredSubscriptionJson(
    SubscriptionConfig, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A subscription that is to exist: like a new one, but its name is in the path."""

    start: Start = "latest"


def _changes_of(config: type[msgspec.Struct], name: str) -> type[msgspec.Struct]:
    """The same settings, all of them optional: what is absent stays as it is."""
    fields = [
        (field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(config)
    ]
    return msgspec.defstruct(
        name, fields, kw_only=True, forbid_unknown_fields=True, module=__name__
    )


QueueChangesJson = _changes_of(QueueConfig, "QueueChangesJson")
SubscriptionChangesJson = _changes_of(SubscriptionConfig, "SubscriptionChangesJson")


def settings_of(form: msgspec.Struct, config: type[msgspec.Struct]) -> dict[str, Any]:
    """The settings in a form. Raises `InvalidArgument` for a number that no store can keep."""
    found = {}
    for name in config.__struct_fields__:
        value = getattr(form, name)
        if value is UNSET:
            continue
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise InvalidArgument(f"{name} is {value}: use at most {MAX_NUMBER}")
        found[name] = value
    return found
