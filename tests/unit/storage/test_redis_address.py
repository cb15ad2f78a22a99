from __future__ import annotations

from penstock.storage.redis.address import parse


def test_the_url_of_one_server_is_handed_on_without_what_is_ours() -> None:
    found = parse("valkeys://user:word@host:1/2?prefix=p&replicas=1&ssl_ca_certs=/ca.pem")
    assert (found.kind, found.prefix, found.replicas) == ("single", "p", 1)
    assert found.url == "rediss://user:word@host:1/2?ssl_ca_certs=%2Fca.pem"


def test_a_socket_file_has_no_host() -> None:
    assert parse("unix:///run/redis.sock?db=3").url == "unix:///run/redis.sock?db=3"


def test_sentinels_are_many_hosts_and_the_name_of_what_they_watch() -> None:
    found = parse("redis+sentinel://user:w%40rd@one,two:1,[::1]:2/mymaster/3?sentinel_password=s")
    assert (found.kind, found.service) == ("sentinel", "mymaster")
    assert found.hosts == (("one", 26379), ("two", 1), ("::1", 2))
    assert found.options == {"username": "user", "password": "w@rd", "db": 3}
    assert found.sentinel_options == {"password": "s"}


def test_a_cluster_is_known_by_some_of_its_nodes() -> None:
    found = parse("valkeys+cluster://:word@one:7000,two?ssl_cert_reqs=none&replicas=2")
    assert (found.kind, found.hosts) == ("cluster", (("one", 7000), ("two", 6379)))
    assert found.replicas == 2
    assert found.options == {"password": "word", "ssl": True, "ssl_cert_reqs": "none"}
