"""The admin client of Apache Kafka's own Java client, three releases of it, beyond what every client's matrix asks."""

from __future__ import annotations

import pytest

from harness.clients.base import Refused
from harness.clients.java import JAVA_3, JAVA_4, RELEASES
from harness.process import wait_until
from harness.record import Record

each_release = pytest.mark.parametrize("client", RELEASES, ids=str)
START = 1_700_000_000_000


def numbered(count: int, partition: int = 0) -> list[Record]:
    return [Record(f"{i}".encode(), timestamp=START + i * 1000, partition=partition) for i in range(count)]


def in_metadata(client, broker, topic: str, partitions: int = 1) -> None:
    wait_until(lambda: client.topics(broker.bootstrap).get(topic) == partitions, 10, f"{topic} in the metadata")


def make_topic(client, broker, topic: str, partitions: int = 1, **config: str) -> None:
    client.create_topic(broker.bootstrap, topic, partitions, {k.replace("_", "."): v for k, v in config.items()})
    in_metadata(client, broker, topic, partitions)


@pytest.mark.program("describe a topic, add partitions to it")
@each_release
def test_partitions_are_described_and_added(client, broker, topic):
    make_topic(client, broker, topic, 2)
    told = client.ask("describe_topic", bootstrap=broker.bootstrap, topic=topic)
    node = client.ask("describe_cluster", bootstrap=broker.bootstrap)["controller"]
    whole = {"leader": node, "replicas": 1, "isr": 1}
    assert told == {"name": topic, "internal": False, "partitions": [{"partition": p, **whole} for p in (0, 1)]}

    client.ask("create_partitions", bootstrap=broker.bootstrap, topic=topic, partitions=5)
    in_metadata(client, broker, topic, 5)
    assert client.produce(broker.bootstrap, topic, [Record(b"new", partition=4)]) == [0]
    with pytest.raises(Refused, match="InvalidPartitionsException"):
        client.ask("create_partitions", bootstrap=broker.bootstrap, topic=topic, partitions=3)


@pytest.mark.program("what is refused, by the exception that Kafka's users catch")
@each_release
def test_refusals_are_the_exceptions_that_users_catch(client, broker, topic):
    make_topic(client, broker, topic)
    for exception, verb, arguments in (
        ("TopicExistsException", "create_topic", {"topic": topic, "partitions": 1}),
        ("InvalidPartitionsException", "create_topic", {"topic": f"{topic}-0", "partitions": 0}),
        ("InvalidTopicException", "create_topic", {"topic": "no/slash", "partitions": 1}),
        ("InvalidConfigurationException", "create_topic", {"topic": f"{topic}-c", "partitions": 1, "config": {"retention.ms": "soon"}}),
        ("InvalidConfigurationException", "create_topic", {"topic": f"{topic}-c", "partitions": 1, "config": {"no.such.config": "1"}}),
        ("InvalidConfigurationException", "alter_topic_config", {"topic": topic, "config": {"cleanup.policy": "shred"}}),
        ("UnknownTopicOrPartitionException", "delete_topic", {"topic": f"{topic}-not"}),
        ("UnknownTopicOrPartitionException", "describe_topic", {"topic": f"{topic}-not"}),
        ("UnknownTopicOrPartitionException", "topic_config", {"topic": f"{topic}-not"}),
        ("OffsetOutOfRangeException", "delete_records", {"topic": topic, "before": 99}),
        ("GroupIdNotFoundException", "delete_group", {"group": f"{topic}-not"}),
    ):  # fmt: skip
        with pytest.raises(Refused, match=f"^{exception}: "):
            client.ask(verb, bootstrap=broker.bootstrap, **arguments)


@pytest.mark.program("list offsets: earliest, latest, by time, latest timestamp")
@each_release
def test_offsets_are_listed_by_every_specification(client, broker, topic):
    make_topic(client, broker, topic)
    records = numbered(10)
    # The largest timestamp is not the last record's.
    records[4] = Record(b"ahead of its time", timestamp=START + 60_000)
    client.produce(broker.bootstrap, topic, records)

    def offset(which):
        found = client.ask("list_offsets", bootstrap=broker.bootstrap, topic=topic, which=which)
        return found["offset"], found["timestamp"]

    assert offset("earliest") == (0, -1)
    assert offset("latest") == (10, -1)
    assert offset(START + 3000) == (3, START + 3000)
    assert offset(START + 3001) == (4, START + 60_000)
    assert offset(START + 60_001) == (-1, -1)
    if client is JAVA_4:
        assert offset("max_timestamp") == (4, START + 60_000)
        assert offset("earliest_local") == (0, -1)


@pytest.mark.program("delete records, and what is below is out of range")
@each_release
def test_records_are_deleted_up_to_an_offset(client, broker, topic):
    make_topic(client, broker, topic)
    client.produce(broker.bootstrap, topic, numbered(10))
    assert client.ask("delete_records", bootstrap=broker.bootstrap, topic=topic, before=6) == 6
    assert client.ask("list_offsets", bootstrap=broker.bootstrap, topic=topic, which="earliest")["offset"] == 6
    assert [record.value for record in client.fetch(broker.bootstrap, topic, 4, start=6)] == [b"6", b"7", b"8", b"9"]
    with pytest.raises(Refused, match="OffsetOutOfRange"):
        client.fetch(broker.bootstrap, topic, 1, start=5, timeout=10)
    # -1 is the high watermark: everything goes, and the offsets are not used again.
    assert client.ask("delete_records", bootstrap=broker.bootstrap, topic=topic, before=-1) == 10
    assert client.produce(broker.bootstrap, topic, [Record(b"after")]) == [10]


