"""Which addresses may be called.

A callback's URL comes from a user, and the server can reach what that user cannot: itself, its
neighbours, the cloud's metadata. So an address is checked where nothing can change any more: when
a socket is made for it (`Guard.make_socket`). By then, names, odd spellings of numbers and DNS
answers that differ from one moment to the next have all become a plain address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any

from penstock.errors import InvalidArgument

__all__ = ["LOOPBACK", "AddressRefused", "Guard", "Network", "parse_networks"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOOPBACK: tuple[Network, ...] = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))

_FORBIDDEN_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",
            "100.64.0.0/10",  # carriers' networks, and a cloud's metadata
            "127.0.0.0/8",
            "168.63.129.16/32",  # a cloud's metadata at a public address
            "169.254.0.0/16",  # link-local, and most clouds' metadata
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
# Everything but these is refused: what is global unicast lies in here.
_GLOBAL_V6 = IPv6Network("2000::/3")
_FORBIDDEN_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols' own, Teredo among them
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)
# These lead to the IPv4 address inside them.
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")


class AddressRefused(OSError):
    """The address of a callback is one that may not be called."""


def parse_networks(text: str) -> tuple[Network, ...]:
    """Networks and single addresses, separated by commas. Raises `InvalidArgument`."""
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as exc:
        raise InvalidArgument(
            f"{exc}: list networks such as 10.0.0.0/8 and addresses, separated by commas"
        ) from None


class Guard:
    """Refuses every address that is not public, except those that are ``allowed``."""

    def __init__(self, allowed: Iterable[Network] = ()) -> None:
        self._allowed = tuple(allowed)

    def permits(self, address: Address) -> bool:
        target = _target(address)
        if any(target in network for network in self._allowed):
            return True
        if isinstance(target, IPv4Address):
            return not any(target in network for network in _FORBIDDEN_V4)
        return target in _GLOBAL_V6 and not any(target in network for network in _FORBIDDEN_V6)

    def check(self, address: str) -> None:
        """Raises `AddressRefused`."""
        try:
            permitted = self.permits(ip_address(address))
        except ValueError:
            permitted = False
        if not permitted:
            raise AddressRefused(
                f"{address} is not public: callbacks there are refused unless the server's "
                "setting callback_allow has it"
            )

    def make_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """For the address that is about to be connected to. Raises `AddressRefused`."""
        family, kind, protocol, _, address = info
        self.check(address[0])
        return socket.socket(family, kind, protocol)


def _target(address: Address) -> Address:
    """Where packets end up: the IPv4 address inside, if there is one."""
    if isinstance(address, IPv4Address):
        return address
    number = int(address)
    if address in _MAPPED or address in _NAT64:
        return IPv4Address(number & 0xFFFF_FFFF)
    if address in _6TO4:
        return IPv4Address((number >> 80) & 0xFFFF_FFFF)
    return address
