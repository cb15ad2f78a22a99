from __future__ import annotations

import pytest

from benchmarks.http.wrk import WrkFailed, parse

GOOD = """Running 1s test @ http://127.0.0.1:1
  1 threads and 32 connections
  17412 requests in 1.00s, 8.10MB read
Requests/sec:  17366.22
Transfer/sec:      8.08MB
"""


def test_the_rate_is_the_one_that_wrk_prints() -> None:
    sample = parse(GOOD)

    assert sample.messages == 17412
    assert sample.rate == pytest.approx(17366.22)


@pytest.mark.parametrize(
    "line", ["Non-2xx or 3xx responses: 7", "Socket errors: connect 0, read 1, write 0, timeout 0"]
)
def test_a_run_with_errors_is_no_measurement(line: str) -> None:
    with pytest.raises(WrkFailed, match=line):
        parse(GOOD + line)


def test_what_wrk_says_instead_is_in_the_error() -> None:
    with pytest.raises(WrkFailed, match="unable to connect"):
        parse("unable to connect to 127.0.0.1:1 Connection refused")
