"""The format is found by itself, and its options are refused by name."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

from penstock.errors import InvalidArgument
from penstock.spark.errors import Refused
from penstock.spark.options import read_options, write_options
from tests.spark.helpers import World

URL = {"url": "http://127.0.0.1:8080"}
READ = {**URL, "subscribe": "orders"}


def test_spark_finds_the_format_and_says_what_an_option_is_called(world: World) -> None:
    with pytest.raises(PySparkException, match="the option fetchrow is unknown: did you mean"):
        world.read(subscribe="orders", fetchRow="1")


def test_a_password_is_in_no_plan_and_in_no_error(world: World, queue: str) -> None:
    world.publish(queue, 1)
    rows = world.read(subscribe=queue, username="admin", password="adminpassword")

    plan = rows._jdf.queryExecution().toString()
    with pytest.raises(PySparkException) as caught:
        world.read(subscribe=queue, password="hunter2").collect()

    assert "adminpassword" not in plan
    assert "unauthorized" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_module_that_spark_imports_is_light() -> None:
    code = (
        "import sys, pyspark_penstock\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('penstock', 'aiohttp')])"
    )
    seen = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert seen.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (URL, "subscribe and subscribePattern: give exactly one"),
        ({**READ, "subscribePattern": ".*"}, "subscribe and subscribePattern: give exactly one"),
        ({**URL, "subscribePattern": "("}, "subscribePattern is not a regular expression"),
        ({**URL, "subscribe": "a,a"}, "a queue is there twice"),
        ({**URL, "subscribe": "a b"}, "is not allowed"),
        ({"subscribe": "a"}, "the option url is missing"),
        ({"subscribe": "a", "url": "ftp://x"}, "url is 'ftp://x'"),
        ({"subscribe": "a", "url": "http://me:secret@x"}, "the url holds a name or password"),
        ({**READ, "username": "u", "token": "t"}, "username and token contradict"),
        ({**READ, "password": "p"}, "a password without a username"),
        ({**READ, "token": "secret\nsecret"}, "the token has characters that no token has"),
        ({**READ, "minPartitions": "0"}, "minPartitions is '0'"),
        ({**READ, "failOnDataLoss": "no"}, "failOnDataLoss is 'no': use true or false"),
        ({**READ, "bodyAs": "json"}, "bodyAs is 'json': use binary or string"),
        ({**READ, "includeBody": "false", "bodyAs": "string"}, "bodyAs cannot be used here"),
        ({**READ, "stream": "events", "includeBody": "true"}, "includeBody cannot be used here"),
        ({**READ, "stream": "events", "pushFilters": "true"}, "pushFilters cannot be used here"),
        ({**READ, "retrySeconds": "soon"}, "retrySeconds is 'soon'"),
        ({**READ, "subscription": "s"}, "subscription cannot be used here: it is for streams"),
        ({**READ, "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger cannot be used here"),
        ({**READ, "kafka.bootstrap.servers": "x"}, "kafka.bootstrap.servers is unknown"),
    ],
)
def test_a_wrong_option_of_a_read_is_refused_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_options(options, "batch")

    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_stream_has_its_own_options() -> None:
    stream = {**READ, "subscription": "spark"}

    assert read_options(stream, "stream").subscription == "spark"
    with pytest.raises(InvalidArgument, match="a stream is a subscription: name it"):
        read_options(READ, "stream")
    with pytest.raises(InvalidArgument, match="endingOffsets cannot be used here"):
        read_options({**stream, "endingOffsets": "latest"}, "stream")
    with pytest.raises(InvalidArgument, match="pushFilters cannot be used here"):
        read_options({**stream, "pushFilters": "true"}, "stream")


def test_options_of_a_write_are_checked_too() -> None:
    assert write_options({**URL, "queue": "q"}, is_stream=False).queue == "q"
    with pytest.raises(InvalidArgument, match="the option topic is unknown"):
        write_options({**URL, "topic": "q"}, is_stream=False)
    with pytest.raises(InvalidArgument, match="chunkRows is 20000"):
        write_options({**URL, "queue": "q", "chunkRows": "20000"}, is_stream=False)
    with pytest.raises(InvalidArgument, match="use printable characters of ASCII"):
        write_options({**URL, "queue": "q", "idempotencyKey": "schlüssel"}, is_stream=False)
    with pytest.raises(InvalidArgument, match="idempotencyKey cannot be used here"):
        write_options({**URL, "queue": "q", "idempotencyKey": "k"}, is_stream=True)


def test_a_password_may_begin_and_end_with_a_blank() -> None:
    options = read_options({**READ, "username": "u", "password": " p "}, "batch")

    assert options.connection.password == " p "


def test_what_is_secret_is_in_no_text_of_the_options() -> None:
    options = read_options({**READ, "username": "u", "password": "hunter2"}, "batch")

    assert "hunter2" not in repr(options)


def test_a_refusal_survives_the_way_from_one_process_to_another() -> None:
    error = Refused("there is no queue 'a'", reason="queue_not_found", status=404)

    again = pickle.loads(pickle.dumps(error))

    assert (str(again), again.reason, again.status) == (str(error), "queue_not_found", 404)
