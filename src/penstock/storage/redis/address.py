"""The URL of a Redis: a single server, one behind Sentinel, or a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from penstock.errors import InvalidArgument

__all__ = ["Address", "parse"]

DEFAULT_PREFIX = "penstock"
_PORTS = {"sentinel": 26379, "cluster": 6379}
_MOST_REPLICAS = 100

# Our schemes, and the driver's.
_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
}
# The driver's options that may be given in the URL.
_TLS_OPTIONS = {"ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
_SENTINEL_OPTIONS = {"sentinel_username": "username", "sentinel_password": "password"}


@dataclass(frozen=True, kw_only=True)
class Address:
    """`url` is for a single server, in the driver's form; the other kinds have `hosts`.

    `service` is the name of the master in Sentinel. `replicas` is how many replicas must have a
    write before it is answered.
    """

    kind: Literal["single", "sentinel", "cluster"]
    prefix: str
    replicas: int
    url: str = ""
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    options: dict[str, Any]
    sentinel_options: dict[str, Any]


def parse(url: str) -> Address:
    """Raises `InvalidArgument`, without the url: it may hold a password."""
    try:
        return _parse(urlsplit(url))
    except ValueError as exc:
        raise InvalidArgument(f"the store's url is not one of Redis: {exc}") from exc


def _parse(url: SplitResult) -> Address:
    if url.scheme != "unix" and "@" not in url.netloc and "@" in url.geturl():
        # Otherwise a later error would quote a part of it.
        raise ValueError("its name or password holds one of / ? #: write %2F, %3F, %23")
    asked = dict(parse_qsl(url.query, keep_blank_values=True))
    prefix = _prefix(asked)
    replicas = _replicas(asked)
    tls = {name: asked.pop(name) for name in list(asked) if name in _TLS_OPTIONS}
    scheme, _, kind = url.scheme.partition("+")
    if not kind:
        database = {"db": asked.pop("db")} if "db" in asked else {}
        _check_understood(asked)
        query = urlencode(tls | database)
        plain = f"{_SCHEMES.get(scheme, scheme)}://{url.netloc}{url.path}"
        return Address(
            kind="single",
            prefix=prefix,
            replicas=replicas,
            url=f"{plain}?{query}" if query else plain,
            options={},
            sentinel_options={},
        )
    return _parse_many(url, kind, prefix, replicas, asked, tls)


def _parse_many(
    url: SplitResult,
    kind: str,
    prefix: str,
    replicas: int,
    asked: dict[str, str],
    tls: dict[str, str],
) -> Address:
    user, _, places = url.netloc.rpartition("@")
    options: dict[str, Any] = dict(tls)
    if _SCHEMES[url.scheme.partition("+")[0]] == "rediss":
        options["ssl"] = True
    name, _, password = user.partition(":")
    options |= {
        key: unquote(value) for key, value in (("username", name), ("password", password)) if value
    }
    hosts = tuple(_host(place, _PORTS[kind]) for place in places.split(","))
    path = url.path.strip("/")
    if kind == "cluster":
        if path not in ("", "0"):
            raise ValueError(f"a cluster has the database 0 alone, not {path!r}")
        _check_understood(asked)
        return Address(
            kind="cluster",
            prefix=prefix,
            replicas=replicas,
            hosts=hosts,
            options=options,
            sentinel_options={},
        )
    service, _, database = path.partition("/")
    if not service:
        raise ValueError("the name of the service is missing: redis+sentinel://host:26379/name")
    if database:
        options["db"] = int(database)
    own = {theirs: asked.pop(ours) for ours, theirs in _SENTINEL_OPTIONS.items() if ours in asked}
    _check_understood(asked)
    return Address(
        kind="sentinel",
        prefix=prefix,
        replicas=replicas,
        hosts=hosts,
        service=unquote(service),
        options=options,
        sentinel_options=own | {key: options[key] for key in options if key.startswith("ssl")},
    )


def _prefix(asked: dict[str, str]) -> str:
    prefix = asked.pop("prefix", DEFAULT_PREFIX)
    if not prefix or set(prefix) & set("{} \n"):
        raise ValueError(
            f"the prefix {prefix!r} cannot be used: choose one without braces and spaces"
        )
    return prefix


def _replicas(asked: dict[str, str]) -> int:
    text = asked.pop("replicas", "0")
    if not (text.isascii() and text.isdigit() and int(text) <= _MOST_REPLICAS):
        raise ValueError(f"replicas is {text!r}: use 0 to {_MOST_REPLICAS}")
    return int(text)


def _host(place: str, port: int) -> tuple[str, int]:
    found = urlsplit(f"//{place}")
    if not found.hostname:
        raise ValueError("there is no host: use host:port, separated by commas")
    return found.hostname, found.port or port


def _check_understood(asked: dict[str, str]) -> None:
    if asked:
        raise ValueError(
            f"{', '.join(sorted(asked))} is not understood: there are prefix and replicas"
        )
