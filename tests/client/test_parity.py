"""Client and broker take the same calls, so that a program can move from one to the other."""

from __future__ import annotations

import inspect

import pytest

from penstock import AsyncClient, Broker, Client

# What a program does to a queue. The rest is for those who run the broker, or a server.
CALLS = sorted(
    name
    for name, method in vars(AsyncClient).items()
    if inspect.iscoroutinefunction(method) and not name.startswith("_") and hasattr(Broker, name)
)
# A server bounds its answers itself, and LightQ's API alone extends a lease from its end.
OF_THE_BROKER = {"receive": {"most_bytes"}, "poll": {"most_bytes"}, "extend": {"further"}}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_the_same_arguments_with_the_same_defaults(name: str) -> None:
    embedded = inspect.signature(getattr(Broker, name)).parameters
    served = inspect.signature(getattr(AsyncClient, name)).parameters

    own = OF_THE_BROKER.get(name, set())
    assert {key: one.default for key, one in served.items()} == {
        key: one.default for key, one in embedded.items() if key not in own
    }
    assert list(served) == [key for key in embedded if key not in own]


def test_most_of_the_broker_is_there() -> None:
    assert {"publish", "receive", "ack", "nack", "replay", "create_queue", "seek"} <= set(CALLS)
    assert len(CALLS) >= 30


def test_the_synchronous_client_has_every_call_of_the_asynchronous_one() -> None:
    asynchronous = {
        name
        for name, method in vars(AsyncClient).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_")
    }

    assert asynchronous - set(dir(Client)) == {"cut_off"}
