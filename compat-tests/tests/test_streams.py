"""Kafka Streams 4.2: state that survives in its changelog, and exactly once through kill -9 of broker and application."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from pathlib import Path

import pytest

from harness import jvm
from harness.clients.java import JAVA_4
from harness.process import wait_until
from harness.record import Record

KEYS, PARTITIONS = 12, 3
AN_HOUR_AGO = int(time.time() - 3600) * 1000


def streams(what: str):
    return pytest.mark.program(what, "Kafka Streams 4.2")


class Application(jvm.JvmProcess):
    """One instance of the counting application (`java/streams`)."""

    def __init__(self, folder: Path, name: str, broker, topic: str, guarantee: str, *more: str):
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "input": topic,
            "output": f"{topic}-out",
            "application.id": topic,
            "bootstrap.servers": broker.bootstrap,
            "state.dir": str(folder / f"state-{name}"),
            "processing.guarantee": guarantee,
            "commit.interval.ms": "200",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "producer.transaction.timeout.ms": "10000",
            "auto.offset.reset": "earliest",
        }
        arguments = [f"{key}={value}" for key, value in settings.items()]
        command = jvm.command(
            [jvm.classes("kafka-4", "streams"), f"{jvm.jars('kafka-4')}/*"],
            "io.weir.compat.streams.Counting",
            *arguments,
            *more,
            heap="384m",
        )
        super().__init__(folder / f"{name}.log", command)

    def restored(self) -> int:
        return sum(int(count) for count in re.findall(r"restored counts \d+ (\d+)", self.said()))


def make_topics(broker, topic: str, *more: str) -> None:
    for name in (topic, f"{topic}-out", *more):
        JAVA_4.create_topic(broker.bootstrap, name, PARTITIONS)
    wait_until(lambda: topic in JAVA_4.topics(broker.bootstrap), 10, "the topics")


def feed(broker, topic: str, start: int, count: int) -> None:
    """Records `start` to `start + count`, 10 ms apart, key by key, each key in one partition."""
    records = [
        Record(
            value=f"{'abc'[i % 3]}{i}".encode(),
            key=f"k{i % KEYS}".encode(),
            timestamp=AN_HOUR_AGO + i * 10,
            partition=i % KEYS % PARTITIONS,
        )
        for i in range(start, start + count)
    ]
    JAVA_4.produce(broker.bootstrap, topic, records, idempotent=True)


def read(broker, topic: str) -> list[dict]:
    """All that a read-committed reader gets, partition by partition."""
    asked = {"bootstrap": broker.bootstrap, "topic": topic}
    return [record for p in range(PARTITIONS) for record in JAVA_4.ask("read_committed", **asked, partition=p)]


def counts(broker, topic: str) -> dict[str, list[int]]:
    """What the output holds for a read-committed reader: key -> its counts, in order."""
    told = defaultdict(list)
    for record in read(broker, f"{topic}-out"):
        told[record["key"]].append(int(record["value"]))
    return told


def wait_for_total(broker, topic: str, total: int, timeout: float) -> None:
    def all_there():
        return sum(len(one) for one in counts(broker, topic).values()) >= total

    wait_until(all_there, timeout, f"{total} counts in the output", 0.5)


def assert_each_once(broker, topic: str, total: int) -> None:
    """Every key counted 1, 2, 3, ... with no gap and no repetition."""
    wanted = {f"k{key}": list(range(1, total // KEYS + 1)) for key in range(KEYS)}
    assert counts(broker, topic) == wanted


@streams("stateful count, restored from its changelog; windows and a join through repartition topics")
def test_a_count_is_restored_from_its_changelog(broker, topic, tmp_path):
    make_topics(broker, topic, f"{topic}-out-windowed", f"{topic}-out-joined")
    feed(broker, topic, 0, 600)
    first = Application(tmp_path, "first", broker, topic, "at_least_once", "windows=true").start()
    wait_for_total(broker, topic, 600, 60)
    first.end()

    feed(broker, topic, 600, 600)
    # Another state directory: all it knows comes from the changelog topic.
    second = Application(tmp_path, "second", broker, topic, "at_least_once", "windows=true").start()
    wait_for_total(broker, topic, 1200, 60)
    second.end()
    assert second.restored() == 600
    assert_each_once(broker, topic, 1200)
    # No other record of its key is within the join's window, so each is joined with itself alone.
    joined = sorted(record["value"] for record in read(broker, f"{topic}-out-joined"))
    assert joined == sorted(f"{'abc'[i % 3]}{i}+{'ABC'[i % 3]}{i}" for i in range(1200))
    windowed = defaultdict(int)
    for record in read(broker, f"{topic}-out-windowed"):
        windowed[record["key"]] = max(windowed[record["key"]], int(record["value"]))
    assert sum(windowed.values()) == 1200
    described = JAVA_4.topic_config(broker.bootstrap, f"{topic}-counts-changelog")
    assert described["cleanup.policy"] == "compact"
    names = JAVA_4.topics(broker.bootstrap)
    (repartition,) = [name for name in names if name.startswith(f"{topic}-KSTREAM") and name.endswith("-repartition")]
    described = JAVA_4.topic_config(broker.bootstrap, repartition)
    assert (described["cleanup.policy"], described["retention.ms"]) == ("delete", "-1")


@streams("exactly-once-v2 through kill -9 of the broker and of an instance")
def test_exactly_once_through_kill_9_of_broker_and_application(own_server, topic, tmp_path):
    broker = own_server
    make_topics(broker, topic)
    first = Application(tmp_path, "first", broker, topic, "exactly_once_v2").start()
    first.wait_said("state RUNNING")
    feed(broker, topic, 0, 1200)
    wait_for_total(broker, topic, 300, 60)
    broker.kill_and_restart()
    feed(broker, topic, 1200, 1200)
    second = Application(tmp_path, "second", broker, topic, "exactly_once_v2").start()
    second.wait_said("state RUNNING")
    feed(broker, topic, 2400, 1200)
    first.kill()
    broker.kill_and_restart()
    feed(broker, topic, 3600, 1200)
    wait_for_total(broker, topic, 4800, 120)
    # What would come twice has time to come.
    time.sleep(1)
    assert_each_once(broker, topic, 4800)
    assert second.restored() > 0
    second.end()


# -- Kafka Streams' own system test -------------------------------------------------------------------------------

SMOKE_INPUTS = ("data", "fk")
SMOKE_OUTPUTS = (
    "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "sws-raw", "sws-suppressed", "cnt", "avg", "tagg",
)  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("guarantee", ("at_least_once", "exactly_once_v2"))
@streams("its own smoke test: driver verifies, broker and an instance killed -9")
def test_the_smoke_test_of_kafka_streams_itself(own_server, guarantee, tmp_path):
    broker = own_server
    for name in (*SMOKE_INPUTS, *SMOKE_OUTPUTS):
        JAVA_4.create_topic(broker.bootstrap, name, 5)

    def smoke(name: str, what: str) -> jvm.JvmProcess:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "state.dir": str(tmp_path / f"state-{name}"),
            "processing.guarantee": guarantee,
            "replication.factor": "1",
            "session.timeout.ms": "10000",
        }
        properties = tmp_path / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.kafka.streams.tests.StreamsSmokeTest"
        command = jvm.command([f"{jvm.jars('kafka-4')}/*"], main, str(properties), what, heap="512m")
        return jvm.JvmProcess(tmp_path / f"{name}.log", command)

    instances = [smoke(f"instance-{i}", "process").start() for i in range(2)]
    driver = smoke("driver", "run").start()
    try:
        time.sleep(10)
        broker.kill_and_restart()
        time.sleep(8)
        instances[1].kill()
        time.sleep(2)
        instances[1].start()
        time.sleep(5)
        broker.kill_and_restart()
        assert driver.wait(600) == 0, driver.log_tail()
        said = driver.said()
        assert "ALL-RECORDS-DELIVERED" in said and "SUCCESS" in said and "FAILURE" not in said, driver.log_tail()
    finally:
        for process in (driver, *instances):
            process.kill()
