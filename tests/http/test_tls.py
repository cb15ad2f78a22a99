"""TLS by certificate options."""

from __future__ import annotations

import ssl
import subprocess
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from penstock.client import Client, Retry, Unreachable
from penstock.errors import InvalidArgument
from penstock.server import check_tls
from penstock.settings import Settings
from tests.certificates import make_certificate, openssl
from tests.http.server import penstock_command, running


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return make_certificate(tmp_path)


def test_a_certificate_that_cannot_be_used_is_wrong_usage(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate, key = map(str, pair)
    missing, locked = str(tmp_path / "missing.pem"), str(tmp_path / "locked.pem")
    openssl("ec", "-aes256", "-passout", "pass:x", "-in", key, "-out", locked)
    for given, with_key, why in [
        (missing, None, "No such file"),
        (certificate, missing, "No such file"),
        (certificate, None, "with its key"),
        (key, certificate, "with its key"),
        (certificate, locked, "not encrypted"),
        (None, key, "set both"),
    ]:
        settings = Settings(data="memory:", tls_certificate=given, tls_key=with_key)
        with pytest.raises(InvalidArgument, match=why):
            check_tls(settings)
    check_tls(Settings(data="memory:", tls_certificate=certificate, tls_key=key))

    # And the command says so, in a sentence
    command = penstock_command("serve", "--data", "memory:", "--port", "0")
    done = subprocess.run(
        [*command, "--tls-certificate", missing],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("invalid_argument: the certificate")


def test_a_server_speaks_tls_with_a_certificate(pair: tuple[Path, Path], log: Path) -> None:
    certificate, key = pair
    options = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    with running("memory:", log, *options) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        connection = HTTPSConnection("127.0.0.1", server.port, context=context, timeout=10)
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()

        # Our own client goes by the same, and says what to do where it is not trusted
        with Client(server.url, tls=context, username="user", password="password") as client:
            assert client.stats() == []
        with (
            Client(server.url, retry=Retry(attempts=1), username="user", password="x") as client,
            pytest.raises(Unreachable, match=r"certificate is not trusted .* with the option tls"),
        ):
            client.stats()
