"""Whatever is wrong with a URL, no error shows the secret in it."""

from __future__ import annotations

import pytest

from penstock.client import AsyncClient
from penstock.errors import InvalidArgument, UnknownBackend
from penstock.shown_url import shown_url
from penstock.spark.options import read_options
from penstock.storage.redis.address import parse
from penstock.storage.registry import open_store

# With a name and a password, with either alone, not encoded, malformed in other places.
AUTHORITIES = [
    "me:secret@host",
    ":secret@host",
    "secret@host",
    "me:secret@host:99999",
    "me:x/secret@host",
    "me:1?secret@host",
    "me:1#secret@host",
    "me:secret@",
    "me:secret@[::1",
    "me:1@secret@host",
]
# With a token where none is expected.
SUFFIXES = ["host?token=secret", "host/path?token=secret", "host#secret", "[::1?token=secret"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host:8080/path", "http://host:8080/path"),
        ("http://me:secret@host:8080/path?token=secret#secret", "http://host:8080/path"),
        ("host:8080", "host:8080"),
        ("me:secret@host", "host"),
        ("http://host/#a?b", "http://host/"),
    ],
)
def test_only_scheme_host_and_path_are_shown(url: str, expected: str) -> None:
    assert shown_url(url) == expected


@pytest.mark.parametrize("rest", [*AUTHORITIES, *SUFFIXES])
@pytest.mark.parametrize("scheme", ["http://", "https://", "ftp://", ""])
def test_a_client_refuses_a_secret_in_its_url_and_does_not_show_it(scheme: str, rest: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        AsyncClient(scheme + rest)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("rest", [*AUTHORITIES, *SUFFIXES])
@pytest.mark.parametrize("scheme", ["http://", "https://", "ftp://", ""])
def test_spark_refuses_a_secret_in_its_url_and_does_not_show_it(scheme: str, rest: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        read_options({"subscribe": "a", "url": scheme + rest}, use="batch")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "authority",
    ["me:1/secret@host", "me:x/secret@host", "me:1?secret@host", "me:1#secret@h", "a:secret@[::1"],
)
@pytest.mark.parametrize("scheme", ["redis://", "rediss://", "redis+cluster://"])
def test_an_address_of_redis_that_is_none_is_not_shown(scheme: str, authority: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse(scheme + authority)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "wal://me:secret@host/data"])
async def test_a_store_that_is_none_is_shown_without_its_password(url: str) -> None:
    with pytest.raises(UnknownBackend) as refused:
        await open_store(url)
    assert "host" in str(refused.value)
    assert "secret" not in str(refused.value)
