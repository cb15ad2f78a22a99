"""Whatever the driver raises, callers see an error of ours that says whether to try again."""

from __future__ import annotations

import pytest
from redis import exceptions as failures

from penstock.errors import MemoryFull, StorageError, StoreUnavailable
from penstock.storage.redis.connection import translated

# A failover or a move brings these about, and they pass.
_PASSING: list[Exception] = [
    failures.ConnectionError("closed"),
    failures.BusyLoadingError("loading"),
    failures.MaxConnectionsError(),
    failures.TimeoutError("silent"),
    failures.ReadOnlyError("a replica"),
    failures.ClusterError("no node has the slot"),
    failures.ClusterDownError("Hash slot not served"),
    failures.MasterDownError("Link with MASTER is down"),
    failures.AskError("1 127.0.0.1:7000"),
    failures.MovedError("1 127.0.0.1:7000"),
    failures.TryAgainError("Multiple keys request during rehashing of slot"),
    failures.ResponseError("NOREPLICAS Not enough good replicas to write."),
    failures.ResponseError("MISCONF Errors writing to the AOF file"),
    failures.ResponseError("BUSY Redis is busy running a script."),
    failures.ResponseError("UNBLOCKED force unblock from blocking operation"),
    ConnectionResetError(104, "Connection reset by peer"),
    TimeoutError(),
]
# These do not: somebody has to do something.
_LASTING: list[Exception] = [
    failures.NoPermissionError("this user has no permissions"),
    failures.ClusterCrossSlotError("Keys in request don't hash to the same slot"),
    failures.ResponseError("ERR unknown command"),
    failures.InvalidResponse("garbage"),
    failures.DataError("no"),
]


def named(error: Exception) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", _PASSING, ids=named)
def test_what_passes_may_be_tried_again(error: Exception) -> None:
    with pytest.raises(StoreUnavailable, match="try again shortly") as raised, translated():
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", _LASTING, ids=named)
def test_what_lasts_is_an_error_of_the_store(error: Exception) -> None:
    with pytest.raises(StorageError) as raised, translated():
        raise error
    assert type(raised.value) is StorageError


@pytest.mark.parametrize("kind", [failures.AuthenticationError, failures.AuthorizationError])
def test_a_wrong_password_is_told_from_a_redis_that_is_away(kind: type[Exception]) -> None:
    with pytest.raises(StoreUnavailable, match="correct the name or the password"), translated():
        raise kind("invalid username-password pair")


def test_a_redis_that_is_full_says_so() -> None:
    with pytest.raises(MemoryFull), translated():
        raise failures.OutOfMemoryError("command not allowed when used memory > 'maxmemory'")


def test_no_error_of_the_driver_gets_through() -> None:
    # Each class that its own code for one server can raise; those of its code for clusters, which
    # is not used, are no errors of Redis to it.
    for kind in vars(failures).values():
        if isinstance(kind, type) and issubclass(kind, failures.RedisError):
            arguments = ("1 127.0.0.1:7000",) if issubclass(kind, failures.AskError) else ("no",)
            with pytest.raises(StorageError), translated():
                raise kind(*arguments)
