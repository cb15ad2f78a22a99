"""Requests made from ``/openapi.json`` by schemathesis: what it says is what is answered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.core.transport import Response
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi import checks

from tests.http.server import Server, running

PARTS = 4  # tests, so that test processes can share them
EXAMPLES = settings(
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# A wrong password is answered with 429 when there were too many of them: `test_roles` has these.
# And a document cannot tell everything that is refused: what a filter may say, which names clash.
NOT_CHECKED = [checks.ignored_auth, checks.positive_data_acceptance]
# What was generated as `true` arrives in a text as four letters, and `?limit=` is no limit.
NOT_WHEN_VAGUE = [*NOT_CHECKED, checks.negative_data_rejection]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of its own: the requests delete, purge and change what others would need."""
    directory = tmp_path_factory.mktemp("fuzzed")
    with running(str(directory / "data"), directory / "log") as server:
        yield server


@pytest.fixture(scope="module")
def document(fuzzed: Server) -> BaseSchema:
    config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
    return schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json", config=config)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("part", range(PARTS))
def test_every_answer_is_as_the_document_says(
    document: BaseSchema, fuzzed: Server, part: int, mode: GenerationMode
) -> None:
    """Never a 5xx; the status, type, headers and body are documented; what breaks it is refused."""
    found = list(document.get_all_operations())
    operations = [one.ok() for one in found if isinstance(one, Ok)]
    assert len(operations) == len(found)
    statuses: list[int] = []
    for operation in operations[part::PARTS]:

        @EXAMPLES
        @given(operation.as_strategy(generation_mode=mode))
        def check(case: Case[Any]) -> None:
            response: Response = case.call(auth=("admin", "adminpassword"))
            statuses.append(response.status_code)
            is_text = case.media_type not in (None, "application/json")
            is_vague = is_text or not all(case.query.values())
            case.validate_response(
                response, excluded_checks=NOT_WHEN_VAGUE if is_vague else NOT_CHECKED
            )

        with suppress(Unsatisfiable):  # nothing about it can be wrong
            check()
    assert len(statuses) > len(operations) // PARTS
    assert max(statuses) < 500
    assert fuzzed.client().ask("GET", "/readyz").status == 200
