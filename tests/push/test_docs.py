"""The page about callbacks says what the code says, and its Python runs."""

from __future__ import annotations

import msgspec

from penstock.client import WebhookVerifier
from penstock.core.callback import Callback, CallbackState
from penstock.push.signing import Signer
from tests.docs.page import ROOT, python_in, table_in

PAGE = "docs/callbacks.md"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_table_of_settings_has_every_one_with_its_default() -> None:
    stated = {row[0]: row[1] for row in table_in(PAGE, "setting of a callback")}
    fields = {field.name: field.default for field in msgspec.structs.fields(Callback)}
    assert list(stated) == list(fields)
    for name, default in fields.items():
        if default is not msgspec.NODEFAULT:
            assert msgspec.json.decode(stated[name]) == default, name


def test_the_page_names_every_figure_of_a_callback() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for field in msgspec.structs.fields(CallbackState):
        assert f"`{field.name}`" in text


def test_the_pages_verifier_takes_what_the_server_signs() -> None:
    names: dict[str, object] = {}
    for piece in python_in(PAGE):
        exec(compile(piece.padded, PAGE, "exec"), names)
    verifier = names["verifier"]
    assert isinstance(verifier, WebhookVerifier)
    timestamp = verifier._clock.now_ns() // 1_000_000_000
    headers = Signer([SECRET]).headers("id", timestamp, b"body")
    assert names["is_ours"](headers, b"body") == "id"  # type: ignore[operator]
