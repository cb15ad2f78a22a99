"""A server that speaks TLS, and files of certificates that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidArgument
from penstock.spark.errors import Unreachable
from penstock.spark.http import server_of
from penstock.spark.options import read_options
from penstock.spark.queues import Queues
from tests.certificates import make_certificate
from tests.http.server import running
from tests.spark.helpers import OPTIONS


def look(url: str, file: Path) -> list[str]:
    """The queues that are found. What is retried takes a minute, and then has another error."""
    given = {"url": url, **OPTIONS, "caFile": str(file), "subscribePattern": ".*"}
    options = read_options(given, "batch")
    try:
        return sorted(Queues(options).look())
    finally:
        server_of(options.connection).close()


@pytest.mark.parametrize("content", [None, "", "not a certificate"])
def test_a_file_without_certificates_is_refused_at_once_and_by_name(
    content: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)

    with pytest.raises(InvalidArgument, match=rf"caFile is '{file}'"):
        look("https://127.0.0.1:1", file)


def test_a_certificate_that_is_not_trusted_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, _ = make_certificate(tmp_path / "other")
    certificate, key = make_certificate(tmp_path)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with running("memory:", tmp_path / "log", *options) as server:
        assert look(server.url, certificate) == []
        with pytest.raises(Unreachable, match=r"its certificate is not trusted .* caFile"):
            look(server.url, other)
