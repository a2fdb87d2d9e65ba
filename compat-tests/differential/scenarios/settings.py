"""A broker whose operator changed its settings (S-64, S-68, S-77, S-89 and what the settings bound)."""

from __future__ import annotations

import struct
import time

from .. import batch
from ..connection import Closed
from ..members import Member, commit
from ..scenario import scenario
from ..transactional import Producer
from .configs import BROKER, describe


@scenario("S-19", bugs=(18,), brokers="changed")
def automatic_creation_is_off(t):
    name = t.name("nowhere")
    for version in (0, 4, 9, 12):
        answer = t.call("Metadata", version, topics=[{"name": name}], allow_auto_topic_creation=True)
        t.see(f"v{version}", answer["topics"])


@scenario("S-70", brokers="changed")
def deleting_topics_is_off(t):
    topic = t.topic()
    for version in (1, 4, 5):
        t.ask(f"v{version}", "DeleteTopics", version, topic_names=[topic.name, t.name("nowhere")], timeout_ms=5000)
    t.ask("v6", "DeleteTopics", 6, topics=[{"name": None, "topic_id": topic.id}], timeout_ms=5000)


@scenario("S-64", bugs=(20,), brokers="changed")
def default_partitions(t):
    topic = {"name": t.name("t"), "num_partitions": -1, "replication_factor": -1}
    answer = t.call("CreateTopics", 7, topics=[topic], timeout_ms=5000)["topics"][0]
    t.see("partitions", [answer["error_code"], answer["num_partitions"]])


@scenario("S-28", bugs=(50,), brokers="changed")
def largest_message(t):
    topic, own = t.topic("a"), t.topic("b", max__message__bytes=20_000)
    for size in (9_000, 11_000):
        t.see(f"{size} bytes", t.produce(topic, batch.make(b"x" * size)))
        t.see(f"{size} bytes, topic allows", t.produce(own, batch.make(b"x" * size)))


@scenario("S-1", brokers="changed")
def largest_request(t):
    for size in (200_000, 200_001):
        conn = t.connect()
        conn.send_bytes(struct.pack(">i", size))
        t.see(f"{size} bytes", conn.state(0.5))


@scenario("S-10", brokers="changed")
def idle_connection_is_closed(t):
    conn = t.connect()
    begun = time.monotonic()
    t.see("state", conn.state(18))
    t.see("not before its time", time.monotonic() - begun >= 5.5)


@scenario("S-10 S-49", brokers="changed")
def long_poll_and_idle_time(t):
    topic = t.topic()
    try:
        t.see("answer", t.fetch(topic, max_wait_ms=8000)["error_code"])
    except Closed:
        t.see("answer", "closed")


@scenario("S-48", brokers="changed")
def largest_fetch(t):
    topic = t.topic(partitions=3)
    for index in range(3):
        t.append(topic, b"x" * 900, partition=index)
        t.append(topic, b"y" * 900, partition=index)
    parts = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in range(3)]
    answer = t.call(
        "Fetch", 11, max_bytes=1 << 20, session_epoch=-1, topics=[{"topic": topic.name, "partitions": parts}]
    )
    t.see("batches", [len(batch.split(part["records"])) for part in answer["responses"][0]["partitions"]])


@scenario("S-55", brokers="changed")
def no_fetch_sessions(t):
    topic = t.topic()
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    for version in (7, 11, 12):
        answer = t.call(
            "Fetch", version, session_epoch=0, max_bytes=1000, topics=[{"topic": topic.name, "partitions": parts}]
        )
        t.see(f"v{version}", answer)


@scenario("S-77", brokers="changed")
def first_join_waits_for_others(t):
    name = t.name("g")
    t.coordinator(name)
    first, second = Member(t, name), Member(t, name)
    begun = time.monotonic()
    first.ask_join(version=3)
    time.sleep(0.3)
    second.ask_join(version=3)
    answers = [first.joined(), second.joined()]
    t.see("waited", time.monotonic() - begun >= 0.65)
    t.see("generations", [answer["generation_id"] for answer in answers])
    t.see("members", len(answers[0]["members"]))


@scenario("S-89", brokers="changed")
def group_is_full(t):
    name = t.name("g")
    t.coordinator(name)
    members = [Member(t, name) for _ in range(3)]
    for member in members[:2]:
        member.ask_join(version=3)
    t.see("two", [member.joined()["error_code"] for member in members[:2]])
    t.see("a third", members[2].join(version=3))


@scenario("S-83", bugs=(50,), brokers="changed")
def longest_metadata(t):
    name, topic = t.name("g"), t.topic()
    t.coordinator(name)
    for size in (10, 11):
        t.see_error(f"{size} bytes", commit(t, name, topic, 1, metadata="x" * size))


@scenario("S-94", bugs=(50,), brokers="changed")
def longest_transaction(t):
    Producer(t, timeout_ms=60_000).begin()
    for timeout in (60_000, 60_001):
        producer = Producer(t, f"tx{timeout}", timeout)
        t.coordinator(producer.name, 1)
        t.see(f"{timeout} ms", producer.ask_id())


@scenario("S-33", brokers="changed")
def append_time_for_every_topic(t):
    topic, own = t.topic("a"), t.topic("b", message__timestamp__type="CreateTime")
    t.see("default", t.produce(topic, batch.make(b"a")))
    t.see("of its own", t.produce(own, batch.make(b"a")))


@scenario("S-67 S-68", brokers="changed")
def changed_settings_are_described(t):
    keys = (
        "num.partitions",
        "auto.create.topics.enable",
        "delete.topic.enable",
        "group.max.size",
        "transaction.max.timeout.ms",
    )
    t.see("broker", describe(t, BROKER, "0", *keys, synonyms=True))
    t.see("topic", describe(t, 2, t.topic().name, "max.message.bytes", "message.timestamp.type", synonyms=True))