@pytest.mark.program("where a config comes from: default, topic, and back to the default")
@each_release
def test_a_config_tells_where_it_comes_from(client, broker, topic):
    make_topic(client, broker, topic, retention_ms="123456")

    def entry(name):
        return client.ask("config_entry", bootstrap=broker.bootstrap, topic=topic, name=name)

    told = entry("retention.ms")
    assert (told["value"], told["source"], told["type"]) == ("123456", "DYNAMIC_TOPIC_CONFIG", "LONG")
    assert not told["read_only"] and not told["sensitive"]
    assert told["synonyms"][0] == "DYNAMIC_TOPIC_CONFIG retention.ms=123456"
    assert told["documentation"]
    assert (entry("cleanup.policy")["source"], entry("cleanup.policy")["type"]) == ("DEFAULT_CONFIG", "LIST")

    client.ask("alter_topic_config", bootstrap=broker.bootstrap, topic=topic, deleted=["retention.ms"])
    wait_until(lambda: entry("retention.ms")["value"] == "604800000", 10, "retention.ms at its default")
    assert entry("retention.ms")["source"] == "DEFAULT_CONFIG"


@pytest.mark.program("describe the cluster, its log dirs and its features")
@each_release
def test_the_cluster_tells_who_it_is(client, broker, topic):
    make_topic(client, broker, topic, 2)
    told = client.ask("describe_cluster", bootstrap=broker.bootstrap)
    assert told["nodes"] == [broker.bootstrap]
    assert told["cluster_id"]
    assert JAVA_4.ask("quorum_leader", bootstrap=broker.bootstrap) == told["controller"]

    assert client.ask("log_dirs", bootstrap=broker.bootstrap, topic=topic) == {"0": 0, "1": 0}
    client.produce(broker.bootstrap, topic, [Record(bytes(10_000), partition=1)])
    sizes = client.ask("log_dirs", bootstrap=broker.bootstrap, topic=topic)
    assert sizes["0"] == 0 and 10_000 <= sizes["1"] < 12_000

    levels = client.ask("features", bootstrap=broker.bootstrap)
    assert int(levels["transaction.version"]) == 2 and int(levels["group.version"]) == 1
    assert client.ask("reassignments", bootstrap=broker.bootstrap) == 0
    with pytest.raises(Refused, match="SecurityDisabledException"):
        client.ask("acls", bootstrap=broker.bootstrap)


@pytest.mark.program("groups as an operator sees and changes them")
@each_release
def test_groups_are_listed_described_changed_and_deleted(client, broker, topic):
    make_topic(client, broker, topic, 2)
    client.produce(broker.bootstrap, topic, numbered(5))
    group = f"{topic}-group"
    arguments = {"bootstrap": broker.bootstrap, "group": group, "topic": topic}
    member = client.join(broker.bootstrap, group, topic, settings={"client.id": "reader", "group.instance.id": "one"})
    member.read(5)
    member.commit()

    assert client.ask("list_groups", bootstrap=broker.bootstrap)[group] == "Stable"
    told = client.ask("describe_group", **arguments)
    assert (told["state"], told["assignor"]) == ("Stable", "range")
    assert told["coordinator"] == client.ask("describe_cluster", bootstrap=broker.bootstrap)["controller"]
    assert told["members"] == [{"client_id": "reader", "host": "/127.0.0.1", "instance": "one", "partitions": [0, 1]}]
    assert client.ask("group_offsets", **arguments) == {"0": 5, "1": 0}
    with pytest.raises(Refused, match="UnknownMemberIdException"):
        client.ask("alter_group_offsets", **arguments, offsets={"0": 2})
    with pytest.raises(Refused, match="GroupSubscribedToTopicException"):
        client.ask("delete_group_offsets", **arguments, partition=0)
    with pytest.raises(Refused, match="GroupNotEmptyException"):
        client.ask("delete_group", **arguments)

    # A static member does not leave when it closes; an operator removes it.
    member.close()
    client.ask("remove_member", **arguments, instance="one")
    assert client.ask("describe_group", **arguments)["state"] == "Empty"
    client.ask("alter_group_offsets", **arguments, offsets={"0": 2})
    client.ask("delete_group_offsets", **arguments, partition=1)
    assert client.ask("group_offsets", **arguments) == {"0": 2}
    member = client.join(broker.bootstrap, group, topic)
    assert [record.value for record in member.read(3)] == [b"2", b"3", b"4"]
    member.close()
    client.ask("delete_group", **arguments)
    assert group not in client.ask("list_groups", bootstrap=broker.bootstrap)


@pytest.mark.program("broker configs: described, changed, changed back")
@pytest.mark.parametrize("client", (JAVA_3, JAVA_4), ids=str)
def test_a_broker_config_is_changed_and_told(client, broker):
    node = str(client.ask("describe_cluster", bootstrap=broker.bootstrap)["controller"])
    of_broker = {"bootstrap": broker.bootstrap, "type": "BROKER", "topic": node}

    def entry():
        return client.ask("config_entry", **of_broker, name="log.retention.ms")

    before = entry()
    client.ask("alter_topic_config", **of_broker, config={"log.retention.ms": "86400000"})
    wait_until(lambda: entry()["value"] == "86400000", 10, "the broker's log.retention.ms changed")
    assert entry()["source"] == "DYNAMIC_BROKER_CONFIG"
    client.ask("alter_topic_config", **of_broker, deleted=["log.retention.ms"])
    wait_until(lambda: entry()["value"] == before["value"], 10, "the broker's log.retention.ms as before")
