"""A certificate of its own for a server on loopback."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["make_certificate", "openssl"]


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """The files of the certificate and of its key. Skips the test where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    openssl(*command, "-keyout", str(key), "-out", str(certificate), "-days", "2")
    return certificate, key
