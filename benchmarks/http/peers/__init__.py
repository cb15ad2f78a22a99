"""The contenders that are measured through their Python clients, and moto. One file each."""

from __future__ import annotations

from benchmarks.http.peers.broker import Broker, Peer
from benchmarks.http.peers.moto import Moto
from benchmarks.http.peers.nats import Nats, NatsAlways
from benchmarks.http.peers.penstock import Penstock
from benchmarks.http.peers.rabbitmq import RabbitMq
from benchmarks.http.peers.redis import Redis

__all__ = [
    "PEERS",
    "Broker",
    "Moto",
    "Nats",
    "NatsAlways",
    "Peer",
    "Penstock",
    "RabbitMq",
    "Redis",
    "installed",
]

PEERS: tuple[type[Peer], ...] = (RabbitMq, Nats, NatsAlways, Redis, Moto)


def installed() -> tuple[tuple[type[Peer], ...], tuple[str, ...]]:
    """The peers that can be run here, and what is missing for the others, with how to get it."""
    found = tuple(peer for peer in PEERS if peer.is_installed())
    missing = dict.fromkeys(peer.needs for peer in PEERS if peer not in found)
    return found, tuple(missing)
