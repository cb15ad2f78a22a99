"""moto's server, which answers as SQS does, from memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.request import Request, urlopen

from benchmarks.http.service import free_port, running

CREDENTIAL = "AWS4-HMAC-SHA256 Credential=bench/20300101/us-east-1/sqs/aws4_request"


class Queue(NamedTuple):
    url: str
    queue_url: str


class Moto:
    name: ClassVar[str] = "moto_server"
    needs: ClassVar[str] = "moto_server: pip install 'penstock[bench]'"

    @classmethod
    def is_installed(cls) -> bool:
        return find_spec("moto") is not None and find_spec("flask") is not None

    @classmethod
    @contextmanager
    def running(cls, directory: Path) -> Iterator[Queue]:
        port = free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with running(command, port=port, directory=directory):
            url = f"http://127.0.0.1:{port}"
            request = Request(
                url,
                json.dumps({"QueueName": "bench"}).encode(),
                {
                    "Content-Type": "application/x-amz-json-1.0",
                    "X-Amz-Target": "AmazonSQS.CreateQueue",
                    "Authorization": f"{CREDENTIAL}, SignedHeaders=host, Signature=0",
                },
            )
            with urlopen(request) as answer:
                yield Queue(url, json.load(answer)["QueueUrl"])
