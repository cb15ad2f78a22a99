"""Addresses that may not be called, in every spelling, and names that lead to them."""

from __future__ import annotations

import asyncio
import socket
import threading
from ipaddress import ip_address
from typing import Any

import pytest

from penstock.core.callback import Callback
from penstock.errors import InvalidArgument
from penstock.push.guard import LOOPBACK, AddressRefused, Guard, parse_networks
from penstock.push.resolver import Resolver
from penstock.push.transport import CallFailed, Endpoint, Transport
from tests.push.receiver import Receiver

FORBIDDEN = [
    # This machine
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "::1",
    "::",
    # Its neighbours
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "fe80::1",
    "fe80::1%1",
    # The cloud's metadata
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fe80::a9fe:a9fe",
    # Many at once, reserved, for documents
    "224.0.0.1",
    "239.255.255.250",
    "ff02::1",
    "ff0e::1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "2001:db8::1",
    "3fff::1",
    "100::1",
    # IPv4 within IPv6: mapped, compatible, NAT64, 6to4, Teredo
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "0:0:0:0:0:ffff:7f00:1",
    "::127.0.0.1",
    "::a00:1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]
PUBLIC = [
    "1.1.1.1",
    "93.184.216.34",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "169.253.0.1",
    "168.63.129.17",
    "2606:2800:220:1:248:1893:25c8:1946",
    "2a00:1450:4001::1",
    "::ffff:1.1.1.1",
    "64:ff9b::1.1.1.1",
    "2002:101:101::1",
]
# What a resolver makes of these is a loopback or private address.
SPELLINGS = [
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "127.1",
    "127.0.1",
    "127.000.000.001",
    "0",
    "0x0",
    "localhost",
    "localhost.",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::]",
    "127.0.0.1.",
    "%31%32%37.0.0.1",
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused, match="is not public"):
        Guard().check(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not(address: str) -> None:
    Guard().check(address)


@pytest.mark.parametrize("address", ["", "example.org", "127.0.0.1/8", "1.2.3.4.5"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused):
        Guard().check(address)


def test_what_is_allowed_is_allowed_in_all_its_forms() -> None:
    guard = Guard(parse_networks("10.1.0.0/16, fd00:1::/32,192.168.0.7"))
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd00:1::5", "192.168.0.7"):
        guard.check(address)
    for address in ("10.2.0.1", "fd00:2::1", "192.168.0.8", "127.0.0.1"):
        with pytest.raises(AddressRefused):
            guard.check(address)


def test_loopback_is_not_this_machines_other_addresses() -> None:
    guard = Guard(LOOPBACK)
    assert guard.permits(ip_address("127.0.0.1"))
    assert guard.permits(ip_address("::1"))
    for address in ("0.0.0.0", "::", "10.0.0.1", "169.254.169.254"):
        assert not guard.permits(ip_address(address))


@pytest.mark.parametrize("text", ["10.0.0.0/33", "example.org", "10.0.0.1/8", "10.0.0.0/8;::1"])
def test_networks_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="list networks"):
        parse_networks(text)


# Over a real connection: whatever it is called, it leads to the receiver.


async def post(transport: Transport, url: str) -> int:
    endpoint = Endpoint(Callback(url=url, timeout_seconds=10))
    return (await transport.post(endpoint, b"x", {})).status


@pytest.mark.parametrize("host", SPELLINGS)
async def test_no_spelling_gets_through(receiver: Receiver, host: str) -> None:
    transport = Transport(Guard())
    with pytest.raises(CallFailed):
        await post(transport, f"http://{host}:{receiver.port}/")
    await transport.close()
    assert receiver.calls == []


@pytest.mark.parametrize("host", SPELLINGS)
async def test_whatever_a_resolver_makes_of_a_spelling_is_refused(
    receiver: Receiver, host: str
) -> None:
    """The library refuses most of them by itself; this is what if it did not."""
    try:
        infos = socket.getaddrinfo(host.strip("[]"), receiver.port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return  # it leads nowhere
    for info in infos:
        with pytest.raises(AddressRefused):
            Guard().make_socket(info)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_what_is_allowed_gets_there(receiver: Receiver, host: str) -> None:
    """So that the tests above cannot pass because nothing is ever called."""
    transport = Transport(Guard(LOOPBACK))
    assert await post(transport, f"http://{host}:{receiver.port}/") == 204
    await transport.close()


class Names:
    """A name server whose answers change."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[tuple[Any, ...]]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                socket.IPPROTO_TCP,
                "",
                (address, port),
            )
            for address in answer
        ]


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1"]
)
async def test_a_name_that_leads_to_a_forbidden_address_is_refused(
    receiver: Receiver, address: str
) -> None:
    transport = Transport(Guard(), resolve=Names([address]))
    with pytest.raises(CallFailed, match="is not public"):
        await post(transport, f"http://public.example:{receiver.port}/")
    await transport.close()
    assert receiver.calls == []


async def test_a_name_is_looked_up_once_for_a_connection_and_what_was_checked_is_connected(
    receiver: Receiver,
) -> None:
    # Given a name server that gives a good address first and a private one from then on
    names = Names(["127.0.0.1"], ["10.255.255.1"])
    transport = Transport(Guard(LOOPBACK), resolve=names)
    # Then the connection goes to the one that was checked, with a single look-up
    assert await post(transport, f"http://rebinding.example:{receiver.port}/") == 204
    assert names.asked == 1
    await transport.close()


async def test_an_answer_that_changed_is_checked_again_for_a_new_connection(
    receiver: Receiver,
) -> None:
    # Given a name that was good when the connection before was made
    names = Names(["127.0.0.1"], ["10.255.255.1"])
    first = Transport(Guard(LOOPBACK), resolve=names)
    assert await post(first, f"http://rebinding.example:{receiver.port}/") == 204
    await first.close()
    # When another connection is made
    second = Transport(Guard(LOOPBACK), resolve=names)
    with pytest.raises(CallFailed, match=r"10\.255\.255\.1 is not public"):
        await post(second, f"http://rebinding.example:{receiver.port}/")
    await second.close()


async def test_of_several_addresses_only_those_that_may_be_are_connected(
    receiver: Receiver,
) -> None:
    names = Names(["169.254.169.254", "10.0.0.1", "127.0.0.1"])
    transport = Transport(Guard(LOOPBACK), resolve=names)
    assert await post(transport, f"http://many.example:{receiver.port}/") == 204
    await transport.close()


async def test_a_name_whose_look_up_hangs_holds_up_no_other_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a name server that does not answer for one name, however many ask
    answered = threading.Event()
    look_up = socket.getaddrinfo

    def hang(host: str, *arguments: Any, **options: Any) -> Any:
        if host == "hangs.example":
            answered.wait()
            return []
        return look_up("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    resolver = Resolver()
    hanging = [asyncio.create_task(resolver("hangs.example", 80)) for _ in range(200)]
    await asyncio.sleep(0)
    # Then others are looked up all the same
    try:
        async with asyncio.timeout(5):
            [info] = await resolver("works.example", 80)
        assert info[4] == ("127.0.0.1", 80)
        # And one of those who gives up takes nothing from the others
        hanging[0].cancel()
    finally:
        answered.set()
    assert [await one for one in hanging[1:]] == [[]] * 199
    resolver.close()
