"""Client x feature: each stock client does real work; what it reads back is exactly what was produced."""

from __future__ import annotations

import random
import time

import pytest

from harness.clients import ALL, Client
from harness.clients.base import (
    ADMIN,
    ALTER_CONFIG,
    CODECS,
    DESCRIBE_CONFIG,
    EMPTY_AND_NULL,
    HEADERS,
    IDEMPOTENCE,
    NULL_HEADER_VALUE,
    READS_EMPTY,
    REPLACE_CONFIG,
    Refused,
)
from harness.matrix import CREATOR, clients_with, contents, make_topic
from harness.process import wait_until
from harness.record import Record


def assert_round_trip(
    client: Client, broker, topic: str, records: list[Record], reader: Client | None = None, **how
) -> list[Record]:
    offsets = client.produce(broker.bootstrap, topic, records, **how)
    assert offsets == list(range(len(records)))
    back = (reader or client).fetch(broker.bootstrap, topic, len(records))
    assert contents(back, client) == contents(records, client)
    assert [record.offset for record in back] == offsets
    return back


@pytest.mark.feature("produce and consume, each codec")
@pytest.mark.parametrize("codec", CODECS)
@clients_with()
def test_records_come_back_as_produced_with_each_codec(client, codec, broker, topic):
    make_topic(broker, topic)
    # Compressible and incompressible records, so that every codec has both kinds of block.
    noise = random.Random(7)
    records = [Record(value=f"value {i} ".encode() * 40) for i in range(60)]
    records += [Record(value=noise.randbytes(1000)) for _ in range(20)]
    assert_round_trip(client, broker, topic, records, codec=codec)


@pytest.mark.feature("headers, with duplicate keys")
@clients_with(HEADERS)
def test_headers_keep_their_order_and_their_duplicate_keys(client, broker, topic):
    make_topic(broker, topic)
    headers = (("trace", b"1"), ("kind", b"order"), ("trace", b"2"), ("trace", b"1"))
    assert_round_trip(client, broker, topic, [Record(b"with", b"key", headers), Record(b"without", b"key")])


@pytest.mark.feature("header with a null value")
@clients_with(NULL_HEADER_VALUE)
def test_a_header_value_may_be_null(client, broker, topic):
    make_topic(broker, topic)
    assert_round_trip(client, broker, topic, [Record(b"v", b"k", (("empty-handed", None), ("full", b"x")))])


@pytest.mark.feature("null and empty keys and values")
@clients_with(EMPTY_AND_NULL)
def test_null_and_empty_are_told_apart_in_keys_and_values(client, broker, topic):
    make_topic(broker, topic)
    records = [Record(value, key) for key in (None, b"", b"k") for value in (None, b"", b"v")]
    # kafka-python and aiokafka refuse a record with neither key nor value: that pair is other clients' to send.
    if client.name in ("kafka-python", "aiokafka"):
        records = [record for record in records if record.key is not None or record.value is not None]
    reader = client if READS_EMPTY in client.features else CREATOR
    assert_round_trip(client, broker, topic, records, reader)


@pytest.mark.feature("900 KB message")
@pytest.mark.parametrize("codec", ("none", "zstd"))
@clients_with()
def test_a_message_of_900_kb_comes_back_whole(client, codec, broker, topic):
    make_topic(broker, topic)
    record = Record(random.Random(11).randbytes(900_000), b"large")
    assert_round_trip(client, broker, topic, [record, Record(b"small", b"after")], codec=codec)


@pytest.mark.feature("record timestamps and seek by time")
@clients_with()
def test_an_offset_is_found_by_time(client, broker, topic):
    make_topic(broker, topic)
    start = 1_700_000_000_000
    # Timestamps are the producer's own; kcat cannot set them, so another client produces.
    CREATOR.produce(broker.bootstrap, topic, [Record(f"{i}".encode(), timestamp=start + i * 1000) for i in range(20)])
    assert client.offset_at(broker.bootstrap, topic, start + 5000) == 5
    assert client.offset_at(broker.bootstrap, topic, start + 5001) == 6
    assert client.offset_at(broker.bootstrap, topic, start - 1) == 0
    back = client.fetch(broker.bootstrap, topic, 4, start=client.offset_at(broker.bootstrap, topic, start + 16_000))
    assert [(record.value, record.timestamp) for record in back] == [
        (f"{i}".encode(), start + i * 1000) for i in range(16, 20)
    ]


@pytest.mark.feature("idempotent producer")
@clients_with(IDEMPOTENCE)
def test_an_idempotent_producer_stores_each_record_once(client, broker, topic):
    make_topic(broker, topic)
    assert_round_trip(client, broker, topic, [Record(f"{i}".encode()) for i in range(300)], idempotent=True)
    with pytest.raises((TimeoutError, Refused)):
        client.fetch(broker.bootstrap, topic, 301, timeout=2)


