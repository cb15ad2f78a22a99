"""Publish with an archive in MongoDB, against pymongo's insert_many of the same documents."""

from __future__ import annotations

from itertools import count
from time import perf_counter
from typing import Any

from pymongo import AsyncMongoClient, WriteConcern

from benchmarks.engine.store import make_bodies
from benchmarks.harness.bar import at_least
from benchmarks.harness.row import Outcome, Row
from benchmarks.harness.sample import Sample
from benchmarks.scale.beside import beside
from benchmarks.scale.run import Run, mongo_server, redis_server
from benchmarks.scale.scale import BATCH
from penstock.broker import Broker
from penstock.core.message import PLAIN, Message
from penstock.storage.mongo.documents import message_document
from penstock.storage.registry import open_archived

BAR = at_least(0.5)
PEER = "pymongo insert_many"
DATABASE = "penstock-bench"
# A server for tests is slower than MongoDB by far.
SHARE = 5


async def measure(run: Run) -> Outcome:
    bodies = make_bodies(BATCH)
    batches = max(1, run.scale.slice_batches // SHARE)
    numbers = count()
    with redis_server() as redis, mongo_server() as mongo:
        async with AsyncMongoClient[dict[str, Any]](mongo) as client:
            await client.drop_database(DATABASE)
            peers = client[DATABASE].get_collection(
                "peer", write_concern=WriteConcern("majority", j=True)
            )
            await peers.create_index([("salt", 1), ("index", 1)], unique=True)
            store = await open_archived(redis, f"{mongo}/{DATABASE}")
            async with Broker(store) as broker:
                await broker.create_queue("bench")

                async def ours() -> Sample:
                    start = perf_counter()
                    for _ in range(batches):
                        await broker.publish("bench", bodies)
                    return Sample(messages=batches * BATCH, seconds=perf_counter() - start)

                async def peer() -> Sample:
                    start = perf_counter()
                    for _ in range(batches):
                        await peers.insert_many(
                            [_document(next(numbers), body) for body in bodies], ordered=False
                        )
                    return Sample(messages=batches * BATCH, seconds=perf_counter() - start)

                outcome = await beside(run, ours, PEER, peer, BAR)
            await client.drop_database(DATABASE)
    return outcome


def _document(index: int, body: bytes) -> dict[str, Any]:
    message = Message(
        "peer", index, created_at_ns=0, salt=1, body=body, envelope=PLAIN, dead_letter=None
    )
    return message_document(message)


ROW = Row(name="archive", what="publish with MongoDB", measure=measure)
