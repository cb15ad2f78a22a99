"""What the rows share: a server in a process of its own, a session, a full queue, parquet files."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness.progress import Screen
from benchmarks.http.penstock_server import Address, penstock_server
from penstock.client import Client
from penstock.pipeline.session import make_session

LOGIN = {"username": "admin", "password": "adminpassword"}
FULL = "full"
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One run. `messages` is how many the queue `full` has, of `body_bytes` each."""

    spark: SparkSession
    address: Address
    root: Path
    screen: Screen
    messages: int
    rounds: int
    body_bytes: int = 256

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.address.url, **LOGIN}

    @property
    def parquet(self) -> str:
        return str(self.root / "full.parquet")

    def client(self) -> Client:
        return Client(self.address.url, **LOGIN)

    def source(self, **options: str) -> DataFrame:
        given = {**self.options, "subscribe": FULL, **options}
        return self.spark.read.format("penstock").options(**given).load()

    def rows(self, count: int, partitions: int = 2) -> DataFrame:
        """Bodies that do not compress to nothing."""
        digests = F.concat(*(F.sha2(F.concat(F.col("id"), F.lit(at)), 256) for at in range(4)))
        body = F.substring(F.rpad(digests, self.body_bytes, "x"), 1, self.body_bytes)
        return self.spark.range(0, count, 1, partitions).select(body.cast("binary").alias("body"))

    def publish(self, rows: DataFrame, queue: str) -> float:
        """Seconds that it took."""
        writer = rows.write.format("penstock").mode("append").options(**self.options, queue=queue)
        began = perf_counter()
        writer.save()
        return perf_counter() - began

    def fresh(self, name: str) -> Path:
        path = self.root / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def server_cpu_seconds(self) -> float:
        fields = (
            Path(f"/proc/{self.address.process_id}/stat").read_text().rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / _TICK

    def server_memory_bytes(self) -> int:
        pages = Path(f"/proc/{self.address.process_id}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def bench(
    root: Path, screen: Screen, *, messages: int, rounds: int, memory: str
) -> Iterator[Bench]:
    spark = make_session("local[2]", memory=memory)
    try:
        with penstock_server(root) as address:
            made = Bench(
                spark=spark,
                address=address,
                root=root,
                screen=screen,
                messages=messages,
                rounds=rounds,
            )
            screen.say(f"publishing {messages:,} messages and writing the same rows as parquet")
            with made.client() as client:
                client.create_queue(FULL)
            made.publish(made.rows(messages), FULL)
            # In ten files, however many tasks a read of ours has.
            tenth = str(-(-messages // 10))
            made.source(maxRecordsPerPartition=tenth).write.parquet(made.parquet)
            yield made
    finally:
        spark.stop()


def headers() -> dict[str, str]:
    """Of a request without the client."""
    login = base64.b64encode(":".join(LOGIN.values()).encode()).decode()
    return {"Authorization": f"Basic {login}", "Content-Type": "application/octet-stream"}


def timed(rows: DataFrame, path: Path | None = None) -> float:
    """Seconds from a plan to rows that nobody keeps, or to parquet files."""
    began = perf_counter()
    if path is None:
        rows.write.format("noop").mode("overwrite").save()
    else:
        rows.write.mode("overwrite").parquet(str(path))
    return perf_counter() - began
