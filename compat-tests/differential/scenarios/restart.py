"""What is the same after kill -9 and a start (S-22, S-23, S-42, S-83, S-98). Each scenario is cut in two by its `yield`."""

from __future__ import annotations

from .. import batch
from ..members import Member, commit, committed, described
from ..scenario import scenario
from ..transactional import Producer
from .configs import TOPIC, alter, describe
from .consumer_groups import Consumer
from .idempotence import new_id, send


@scenario("S-22 S-47", bugs=(28,), brokers="changed")
def records_and_offsets(t):
    topic = t.topic(partitions=2)
    for number in range(20):
        t.append(topic, *([b"v%d" % number] * (number % 3 + 1)), partition=number % 2)
    before = [t.fetch(topic, partition=index)["records"] for index in (0, 1)]
    ends = [t.offsets(topic, index) for index in (0, 1)]
    yield
    t.see("same bytes", [t.fetch(topic, partition=index)["records"] == before[index] for index in (0, 1)])
    t.see("same ends", [t.offsets(topic, index) == ends[index] for index in (0, 1)])
    t.see("next", t.append(topic, b"next", partition=0) == ends[0][1])


@scenario("S-22 S-23", bugs=(59,), brokers="changed")
def topics_ids_and_epochs(t):
    topic = t.topic(partitions=3)
    before = t.call("Metadata", 12, topics=[{"name": topic.name}])
    cluster = before["cluster_id"]
    yield
    after = t.call("Metadata", 12, topics=[{"name": topic.name}])
    t.see("cluster", after["cluster_id"] == cluster)
    t.see("id", after["topics"][0]["topic_id"] == topic.id)
    epochs = [part["leader_epoch"] for part in before["topics"][0]["partitions"]]
    later = [part["leader_epoch"] for part in after["topics"][0]["partitions"]]
    t.see("epochs never go back", all(new >= old for old, new in zip(epochs, later)))


@scenario("S-69 S-70", brokers="changed")
def configs_and_partitions(t):
    topic = t.topic(retention__ms=77_000_000)
    alter(t, TOPIC, topic.name, (0, "retention.bytes", "123456789"))
    t.call("CreatePartitions", 3, topics=[{"name": topic.name, "count": 5, "assignments": None}], timeout_ms=5000)
    yield
    t.see("configs", describe(t, TOPIC, topic.name, "retention.ms", "retention.bytes"))
    t.see("partitions", len(t.call("Metadata", 9, topics=[{"name": topic.name}])["topics"][0]["partitions"]))


@scenario("S-63", brokers="changed")
def log_start(t):
    topic = t.topic()
    t.append(topic, b"a", b"b", b"c")
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 2}]}]
    t.call("DeleteRecords", 2, timeout_ms=5000, topics=topics)
    yield
    t.see("offsets", t.offsets(topic))
    t.see("below", t.fetch(topic, 1)["error_code"])


@scenario("S-42 S-39", bugs=(13, 14), brokers="changed")
def sequences_of_idempotent_producers(t):
    topic, pid = t.topic(message__timestamp__type="CreateTime"), new_id(t)
    for sequence in range(3):
        send(t, topic, pid, sequence)
    yield
    t.see("last again", send(t, topic, pid, 2))
    t.see("first again", send(t, topic, pid, 0))
    t.see("gap", send(t, topic, pid, 9))
    t.see("next", send(t, topic, pid, 3))
    t.see("new ids differ", new_id(t) > pid)


@scenario("S-83", bugs=(26,), brokers="changed")
def committed_offsets(t):
    name, topic = t.name("g"), t.topic(partitions=2)
    t.coordinator(name)
    commit(t, name, topic, 5, metadata="m5", committed_leader_epoch=0)
    commit(t, name, topic, 6, metadata="m6", partition=1)
    commit(t, name, topic, 7, metadata="m7", partition=1)
    yield
    t.coordinator(name)
    t.see("kept", committed(t, name, None))


