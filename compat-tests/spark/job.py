"""What Spark does in the tests, in a process of its own: `job.py JARS copy|lake ...`.

copy BOOTSTRAP INPUT OUTPUT CHECKPOINT   a streaming query from topic to topic until standard input ends; then a batch
                                         query over the output, which prints one line of JSON
lake URI TABLE                           the same totals from an Iceberg REST catalog; prints one line of JSON
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def session(jars: str, **more: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2,8]").appName("weir-compat")
    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "640m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **more,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def copy(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
    )
    query = (
        rows.select("key", "value", "headers")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("includeHeaders", "true")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    print("started", flush=True)
    sys.stdin.read()
    if (error := query.exception()) is not None:
        raise error
    # A batch that is stopped before its commit is in the checkpoint is written again by the next query.
    query.processAllAvailable()
    query.stop()
    print_totals(batch(spark, bootstrap, target))


def print_totals(orders: DataFrame) -> None:
    totals = orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
    print("totals " + json.dumps({row.customer: [row.orders, row.amount] for row in totals.collect()}), flush=True)


def batch(spark: SparkSession, bootstrap: str, source: str) -> DataFrame:
    """The orders that a topic holds now, each once."""
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    fields = f.from_json(rows.value.cast("string"), "id BIGINT, customer STRING, amount BIGINT").alias("o")
    return rows.select(fields).select("o.*").dropDuplicates(["id"])


def lake(spark: SparkSession, table: str) -> None:
    print_totals(spark.table(table))


def main() -> None:
    jars, what, *arguments = sys.argv[1:]
    if what == "lake":
        uri, table = arguments
        catalog = "spark.sql.catalog.lake"
        more = {catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "rest", f"{catalog}.uri": uri}
        lake(session(jars, **more), f"lake.{table}")
    else:
        copy(session(jars), *arguments)


if __name__ == "__main__":
    main()
