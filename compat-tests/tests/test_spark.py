"""Spark 4.0: structured streaming from topic to topic through kill -9, batch reads, and the lake by Weir's own catalog."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness import jvm
from harness.clients.java import JAVA_4
from harness.process import wait_until
from harness.record import Record

JOB = Path(__file__).parent.parent / "spark" / "job.py"
CUSTOMERS = 5


def spark(what: str):
    return pytest.mark.program(what, "Spark 4.0")


def job(log_file: Path, *arguments: str) -> jvm.JvmProcess:
    python = jvm.python_with("requirements-spark.txt")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    jars = ",".join(str(jar) for jar in sorted(jvm.jars("spark").glob("*.jar")))
    return jvm.JvmProcess(log_file, [str(python), str(JOB), jars, *arguments])


def orders(start: int, count: int) -> list[Record]:
    return [
        Record(
            json.dumps({"id": i, "customer": f"c{i % CUSTOMERS}", "amount": i}).encode(),
            f"{i}".encode(),
            (("number", f"{i}".encode()), ("number", b"again")),
        )
        for i in range(start, start + count)
    ]


def expected(count: int) -> dict[str, list[int]]:
    by_customer = {f"c{c}": range(c, count, CUSTOMERS) for c in range(CUSTOMERS)}
    return {customer: [len(ids), sum(ids)] for customer, ids in by_customer.items()}


def totals_of(process: jvm.JvmProcess) -> dict[str, list[int]]:
    assert process.start().wait(120) == 0, process.log_tail()
    (line,) = [line for line in process.said().splitlines() if line.startswith("totals ")]
    return json.loads(line.removeprefix("totals "))


@pytest.mark.timeout(400)
@spark("structured streaming from topic to topic with a checkpoint; broker killed -9; batch read")
def test_spark_streams_from_topic_to_topic_through_kill_9(own_server, topic, tmp_path):
    broker, output = own_server, f"{topic}-out"
    for name in (topic, output):
        JAVA_4.create_topic(broker.bootstrap, name, 1)
    wait_until(lambda: output in JAVA_4.topics(broker.bootstrap), 10, "the topics")

    def copied() -> list[tuple]:
        found = JAVA_4.ask("read_committed", bootstrap=broker.bootstrap, topic=output)
        return [one["key"] for one in found]

    def keys(count):
        return {f"{i}" for i in range(count)}

    JAVA_4.produce(broker.bootstrap, topic, orders(0, 500), idempotent=True)
    arguments = ("copy", broker.bootstrap, topic, output, str(tmp_path / "checkpoint"))
    first = job(tmp_path / "first.log", *arguments).start()
    try:
        first.wait_said("started", 120)
        wait_until(lambda: set(copied()) == keys(500), 60, "the first records copied", 0.3)
        JAVA_4.produce(broker.bootstrap, topic, orders(500, 500), idempotent=True)
        broker.kill_and_restart()
        JAVA_4.produce(broker.bootstrap, topic, orders(1000, 500), idempotent=True)
        wait_until(lambda: set(copied()) == keys(1500), 90, "the records around the kill copied", 0.3)
        first.end()
    finally:
        first.kill()
    for copy, order in zip(JAVA_4.fetch(broker.bootstrap, output, 500), orders(0, 500), strict=True):
        assert copy.content == order.content
    # From its checkpoint it goes on where it was: what a kill may have sent twice is not sent a third time.
    before = len(copied())
    JAVA_4.produce(broker.bootstrap, topic, orders(1500, 100), idempotent=True)
    second = job(tmp_path / "second.log", *arguments).start()
    try:
        second.wait_said("started", 120)
        wait_until(lambda: set(copied()) == keys(1600), 60, "the records after the restart copied", 0.3)
        second.end()
    finally:
        second.kill()
    assert len(copied()) == before + 100
    assert totals_of(job(tmp_path / "batch.log", "totals", broker.bootstrap, topic)) == expected(1600)


@pytest.mark.weir_only
@spark("the lake, by Weir's Iceberg catalog, rows of this second included")
def test_spark_reads_the_lake_by_weirs_catalog(start_broker, topic, tmp_path):
    broker = start_broker()
    config = {
        "weir.schema": "id BIGINT NOT NULL, customer STRING, amount BIGINT",
        "weir.value.format": "json",
        "weir.lake.enable": "true",
    }
    name = topic.replace("-", "_")
    JAVA_4.create_topic(broker.bootstrap, name, 1, config)
    wait_until(lambda: name in JAVA_4.topics(broker.bootstrap), 10, "the topic")
    JAVA_4.produce(broker.bootstrap, name, orders(0, 1000))
    broker.tier(name)
    JAVA_4.produce(broker.bootstrap, name, orders(1000, 500))
    read = job(tmp_path / "lake.log", "lake", f"{broker.http}/iceberg", f"weir.{name}")
    assert totals_of(read) == expected(1500)
