from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.engine import peers
from benchmarks.engine.peers import PEERS, Peer


@pytest.fixture(params=sorted(PEERS))
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    pytest.importorskip(request.param)
    with closing(PEERS[request.param].open(tmp_path)) as opened:
        yield opened


def test_what_was_put_one_by_one_is_received_once(queue: Peer) -> None:
    for _ in range(3):
        queue.put(b"body")

    assert [queue.receive_and_ack(1) for _ in range(4)] == [1, 1, 1, 0]


def test_what_was_put_as_a_batch_is_received_once(queue: Peer) -> None:
    queue.put_many([b"body"] * 150)

    assert [queue.receive_and_ack(100) for _ in range(3)] == [100, 50, 0]


def test_what_was_acked_is_gone_and_the_rest_is_there_after_a_restart(
    queue: Peer, tmp_path: Path
) -> None:
    # Given
    queue.put_many([b"body"] * 10)
    queue.receive_and_ack(4)

    # When
    queue.close()

    # Then
    with closing(type(queue).open(tmp_path)) as again:
        assert again.receive_and_ack(100) == 6


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "PEERS", {"no_such_module": peers.HueyStorage})

    assert peers.installed() == ((), ("huey",))
