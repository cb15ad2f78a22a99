"""Keys that count for a while, beside a plain dictionary of them."""

from __future__ import annotations

from random import Random

import pytest

from penstock.core import recent_keys
from penstock.core.recent_keys import Keyed, RecentKeys
from penstock.core.request_keys import PastRequest, RequestKeys


@pytest.mark.parametrize("seed", range(20))
def test_a_random_history_is_that_of_a_dictionary(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_keys, "_MOST_GONE", 3)
    rng = Random(seed)
    keys, naive = RecentKeys(), dict[str, Keyed]()
    for now in range(400):
        key = str(rng.randrange(40))
        match rng.choice(["note", "note", "note", "forget", "drop", "load"]):
            case "note":
                keys.note(key, now, now, now + 2)
                naive.pop(key, None)
                naive[key] = Keyed(now, now, now + 2)
            case "forget":
                before = now - rng.randrange(60)
                gone = [key for key, keyed in naive.items() if keyed.at_ns <= before]
                assert keys.forget(before) == gone
                naive = {key: keyed for key, keyed in naive.items() if key not in gone}
            case "drop" if key in naive:
                keys.drop(key)
                del naive[key]
            case "load":
                keys = RecentKeys.load(keys.dump())
        # In the same order, too
        assert list(keys.items()) == list(naive.items())
        assert len(keys) == len(naive)
        assert keys.get(key) == naive.get(key)


def test_keys_are_found_by_their_messages() -> None:
    keys = RecentKeys()
    for number in range(5):
        keys.note(str(number), number, 10 * number, 10 * number + 5)
    assert keys.within(14, 31) == ["1", "2", "3"]
    assert keys.within(15, 20) == []


def test_only_requests_with_a_lost_message_are_lost() -> None:
    requests = RequestKeys()
    requests.note("plain", 1, PastRequest((10, 12)))
    requests.note("around", 2, PastRequest((0, 1, 20, 21), {0: "id"}))
    requests.note("within", 3, PastRequest((11, 12, 20, 21)))
    requests.lose(10, 15)
    assert [requests.get(key, 0) for key in ("plain", "around", "within")] == [
        None,
        (2, PastRequest((0, 1, 20, 21), {0: "id"})),
        None,
    ]


def test_a_key_that_is_used_again_has_the_later_answer_alone() -> None:
    requests = RequestKeys()
    requests.note("k", 1, PastRequest((0, 1, 5, 6)))
    requests.note("k", 9, PastRequest((7, 9)))
    assert requests.get("k", 8) == (9, PastRequest((7, 9)))
    requests.forget(1)
    assert requests.get("k", 0) == (9, PastRequest((7, 9)))
    requests.forget(9)
    assert requests.get("k", 0) is None
    assert len(requests) == 0
