"""Kafka Connect 4.2, distributed, two workers: files in and out, JSON with schemas, exactly-once source, kill -9."""

from __future__ import annotations

import json

import pytest

from harness.clients.java import JAVA_4
from harness.connect import Worker
from harness.process import wait_until

FILE = "org.apache.kafka.connect.file.FileStream"
TRANSFORMS = "org.apache.kafka.connect.transforms."

pytestmark = pytest.mark.timeout(400)


def connect(what: str):
    return pytest.mark.program(what, "Kafka Connect 4.2")


@pytest.fixture(scope="module")
def workers(module_server, tmp_path_factory):
    """Two workers on the file's broker."""
    folder = tmp_path_factory.mktemp("connect")
    pair = [Worker(folder, name, module_server.bootstrap, "connect").start() for name in ("one", "two")]
    for worker in pair:
        worker.ready()
    yield pair
    for worker in pair:
        if worker.running:
            worker.terminate(30)


def source(file, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": f"{FILE}SourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        **more,
    }


def sink(file, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": f"{FILE}SinkConnector",
        "tasks.max": "1",
        "file": str(file),
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.isolation.level": "read_committed",
        **more,
    }


def append(file, start: int, count: int) -> None:
    with open(file, "a") as lines:
        lines.writelines(f"line {i}\n" for i in range(start, start + count))


def in_file(file) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def in_topic(broker, topic: str) -> list[str]:
    """The payloads of the JSON envelopes that a read-committed reader gets."""
    found = JAVA_4.ask("read_committed", bootstrap=broker.bootstrap, topic=topic)
    return [json.loads(record["value"])["payload"] for record in found]


def lines(count: int) -> list[str]:
    return [f"line {i}" for i in range(count)]


def make_topic(broker, topic: str) -> None:
    JAVA_4.create_topic(broker.bootstrap, topic, 1)
    wait_until(lambda: topic in JAVA_4.topics(broker.bootstrap), 10, "the topic")


@connect("file source and sink, JSON converter with schemas, transforms")
def test_a_file_travels_through_a_topic_with_its_schema(workers, module_server, topic, tmp_path):
    worker, _ = workers
    file, copy = tmp_path / "in.txt", tmp_path / "out.txt"
    append(file, 0, 500)
    make_topic(module_server, topic)
    hoist = {
        "transforms": "hoist",
        "transforms.hoist.type": f"{TRANSFORMS}HoistField$Value",
        "transforms.hoist.field": "line",
    }
    extract = {
        "transforms": "take",
        "transforms.take.type": f"{TRANSFORMS}ExtractField$Value",
        "transforms.take.field": "line",
    }
    worker.put(f"{topic}-source", source(file, topic, **hoist))
    worker.put(f"{topic}-sink", sink(copy, topic, **extract))
    wait_until(lambda: in_file(copy) == lines(500), 60, "the sink's file equal to the source's", 0.3)
    (first, *_) = JAVA_4.fetch(module_server.bootstrap, topic, 1)
    envelope = json.loads(first.value)
    assert envelope["schema"]["type"] == "struct"
    assert envelope["schema"]["fields"] == [{"type": "string", "optional": False, "field": "line"}]
    assert envelope["payload"] == {"line": "line 0"}
    # Connect's own topics are as it wants them.
    for internal, partitions in (("configs", 1), ("offsets", 3), ("status", 2)):
        assert JAVA_4.topics(module_server.bootstrap)[f"connect-{internal}"] == partitions
        config = JAVA_4.topic_config(module_server.bootstrap, f"connect-{internal}")
        assert config["cleanup.policy"] == "compact"
    told = worker.request("GET", f"/connectors/{topic}-source/offsets")["offsets"]
    assert told == [{"partition": {"filename": str(file)}, "offset": {"position": file.stat().st_size}}]
    for end in ("source", "sink"):
        worker.request("DELETE", f"/connectors/{topic}-{end}")


