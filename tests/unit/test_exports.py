"""What `penstock` offers is a promise: a name is added on purpose and never lost by accident."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import penstock
from penstock import errors

NAMES = [
    "Ack",
    "AckUpTo",
    "AsyncClient",
    "Backoff",
    "Broker",
    "Callback",
    "Client",
    "DeadLetter",
    "DefinedSubscription",
    "Delivery",
    "EnsuredQueue",
    "EnsuredSubscription",
    "Extend",
    "GiveBack",
    "Message",
    "Nack",
    "NewMessage",
    "Outcome",
    "PenstockError",
    "PublishResult",
    "PublishedMessage",
    "QueueConfig",
    "QueueStats",
    "SubscriptionConfig",
    "SubscriptionStats",
    "errors",
    "open",
]


def test_penstock_exports_these_names_and_no_others() -> None:
    assert sorted(penstock.__all__) == NAMES


def test_every_exported_name_is_there() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None


def test_every_error_is_exported() -> None:
    defined = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PenstockError)
    ]
    assert sorted(errors.__all__) == sorted(defined)


def _modules() -> list[str]:
    found = pkgutil.walk_packages(penstock.__path__, prefix="penstock.")
    return [module.name for module in found if not module.name.endswith("__main__")]


@pytest.mark.parametrize("name", _modules())
def test_what_a_module_lists_it_has(name: str) -> None:
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])
    assert sorted(set(listed)) == sorted(listed)
    for public in listed:
        assert hasattr(module, public), f"{name} lists {public!r}, but has no such thing"
