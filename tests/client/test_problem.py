from __future__ import annotations

import msgspec
import pytest

from penstock import errors
from penstock.client import Forbidden, ServerFailed, TooManyRequests, Unauthorized
from penstock.client.problem import error_of
from penstock.errors import PenstockError


def problem(**fields: object) -> bytes:
    return msgspec.json.encode({"type": "about:blank", **fields})


@pytest.mark.parametrize("name", errors.__all__)
def test_every_code_is_raised_as_its_own_class(name: str) -> None:
    kind: type[PenstockError] = getattr(errors, name)

    error = error_of(400, problem(code=kind.code, detail="what to do", request_id="abc"))

    assert type(error) is kind
    assert str(error) == "what to do"
    assert error.__notes__ == ["request id: abc"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequest),
        (401, Unauthorized),
        (403, Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (415, errors.InvalidRequest),
        (429, TooManyRequests),
        (500, ServerFailed),
        (502, ServerFailed),
        (503, errors.StorageError),
    ],
)
def test_a_code_of_a_later_version_is_raised_by_its_status(
    status: int, kind: type[PenstockError]
) -> None:
    error = error_of(status, problem(code="new_in_2099", detail="something"))

    assert type(error) is kind
    assert str(error) == f"something (status {status}, new_in_2099)"


def test_an_answer_that_is_no_problem_at_all_still_says_what_came() -> None:
    error = error_of(502, b"<html>Bad gateway</html>")

    assert type(error) is ServerFailed
    assert str(error) == "<html>Bad gateway</html> (status 502)"
