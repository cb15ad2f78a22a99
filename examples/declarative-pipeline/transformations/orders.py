"""Messages of the queue `orders`, and how many there are of each topic."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    return (
        spark.readStream.format("penstock")
        .option("url", os.environ["PENSTOCK_URL"])
        .option("username", os.environ["PENSTOCK_USER"])
        .option("password", os.environ["PENSTOCK_PASSWORD"])
        .option("subscribe", os.environ.get("PENSTOCK_QUEUE", "orders"))
        .option("subscription", "declarative")
        .option("bodyAs", "string")
        .load()
    )


@dp.materialized_view
def orders_by_topic() -> DataFrame:
    return spark.read.table("orders").groupBy("topic").agg(functions.count("*").alias("messages"))
