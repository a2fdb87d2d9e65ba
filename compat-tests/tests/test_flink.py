"""Flink 2.2 SQL: a kafka source, an exactly-once kafka sink and an upsert-kafka sink, through kill -9 of the broker."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from harness import jvm
from harness.clients.java import JAVA_4
from harness.process import wait_until
from harness.record import Record

OPENED = ("util", "lang", "time", "nio", "net", "text", "util.concurrent")
CUSTOMERS = 7


def job(folder: Path, broker, topic: str, naming: str) -> jvm.JvmProcess:
    options = {
        "bootstrap": broker.bootstrap,
        "input": topic,
        "copy": f"{topic}-copy",
        "totals": f"{topic}-totals",
        "checkpoints": str(folder / "checkpoints"),
        "naming": naming,
    }
    command = jvm.command(
        [jvm.classes("flink", "flink"), f"{jvm.jars('flink')}/*"],
        "io.weir.compat.flink.Job",
        *(f"{name}={value}" for name, value in options.items()),
        heap="768m",
        options=[f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED],
    )
    return jvm.JvmProcess(folder / "flink.log", command)


def order(i: int) -> dict:
    return {"id": i, "customer": f"c{i % CUSTOMERS}", "amount": i}


def feed(broker, topic: str, start: int, count: int) -> None:
    records = [Record(json.dumps(order(i)).encode()) for i in range(start, start + count)]
    JAVA_4.produce(broker.bootstrap, topic, records, idempotent=True)


def copied(broker, topic: str) -> list[dict]:
    found = JAVA_4.ask("read_committed", bootstrap=broker.bootstrap, topic=f"{topic}-copy")
    return [json.loads(record["value"]) for record in found]


def totals(broker, topic: str) -> dict[str, dict]:
    """The last value of each key of the upsert topic."""
    found = JAVA_4.ask("read_committed", bootstrap=broker.bootstrap, topic=f"{topic}-totals")
    return {json.loads(record["key"])["customer"]: json.loads(record["value"]) for record in found}


def expected_totals(count: int) -> dict[str, dict]:
    orders = {f"c{c}": [order(i) for i in range(count) if i % CUSTOMERS == c] for c in range(CUSTOMERS)}
    return {
        customer: {"customer": customer, "orders": len(all_of), "amount": sum(one["amount"] for one in all_of)}
        for customer, all_of in orders.items()
    }


def through_a_kill(broker, topic: str, folder: Path, naming: str) -> None:
    for name in (topic, f"{topic}-copy"):
        JAVA_4.create_topic(broker.bootstrap, name, 1)
    JAVA_4.create_topic(broker.bootstrap, f"{topic}-totals", 1, {"cleanup.policy": "compact"})
    wait_until(lambda: f"{topic}-totals" in JAVA_4.topics(broker.bootstrap), 10, "the topics")
    feed(broker, topic, 0, 1000)
    flink = job(folder, broker, topic, naming).start()
    try:
        flink.wait_said("started", 90)
        wait_until(lambda: len(copied(broker, topic)) >= 1000, 60, "the first thousand committed", 0.3)
        feed(broker, topic, 1000, 1000)
        broker.kill_and_restart()
        feed(broker, topic, 2000, 1000)
        wait_until(lambda: len(copied(broker, topic)) >= 3000, 150, "three thousand committed", 0.5)
        # What would come twice has time to come: a few checkpoints.
        time.sleep(1.5)
        assert [one["id"] for one in copied(broker, topic)] == list(range(3000))
        wait_until(lambda: totals(broker, topic) == expected_totals(3000), 60, "the totals of three thousand", 0.5)
        flink.end()
    finally:
        flink.kill()


@pytest.mark.program("SQL: kafka source, exactly-once kafka sink, upsert-kafka sink; broker killed -9", "Flink 2.2")
def test_flink_sql_copies_exactly_once_through_kill_9(own_server, topic, tmp_path):
    through_a_kill(own_server, topic, tmp_path, "incrementing")


@pytest.mark.soak
@pytest.mark.program("the same with pooled transactional ids, which it lists and describes", "Flink 2.2")
def test_flink_sql_copies_exactly_once_with_pooled_transactional_ids(own_server, topic, tmp_path):
    through_a_kill(own_server, topic, tmp_path, "pooling")
