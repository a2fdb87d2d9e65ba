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
    (line,) = [line for line in process.said().splitlines() if line.startswith("totals ")]
    return json.loads(line.removeprefix("totals "))


class Copying:
    """A streaming query from topic to topic, and what it copied so far."""

    def __init__(self, broker, topic: str, folder: Path):
        self.broker, self.topic, self.output, self.folder = broker, topic, f"{topic}-out", folder
        for name in (topic, self.output):
            JAVA_4.create_topic(broker.bootstrap, name, 1)
        wait_until(lambda: self.output in JAVA_4.topics(broker.bootstrap), 10, "the topics")

    def feed(self, start: int, count: int) -> None:
        JAVA_4.produce(self.broker.bootstrap, self.topic, orders(start, count), idempotent=True)

    def query(self, name: str) -> jvm.JvmProcess:
        checkpoint = str(self.folder / "checkpoint")
        log_file = self.folder / f"{name}.log"
        return job(log_file, "copy", self.broker.bootstrap, self.topic, self.output, checkpoint).start()

    def keys(self) -> list[str]:
        found = JAVA_4.ask("read_committed", bootstrap=self.broker.bootstrap, topic=self.output)
        return [one["key"] for one in found]

    def wait(self, count: int, what: str) -> None:
        wait_until(lambda: set(self.keys()) == {f"{i}" for i in range(count)}, 120, what, 0.3)


@pytest.mark.timeout(400)
@spark("structured streaming from topic to topic, broker killed -9; batch read")
def test_spark_streams_from_topic_to_topic_through_kill_9(own_server, topic, tmp_path):
    copying = Copying(own_server, topic, tmp_path)
    copying.feed(0, 500)
    query = copying.query("first")
    try:
        query.wait_said("started", 120)
        copying.wait(500, "the first records copied")
        copying.feed(500, 500)
        own_server.kill_and_restart()
        copying.feed(1000, 500)
        copying.wait(1500, "the records around the kill copied")
        query.end(120)
    finally:
        query.kill()
    for copy, order in zip(JAVA_4.fetch(own_server.bootstrap, copying.output, 500), orders(0, 500), strict=True):
        assert copy.content == order.content
    assert totals_of(query) == expected(1500)


@pytest.mark.soak
@pytest.mark.timeout(900)
@spark("structured streaming goes on from its checkpoint")
def test_spark_goes_on_from_its_checkpoint(own_server, topic, tmp_path):
    copying = Copying(own_server, topic, tmp_path)
    for number in range(3):
        copying.feed(number * 200, 200)
        query = copying.query(f"query-{number}")
        try:
            query.wait_said("started", 120)
            copying.wait((number + 1) * 200, f"the records of round {number} copied")
            query.end(120)
        finally:
            query.kill()
        assert len(copying.keys()) == (number + 1) * 200, "a clean stop repeats nothing"


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
    query = job(tmp_path / "lake.log", "lake", f"{broker.http}/iceberg", f"weir.{name}").start()
    assert query.wait(120) == 0, query.log_tail()
    assert totals_of(query) == expected(1500)
