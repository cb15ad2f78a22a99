from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.receipt import Receipt
from penstock.errors import InvalidReceipt

_NUMBER = st.integers(0, 2**63)


@given(_NUMBER, _NUMBER, _NUMBER)
def test_a_receipt_comes_back_from_its_text(subscription_id: int, index: int, epoch: int) -> None:
    receipt = Receipt(subscription_id, index, epoch)
    assert Receipt.parse(receipt.text) == receipt


@given(st.text(max_size=30))
def test_another_text_is_refused_or_is_exactly_a_receipt(text: str) -> None:
    try:
        receipt = Receipt.parse(text)
    except InvalidReceipt:
        return
    assert receipt.text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.2",
        "1.2.3.4",
        "a.b.c",
        "+1.2.3",
        "1_0.2.3",
        " 1.2.3",
        "1.2.03",
        "1.2.-3",
        "\u0661.2.3",
    ],
)
def test_a_text_that_only_looks_like_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidReceipt, match="is not a receipt"):
        Receipt.parse(text)


def test_a_very_long_text_is_refused_and_not_repeated_at_length() -> None:
    with pytest.raises(InvalidReceipt) as refused:
        Receipt.parse("9" * 10_000)
    assert len(str(refused.value)) < 200