@scenario("S-85", brokers="changed")
def deleted_offsets_and_groups(t):
    name, topic = t.name("g"), t.topic(partitions=2)
    t.coordinator(name)
    for group in (name, name + "2"):
        commit(t, group, topic, 5)
        commit(t, group, topic, 5, partition=1)
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    t.call("OffsetDelete", 0, group_id=name, topics=topics)
    t.call("DeleteGroups", 2, groups_names=[name + "2"])
    yield
    t.coordinator(name)
    t.see("offsets", committed(t, name, None))
    t.see("group", committed(t, name + "2", None))


@scenario("S-81 S-79", brokers="changed")
def classic_members(t):
    name = t.name("g")
    t.coordinator(name)
    member = Member(t, name)
    member.settle(session=300_000, version=3)
    yield
    t.coordinator(name)
    member.conn = t.connect()
    t.see("described", described(t, name))
    t.see("heartbeat", member.heartbeat())
    t.see("sync", member.sync())


@scenario("S-82", bugs=(10,), brokers="changed")
def static_members(t):
    name = t.name("g")
    t.coordinator(name)
    member = Member(t, name, instance="i1")
    member.join(session=300_000)
    member.sync({member.id: b"mine"})
    yield
    t.coordinator(name)
    again = Member(t, name, instance="i1")
    t.see("join", again.join())
    t.see("sync", again.sync())


@scenario("S-90 S-92", brokers="changed")
def consumer_group_members(t):
    topic, name = t.topic(partitions=2), t.name("g")
    t.coordinator(name)
    member = Consumer(t, name)
    member.join(topic)
    member.settle()
    yield
    t.coordinator(name)
    member.conn = t.connect()
    t.see("heartbeat", member.beat())
    t.see("owning", member.beat(**member.owned()))


@scenario("S-98 S-45", bugs=(16, 39), brokers="changed")
def open_transaction_is_committed_by_its_end_alone(t):
    topic, producer = t.topic(message__timestamp__type="CreateTime"), Producer(t, timeout_ms=60_000).begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")
    yield
    t.coordinator(producer.name, 1)
    t.see("end", _ended(t, producer, True))
    producer.settled(topic, 2)
    t.see("read committed", t.fetch(topic, isolation=1)["aborted_transactions"])


def _ended(t, producer: Producer, commit_it: bool) -> dict:
    return t.until(
        "an answer", lambda: next((found for found in [producer.ask_end(commit_it)] if found["error_code"] != 14), None)
    )


@scenario("S-98 S-45", bugs=(39,), brokers="changed")
def open_transaction_times_out(t):
    topic, producer = t.topic(), Producer(t, timeout_ms=3_000).begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")
    yield
    producer.settled(topic, 2)
    t.see("aborted", t.fetch(topic, isolation=1)["aborted_transactions"])


@scenario("S-98 S-53", bugs=(1, 34), brokers="changed")
def ended_transactions(t):
    topic, producer = t.topic(), Producer(t, timeout_ms=60_000).begin()
    producer.run(topic, b"a", commit=False)
    producer.run(topic, b"b", commit=True)
    yield
    t.see("stable", [t.offsets(topic), t.offsets(topic, isolation=1)])
    t.see("aborted", t.fetch(topic, isolation=1)["aborted_transactions"])
    t.see("from the second", t.fetch(topic, 2, isolation=1)["aborted_transactions"])
    t.see("batches", [one["offsets"] for one in batch.show(t.fetch(topic)["records"])])


@scenario("S-94", brokers="changed")
def epoch_of_a_transactional_id(t):
    first = Producer(t, timeout_ms=60_000).begin()
    yield
    second = Producer(t, timeout_ms=60_000).begin()
    t.see("same id, next epoch", [second.id == first.id, second.epoch - first.epoch])


@scenario("S-97 S-84", bugs=(12,), brokers="changed")
def pending_offsets(t):
    topic, group, producer = t.topic(), t.name("g"), Producer(t, timeout_ms=60_000).begin()
    t.coordinator(group)
    producer.offsets_to_group(group)
    producer.commit_offset(group, topic, 7)
    yield
    t.coordinator(group), t.coordinator(producer.name, 1)
    t.see("pending", committed(t, group, topic, stable=True))
    t.see("end", _ended(t, producer, True))
    t.until(
        "it stable", lambda: committed(t, group, topic, stable=True)["topics"][0]["partitions"][0]["error_code"] == 0
    )
    t.see("then", committed(t, group, topic, stable=True))