@connect("two workers share the tasks; one killed -9 and back; exactly-once source; broker killed -9 in the middle")
def test_every_line_arrives_once_through_kills_of_worker_and_broker(workers, module_server, topic, tmp_path):
    broker, (one, two) = module_server, workers
    topics = [f"{topic}-{i}" for i in range(2)]
    files = [tmp_path / f"in-{i}.txt" for i in range(2)]
    copies = [tmp_path / f"out-{i}.txt" for i in range(2)]
    for name, file, copy in zip(topics, files, copies, strict=True):
        append(file, 0, 300)
        make_topic(broker, name)
        one.put(f"{name}-source", source(file, name))
        one.put(f"{name}-sink", sink(copy, name))
    connectors = [f"{name}-{end}" for name in topics for end in ("source", "sink")]

    def spread():
        return {worker for connector in connectors for worker in one.tasks_on(connector)} == {one.name, two.name}

    wait_until(spread, 60, "tasks on both workers", 0.3)
    for name in topics:
        wait_until(lambda name=name: in_topic(broker, name) == lines(300), 60, f"{name} with the first lines", 0.3)

    # A broker that dies under load.
    for file in files:
        append(file, 300, 300)
    broker.kill_and_restart()
    for file in files:
        append(file, 600, 300)
    for name in topics:
        wait_until(lambda name=name: len(in_topic(broker, name)) >= 900, 90, f"{name} after the broker's death", 0.3)

    # A worker that dies: its tasks move to the other, and back when it comes again.
    two.kill()
    for file in files:
        append(file, 900, 300)

    def all_on_one():
        return all(one.tasks_on(connector) == [one.name] for connector in connectors)

    wait_until(all_on_one, 90, "all tasks on the worker that is left", 0.3)
    two.start().ready()
    wait_until(spread, 90, "tasks on both workers again", 0.3)
    for file in files:
        append(file, 1200, 300)
    for name, copy in zip(topics, copies, strict=True):
        wait_until(lambda name=name: len(in_topic(broker, name)) >= 1500, 90, f"{name} with all lines", 0.3)
        assert in_topic(broker, name) == lines(1500), "not each line once, in order"
        # A sink into a file is at least once: after a kill it writes again what it had not committed.
        wait_until(lambda copy=copy: set(in_file(copy)) == set(lines(1500)), 60, f"{copy.name} with all lines", 0.3)


@connect("connector paused, resumed, restarted, its offsets reset")
def test_a_connector_is_operated(workers, module_server, topic, tmp_path):
    broker, (worker, _) = module_server, workers
    file = tmp_path / "in.txt"
    append(file, 0, 50)
    make_topic(broker, topic)
    worker.put(topic, source(file, topic))
    wait_until(lambda: in_topic(broker, topic) == lines(50), 60, "the first lines", 0.3)
    worker.request("PUT", f"/connectors/{topic}/pause")
    wait_until(lambda: [t["state"] for t in worker.status(topic)["tasks"]] == ["PAUSED"], 30, "paused", 0.2)
    append(file, 50, 50)
    worker.request("PUT", f"/connectors/{topic}/resume")
    wait_until(lambda: in_topic(broker, topic) == lines(100), 60, "the lines of the pause", 0.3)
    worker.request("POST", f"/connectors/{topic}/restart?includeTasks=true")
    append(file, 100, 50)
    wait_until(lambda: in_topic(broker, topic) == lines(150), 60, "the lines after the restart", 0.3)
    worker.request("PUT", f"/connectors/{topic}/stop")
    wait_until(lambda: worker.status(topic)["connector"]["state"] == "STOPPED", 30, "stopped", 0.2)
    wait_until(lambda: worker.status(topic)["tasks"] == [], 30, "its tasks gone", 0.2)
    worker.request("DELETE", f"/connectors/{topic}/offsets")
    worker.request("PUT", f"/connectors/{topic}/resume")
    wait_until(lambda: in_topic(broker, topic) == lines(150) * 2, 60, "everything once more", 0.3)
    worker.request("DELETE", f"/connectors/{topic}")
