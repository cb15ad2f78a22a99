"""TLS by certificate options."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from penstock.client import Client, Retry, Unreachable
from tests.http.server import running


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_server_speaks_tls_with_a_certificate(tmp_path: Path, log: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
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
