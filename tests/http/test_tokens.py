"""Which tokens count, and the key that signs them."""

from __future__ import annotations

import base64
import json
import os
import secrets
from pathlib import Path

import jwt
import pytest

from penstock.errors import CorruptLog, StorageError
from penstock.http.auth.tokens import Tokens, open_tokens
from penstock.http.auth.user import Role, User
from penstock.storage.local import LocalShared
from tests.contract.clock import ManualClock

KEY = b"k" * 32
KEY_FILE = "token.key"
ALICE = User(id="1", username="alice", password_hash="", stamp="first", role=Role.USER)


async def open_key(directory: Path | None) -> bytes:
    clock = ManualClock()
    shared = LocalShared(directory, clock)
    return (await open_tokens(shared, lifetime_seconds=60, clock=clock)).key


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tokens(clock: ManualClock) -> Tokens:
    return Tokens(KEY, lifetime_seconds=60, clock=clock)


@pytest.fixture
def claims(clock: ManualClock) -> dict[str, object]:
    now = int(clock.now.timestamp())
    return {"sub": "1", "stamp": "first", "iat": now, "exp": now + 60}


def test_a_token_names_the_user_and_nothing_that_could_change(
    tokens: Tokens, claims: dict[str, object]
) -> None:
    token = tokens.issue(ALICE)
    assert jwt.decode(token, KEY, ["HS256"], options={"verify_exp": False}) == claims
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    read = tokens.read(token)
    assert read is not None
    assert (read.sub, read.stamp) == ("1", "first")


def test_a_token_expires(tokens: Tokens, clock: ManualClock) -> None:
    token = tokens.issue(ALICE)
    clock.advance(59.9)
    assert tokens.read(token) is not None
    clock.advance(0.1)
    assert tokens.read(token) is None


def test_a_token_of_another_key_is_none(tokens: Tokens, claims: dict[str, object]) -> None:
    assert tokens.read(jwt.encode(claims, b"x" * 32, "HS256")) is None
    assert tokens.read(jwt.encode(claims, KEY, "HS256")) is not None


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
@pytest.mark.filterwarnings("ignore:.*key is .* bytes")
def test_no_other_algorithm_counts_even_with_the_right_key(
    tokens: Tokens, claims: dict[str, object], algorithm: str
) -> None:
    assert tokens.read(jwt.encode(claims, KEY, algorithm)) is None


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None, "HS256 ", 1, []])
@pytest.mark.parametrize("signature", ["", "AA"])
def test_a_token_without_a_signature_is_none(
    tokens: Tokens, claims: dict[str, object], algorithm: object, signature: str
) -> None:
    head = part({"alg": algorithm, "typ": "JWT"})
    assert tokens.read(f"{head}.{part(claims)}.{signature}") is None


def test_a_change_anywhere_makes_it_worthless(tokens: Tokens) -> None:
    token = tokens.issue(ALICE)
    signed = token.rpartition(".")[0]
    # All but the last character, whose last bits mean nothing in base64
    for at in range(len(token) - 1):
        other = "A" if token[at] != "A" else "B"
        assert tokens.read(token[:at] + other + token[at + 1 :]) is None
    for cut in (token[:-5], signed, signed + ".", "." + token, token + ".", token + "AAAA"):
        assert tokens.read(cut) is None


def test_somebody_elses_claims_under_a_right_signature_are_none(
    tokens: Tokens, claims: dict[str, object]
) -> None:
    head, _, signature = tokens.issue(ALICE).split(".")
    assert tokens.read(f"{head}.{part(claims | {'sub': '2'})}.{signature}") is None


@pytest.mark.parametrize(
    "change",
    [
        {"sub": None},
        {"sub": 1},
        {"stamp": None},
        {"exp": None},
        {"exp": "never"},
        {"exp": 1e300},
        {"iat": None},
    ],
)
def test_claims_that_lack_something_are_none(
    tokens: Tokens, claims: dict[str, object], change: dict[str, object]
) -> None:
    changed = {name: value for name, value in (claims | change).items() if value is not None}
    token = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(changed)}"
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        token.encode(), KEY
    )
    assert tokens.read(f"{token}.{part(signature)}") is None


@pytest.mark.parametrize(
    "head", [b"[" * 700, b"{" * 700, b"\xff", b"", b"[]", b"1", b'{"alg":{"a":1}}', b"[" * 100_000]
)
def test_garbage_is_none(tokens: Tokens, head: bytes) -> None:
    assert tokens.read(f"{part(head)}.{part(head)}.AA") is None


async def test_the_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    key = await open_key(tmp_path)
    assert len(key) == 32
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == [KEY_FILE]
    assert await open_key(tmp_path) == key


async def test_every_directory_has_another_key_and_memory_has_one_of_its_own(
    tmp_path: Path,
) -> None:
    keys = {await open_key(place) for place in (tmp_path / "a", tmp_path / "b")}
    keys |= {await open_key(None) for _ in range(2)}
    assert len(keys) == 4


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o601])
async def test_a_key_that_others_can_get_at_is_refused_and_left_as_it_is(
    tmp_path: Path, mode: int
) -> None:
    await open_key(tmp_path)
    path = tmp_path / KEY_FILE
    path.chmod(mode)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=rf"its mode {mode:o} lets others at it: make it 600"):
        await open_key(tmp_path)
    assert path.read_bytes() == before
    # As the sentence says
    path.chmod(0o600)
    assert (await open_key(tmp_path)).hex() == before.decode().strip()


@pytest.mark.parametrize("content", [b"", b"00", b"x" * 64, b"\xff" * 64, b"00" * 33, b"0" * 9999])
async def test_a_file_that_is_no_key_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / KEY_FILE
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(CorruptLog, match="holds no key"):
        await open_key(tmp_path)
    assert path.read_bytes() == content


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(secrets.token_hex(32))
    elsewhere.chmod(0o600)
    (tmp_path / KEY_FILE).symlink_to(elsewhere)
    with pytest.raises(StorageError, match="cannot be used"):
        await open_key(tmp_path)


async def test_a_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).mkdir()
    with pytest.raises(StorageError):
        await open_key(tmp_path)


async def test_a_draft_that_a_crash_left_behind_is_no_key(tmp_path: Path) -> None:
    (tmp_path / (KEY_FILE + ".new")).write_bytes(b"half a k")
    key = await open_key(tmp_path)
    assert await open_key(tmp_path) == key
