"""The broker's arguments: whatever has the wrong type is refused before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from penstock.core.config import check_list, check_text, check_whole
from penstock.core.settling import Target, check_delay, check_extension, check_reason
from penstock.errors import InvalidArgument, InvalidName
from penstock.storage import base

__all__ = ["check_ids", "check_names", "check_settlements", "check_targets", "make_config"]

Config = TypeVar("Config", bound=msgspec.Struct)

_SETTLEMENTS = "Ack, Nack, Extend, GiveBack or AckUpTo"


def check_names(queue: object, subscription: object = "") -> None:
    if not isinstance(queue, str) or not isinstance(subscription, str):
        name = subscription if isinstance(queue, str) else queue
        raise InvalidName(f"a name is {name!r}: queues and subscriptions are named by a str")


def check_targets(targets: object) -> Sequence[Target]:
    return check_list("targets", targets, "deliveries, receipts or message ids")


def check_ids(ids: object) -> Sequence[str]:
    return [check_text("an id", id) for id in check_list("ids", ids, "message ids")]


def check_settlements(settlements: object) -> Sequence[base.Settlement]:
    """Checks them all, so that none is applied when another is wrong."""
    return [_checked(one) for one in check_list("settlements", settlements, _SETTLEMENTS)]


def _checked(settlement: object) -> base.Settlement:
    match settlement:
        case base.Ack(targets=targets):
            return base.Ack(targets=check_targets(targets))
        case base.Nack(targets=targets, delay_seconds=delay, reason=reason):
            check_delay(delay)
            reason = check_reason(reason)
            return base.Nack(targets=check_targets(targets), delay_seconds=delay, reason=reason)
        case base.Extend(targets=targets, seconds=seconds, further=further):
            check_extension(seconds)
            targets = check_targets(targets)
            return base.Extend(targets=targets, seconds=seconds, further=bool(further))
        case base.GiveBack(targets=targets):
            return base.GiveBack(targets=check_targets(targets))
        case base.AckUpTo(index=index):
            check_whole("index", index)
            return base.AckUpTo(index=index)
    raise InvalidArgument(f"a settlement is {type(settlement).__name__}: pass {_SETTLEMENTS}")


def make_config(kind: type[Config], config: Config | None, settings: dict[str, Any]) -> Config:
    """The config that was passed, or one made from settings by their names."""
    if config is not None:
        if settings:
            raise InvalidArgument("pass either a config or settings, not both")
        if type(config) is not kind:
            raise InvalidArgument(
                f"the config is {type(config).__name__}: pass a {kind.__name__}, "
                "or settings by their names"
            )
        return config
    unknown = settings.keys() - set(kind.__struct_fields__)
    if unknown:
        raise InvalidArgument(
            f"unknown setting {', '.join(sorted(unknown))}: "
            f"there are {', '.join(kind.__struct_fields__)}"
        )
    return kind(**settings)
