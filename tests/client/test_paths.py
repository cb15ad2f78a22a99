from __future__ import annotations

import pytest

from penstock.client import AsyncClient, paths
from penstock.errors import InvalidArgument, InvalidName


def test_paths_are_those_of_the_native_api() -> None:
    assert paths.queue_path("orders", "/purge") == "/v1/queues/orders/purge"
    assert (
        paths.subscription_path("orders", "default", "/receive")
        == "/v1/queues/orders/subscriptions/default/receive"
    )
    assert paths.message_path("orders", "a/b?c") == "/v1/queues/orders/messages/a%2Fb%3Fc"


@pytest.mark.parametrize("suffix", ["-dlq", "-events", "-events-dlq"])
def test_a_queue_that_belongs_to_one_of_the_longest_name_has_a_path(suffix: str) -> None:
    assert paths.queue_path("q" * 50 + suffix).endswith("q" + suffix)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a?b", "ä", "q" * 51, "-dlq/..", None, 7])
def test_what_is_no_name_never_becomes_a_path(name: str) -> None:
    with pytest.raises(InvalidName):
        paths.queue_path(name)
    with pytest.raises(InvalidName):
        paths.subscription_path("orders", name)


def test_a_query_leaves_out_what_was_not_given() -> None:
    assert paths.with_query("/x", after=None, limit=5) == "/x?limit=5"
    assert paths.with_query("/x", after="a b") == "/x?after=a+b"
    assert paths.with_query("/x", after=None) == "/x"


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://localhost:8080/", "http://localhost:8080"),
        ("https://example.test/queues/", "https://example.test/queues"),
    ],
)
def test_a_url_may_have_a_path_and_a_slash_at_its_end(url: str, base: str) -> None:
    assert AsyncClient(url).url == base


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8080", "ftp://host", "http://", "http://a:b@host", "http://host?x=1"]
)
def test_a_url_that_cannot_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidArgument):
        AsyncClient(url)