@pytest.mark.feature("group: commit and resume")
@clients_with()
def test_a_group_resumes_where_it_committed(client, broker, topic):
    make_topic(broker, topic)
    client.produce(broker.bootstrap, topic, [Record(f"{i}".encode()) for i in range(10)])
    member = client.join(broker.bootstrap, f"{topic}-group", topic)
    assert [record.value for record in member.read(10)] == [f"{i}".encode() for i in range(10)]
    member.commit()
    member.close()

    client.produce(broker.bootstrap, topic, [Record(f"{i}".encode()) for i in range(10, 15)])
    member = client.join(broker.bootstrap, f"{topic}-group", topic)
    assert [record.value for record in member.read(5)] == [f"{i}".encode() for i in range(10, 15)]
    member.close()


@pytest.mark.feature("group: rebalance of two members")
@clients_with()
def test_two_members_share_the_partitions_and_one_takes_over(client, broker, topic):
    make_topic(broker, topic, partitions=4)
    produced = [Record(f"{p}-{i}".encode(), partition=p) for p in range(4) for i in range(5)]
    client.produce(broker.bootstrap, topic, produced)
    first = client.join(broker.bootstrap, f"{topic}-group", topic)
    seen = {record.value for record in first.read(20)}
    assert seen == {record.value for record in produced}
    assert first.assignment() == {0, 1, 2, 3}

    second = client.join(broker.bootstrap, f"{topic}-group", topic)

    def shared():
        first.poll(0.1)
        second.poll(0.1)
        mine, yours = first.assignment(), second.assignment()
        return mine and yours and not mine & yours and mine | yours == {0, 1, 2, 3}

    wait_until(shared, 40, "two members sharing four partitions", pause=0)
    first.close()

    def alone():
        second.poll(0.1)
        return second.assignment() == {0, 1, 2, 3}

    wait_until(alone, 40, "the second member holding all partitions", pause=0)
    client.produce(broker.bootstrap, topic, [Record(b"late", partition=p) for p in range(4)])
    late: list[Record] = []
    deadline = time.monotonic() + 20
    while sum(record.value == b"late" for record in late) < 4 and time.monotonic() < deadline:
        late += second.poll(0.2)
    assert {record.partition for record in late if record.value == b"late"} == {0, 1, 2, 3}
    second.close()


@pytest.mark.feature("admin: create, describe, delete topics")
@clients_with(ADMIN)
def test_admin_creates_describes_and_deletes_a_topic(client, broker, topic):
    client.create_topic(broker.bootstrap, topic, 3, {"retention.ms": "123456"})
    wait_until(lambda: client.topics(broker.bootstrap).get(topic) == 3, 10, "the new topic with three partitions")
    describer = client if DESCRIBE_CONFIG in client.features else CREATOR
    config = describer.topic_config(broker.bootstrap, topic)
    assert config["retention.ms"] == "123456"
    assert config["cleanup.policy"] == "delete"
    with pytest.raises(Refused):
        client.create_topic(broker.bootstrap, topic, 3)
    client.delete_topic(broker.bootstrap, topic)
    wait_until(lambda: topic not in client.topics(broker.bootstrap), 10, "the topic gone from the metadata")


@pytest.mark.feature("admin: describe a topic's configs")
@clients_with(DESCRIBE_CONFIG)
def test_admin_describes_the_configs_of_a_topic(client, broker, topic):
    make_topic(broker, topic, config={"retention.ms": "234567"})
    config = client.topic_config(broker.bootstrap, topic)
    assert config["retention.ms"] == "234567"
    assert config["max.message.bytes"] == "1048588"


@pytest.mark.feature("admin: incremental config changes")
@clients_with(ADMIN, ALTER_CONFIG)
def test_admin_changes_one_config_and_leaves_the_others(client, broker, topic):
    client.create_topic(broker.bootstrap, topic, 1, {"max.message.bytes": "654321"})
    wait_until(lambda: topic in client.topics(broker.bootstrap), 10, "the new topic in the metadata")
    client.alter_topic_config(broker.bootstrap, topic, {"retention.ms": "777777"})

    def changed():
        config = client.topic_config(broker.bootstrap, topic)
        return config["retention.ms"] == "777777" and config["max.message.bytes"] == "654321"

    wait_until(changed, 10, "the changed config beside the old one")


@pytest.mark.feature("admin: AlterConfigs, replacing all configs")
@clients_with(ADMIN, REPLACE_CONFIG)
def test_admin_replaces_the_configs_of_a_topic(client, broker, topic):
    client.create_topic(broker.bootstrap, topic, 1, {"max.message.bytes": "654321"})
    wait_until(lambda: topic in client.topics(broker.bootstrap), 10, "the new topic in the metadata")
    client.replace_topic_config(broker.bootstrap, topic, {"retention.ms": "777777"})

    def replaced():
        config = client.topic_config(broker.bootstrap, topic)
        return config["retention.ms"] == "777777" and config["max.message.bytes"] != "654321"

    wait_until(replaced, 10, "the new config instead of the old one")


@pytest.mark.parametrize("writer", ALL, ids=str)
def test_what_one_client_writes_every_other_reads(writer, broker, topic):
    make_topic(broker, topic)
    headers = (("n", b"1"), ("n", b"2"))
    records = [Record(f"from {writer.name} {i}".encode(), b"key", headers) for i in range(5)]
    writer.produce(broker.bootstrap, topic, records, codec="lz4")
    for reader in ALL:
        if reader is not writer and not reader.missing():
            assert contents(reader.fetch(broker.bootstrap, topic, 5)) == contents(records), reader
