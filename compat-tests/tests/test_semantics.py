"""What clients rely on beyond layouts, asked on the wire: the same answers as Apache Kafka's (`--peer kafka`)."""

from __future__ import annotations

import socket
import struct
import threading
import time
import uuid

import pytest
import zstandard

from harness.clients import BY_NAME
from harness.process import wait_until
from harness.record import Record
from harness.wire import Wire, record_batch

CLIENT = BY_NAME["confluent-kafka"]

NONE, OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION = 0, 1, 2, 3
MESSAGE_TOO_LARGE, INVALID_TOPIC, INVALID_REQUIRED_ACKS = 10, 17, 21
INVALID_TIMESTAMP, UNSUPPORTED_VERSION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR = (
    32,
    35,
    36,
    37,
    38,
)
INVALID_CONFIG, INVALID_REQUEST = 40, 42
OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH = 45, 47
UNKNOWN_LEADER_EPOCH, UNSUPPORTED_COMPRESSION, INVALID_RECORD, UNKNOWN_TOPIC_ID = 75, 76, 87, 100
UNKNOWN_ID = uuid.UUID(int=0x1234567890ABCDEF)

BASE_TIME = 1_760_000_000_000


class Wired:
    """A connection and a topic, and the few requests that the tests send."""

    def __init__(self, broker, topic: str):
        self.broker, self.topic = broker, topic
        self.wire = Wire(broker.kafka_port)
        wait_until(lambda: self.fetch(0).error_code == NONE, 10, f"{topic} led by somebody")

    def produce(self, *batches: bytes, acks: int = -1, version: int = 9, topic: str | None = None, partition: int = 0):
        """The partition's answer; several batches are one partition's records."""
        partitions = [{"index": partition, "records": b"".join(batches)}]
        asked = {
            "acks": acks,
            "timeout_ms": 5000,
            "topic_data": [{"name": topic or self.topic, "partition_data": partitions}],
        }
        return self.wire.send(0, version, asked).responses[0].partition_responses[0]

    def fetch(
        self,
        offset: int,
        *,
        max_bytes=1 << 20,
        partition_max_bytes=1 << 20,
        max_wait_ms=0,
        min_bytes=1,
        epoch=-1,
        wire=None,
    ):
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
        partition |= {"current_leader_epoch": epoch}
        asked = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes, "session_epoch": -1}
        asked |= {"topics": [{"topic": self.topic, "partitions": [partition]}]}
        answer = (wire or self.wire).send(1, 12, asked)
        assert answer.session_id == 0
        return answer.responses[0].partitions[0]

    def offset_at(self, timestamp: int, version: int = 8):
        asked = {
            "replica_id": -1,
            "topics": [
                {
                    "name": self.topic,
                    "partitions": [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}],
                }
            ],
        }
        return self.wire.send(2, version, asked).topics[0].partitions[0]


@pytest.fixture
def wired(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1, {"retention.ms": "-1"})
    return Wired(broker, topic)


def closes(port: int, request: bytes) -> bool:
    """Whether the broker answers these bytes by closing the connection, without a byte of its own."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(request)
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


def header(key: int, version: int, correlation: int = 7, client: bytes = b"\x00\x01c") -> bytes:
    return struct.pack(">hhi", key, version, correlation) + client


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


# -- frames and versions ----------------------------------------------------------


@pytest.mark.parametrize(
    "request_bytes",
    {
        "frame-too-large": struct.pack(">i", 2_000_000_000) + b"x",
        "negative-frame": struct.pack(">i", -5) + b"x",
        "unknown-api": framed(header(999, 0)),
        "unknown-version": framed(header(3, 99) + b"\x00" * 20),
        "body-cut-short": framed(header(3, 1) + b"\x00\x00\x00\x05\x00"),
        "array-of-two-billion": framed(header(3, 1) + b"\x7f\xff\xff\xff"),
        "no-header": framed(b"\x00"),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_is_no_request_closes_its_connection_and_nothing_else(request_bytes, wired):
    assert closes(wired.broker.kafka_port, request_bytes[1])
    assert wired.produce(record_batch(b"still here")).error_code == NONE


def test_api_versions_of_an_unknown_version_is_answered_in_v0_with_the_range(wired):
    answer = wired.wire.raw(framed(header(18, 77) + b"\x00"))  # the header of a flexible version, and no body
    correlation, code, count = struct.unpack(">ihi", answer[:10])
    assert (correlation, code, count) == (7, UNSUPPORTED_VERSION, 1)
    assert struct.unpack(">hhh", answer[10:16])[:2] == (18, 0)


def test_pipelined_requests_are_answered_in_their_order(wired):
    batch = record_batch(b"x" * 100)
    body = b"\xff\xff" + struct.pack(">hii", -1, 5000, 1)
    body += struct.pack(">h", len(wired.topic)) + wired.topic.encode() + struct.pack(">iii", 1, 0, len(batch)) + batch
    requests = b""
    for number in range(40):
        if number % 4 == 3:
            requests += framed(header(3, 1, number) + b"\x00\x00\x00\x00")  # Metadata of no topic: nothing to wait for
        else:
            requests += framed(header(0, 7, number) + body)
    wired.wire.connection.sendall(requests)
    answers = [wired.wire._exactly(int.from_bytes(wired.wire._exactly(4), "big")) for _ in range(40)]
    assert [struct.unpack(">i", answer[:4])[0] for answer in answers] == list(range(40))


def test_a_client_id_may_be_null_or_empty(wired):
    for client in (b"\xff\xff", b"\x00\x00"):
        answer = wired.wire.raw(framed(header(3, 1, 9, client) + b"\x00\x00\x00\x00"))
        assert struct.unpack(">i", answer[:4])[0] == 9


# -- metadata -----------------------------------------------------------------------


def test_an_empty_topic_list_means_all_in_v0_and_none_afterwards_and_null_means_all(wired):
    def listed(version, topics):
        return wired.topic in {topic.name for topic in wired.wire.send(3, version, {"topics": topics}).topics}

    assert listed(0, [])
    assert not listed(1, [])
    assert listed(1, None) and listed(12, None)


def test_unknown_names_ids_and_bad_names_have_their_own_errors(wired):
    def code(version, **topic):
        asked = {"topics": [topic], "allow_auto_topic_creation": False}
        return wired.wire.send(3, version, asked).topics[0].error_code

    assert code(5, name="nobody-made-this") == UNKNOWN_TOPIC_OR_PARTITION
    assert code(5, name="no/slashes") == INVALID_TOPIC
    assert code(12, name=None, topic_id=UNKNOWN_ID) == UNKNOWN_TOPIC_ID


def test_metadata_goes_by_the_topic_id_whatever_the_name(wired):
    # The Java client asks by id with an empty name, not with a null one.
    (by_name,) = wired.wire.send(3, 12, {"topics": [{"name": wired.topic}]}).topics
    for name in (None, "", "another"):
        (topic,) = wired.wire.send(3, 12, {"topics": [{"topic_id": by_name.topic_id, "name": name}]}).topics
        assert (topic.error_code, topic.name, len(topic.partitions)) == (NONE, wired.topic, len(by_name.partitions))


def test_a_topic_is_made_by_metadata_when_the_client_allows_it(wired):
    name = f"{wired.topic}-auto"

    def code():
        return (
            wired.wire.send(3, 9, {"topics": [{"name": name}], "allow_auto_topic_creation": True}).topics[0].error_code
        )

    wait_until(lambda: code() == NONE, 10, "the topic that Metadata makes")


# -- produce ------------------------------------------------------------------------


def test_a_partition_takes_exactly_one_whole_batch(wired):
    good = record_batch(b"one")
    assert wired.produce(good, good).error_code == INVALID_RECORD
    assert wired.produce(b"").error_code in (INVALID_RECORD, CORRUPT_MESSAGE)
    assert wired.fetch(0).high_watermark == 0


def test_a_damaged_batch_is_corrupt(wired):
    batch = bytearray(record_batch(b"one value that is long enough"))
    batch[-5] ^= 1
    assert wired.produce(bytes(batch)).error_code == CORRUPT_MESSAGE


def test_a_batch_whose_numbers_do_not_add_up_is_invalid(wired):
    assert wired.produce(record_batch(b"a", b"b", count=3)).error_code == INVALID_RECORD
    assert wired.produce(record_batch(b"a", b"b", count=1)).error_code == INVALID_RECORD


@pytest.mark.weir_only
def test_offset_deltas_out_of_order_are_invalid(wired):
    """Kafka looks at them only when it rewrites the batch; a reader that trusts them would go astray."""
    assert wired.produce(record_batch(b"a", b"b", deltas=[0, 5])).error_code == INVALID_RECORD
    assert wired.produce(record_batch(b"a", b"b", deltas=[1, 0])).error_code == INVALID_RECORD


def test_a_control_batch_from_a_client_is_invalid(wired):
    assert wired.produce(record_batch(b"\x00\x00\x00\x00\x00\x00", attributes=0x20)).error_code == INVALID_RECORD


def test_max_message_bytes_is_about_the_whole_batch(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1, {"max.message.bytes": "2000"})
    wired = Wired(broker, topic)
    assert wired.produce(record_batch(b"x" * 2000)).error_code == MESSAGE_TOO_LARGE
    assert wired.produce(record_batch(b"x" * 1800)).error_code == NONE


def test_acks_beyond_one_are_refused_for_every_partition(wired):
    assert wired.produce(record_batch(b"x"), acks=2).error_code == INVALID_REQUIRED_ACKS


def test_acks_zero_is_never_answered_and_is_stored(wired):
    batch = record_batch(b"quiet")
    body = b"\xff\xff" + struct.pack(">hii", 0, 5000, 1)
    body += struct.pack(">h", len(wired.topic)) + wired.topic.encode() + struct.pack(">iii", 1, 0, len(batch)) + batch
    # The next answer on the connection is that of the next request.
    answer = wired.wire.raw(framed(header(0, 7, 1) + body) + framed(header(3, 1, 2) + b"\x00\x00\x00\x00"))
    assert struct.unpack(">i", answer[:4])[0] == 2
    wait_until(lambda: wired.fetch(0).high_watermark == 1, 5, "the record of acks=0")


def test_partitions_of_a_request_fail_and_succeed_apart(wired):
    partitions = [{"index": 7, "records": record_batch(b"x")}, {"index": 0, "records": record_batch(b"y")}]
    topics = [{"name": wired.topic, "partition_data": partitions}]
    topics.append({"name": "nobody-made-this", "partition_data": [{"index": 0, "records": record_batch(b"z")}]})
    answer = wired.wire.send(0, 9, {"acks": -1, "timeout_ms": 5000, "topic_data": topics})
    codes = {
        (topic.name, partition.index): partition.error_code
        for topic in answer.responses
        for partition in topic.partition_responses
    }
    assert codes[(wired.topic, 7)] == UNKNOWN_TOPIC_OR_PARTITION
    assert codes[(wired.topic, 0)] == NONE
    assert codes[("nobody-made-this", 0)] == UNKNOWN_TOPIC_OR_PARTITION
    assert "nobody-made-this" not in CLIENT.topics(wired.broker.bootstrap)


def test_zstd_needs_produce_version_seven(wired):
    batch = record_batch(b"x" * 100, attributes=4, compress=zstandard.compress)
    assert wired.produce(batch, version=6).error_code == UNSUPPORTED_COMPRESSION
    assert wired.produce(batch, version=7).error_code == NONE


def test_a_compressed_batch_that_does_not_decompress_is_refused(wired):
    batch = record_batch(b"x" * 100, attributes=4, compress=lambda _records: b"no zstd frame at all")
    assert wired.produce(batch).error_code in (INVALID_RECORD, CORRUPT_MESSAGE, -1)  # Kafka: UNKNOWN_SERVER_ERROR
    assert wired.produce(record_batch(b"still here")).error_code == NONE


def test_a_timestamp_far_in_the_future_is_invalid(wired):
    soon = int(time.time() * 1000)
    assert wired.produce(record_batch(b"x", timestamps=[soon + 7_200_000])).error_code == INVALID_TIMESTAMP
    assert wired.produce(record_batch(b"x", timestamps=[soon + 60_000])).error_code == NONE


def test_log_append_time_is_the_brokers_and_is_stored(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1, {"message.timestamp.type": "LogAppendTime"})
    wired = Wired(broker, topic)
    before = int(time.time() * 1000)
    answer = wired.produce(record_batch(b"x", b"y"))
    assert answer.error_code == NONE and before <= answer.log_append_time_ms <= before + 60_000
    records = CLIENT.fetch(broker.bootstrap, topic, 2)
    assert [record.timestamp for record in records] == [answer.log_append_time_ms] * 2


def test_the_brokers_own_topics_are_not_for_clients(wired):
    wired.wire.send(10, 2, {"key": "someone", "key_type": 0})  # makes the topic
    asked = {
        "group_id": "someone",
        "topics": [{"name": wired.topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
    }
    wait_until(
        lambda: wired.wire.send(8, 5, asked).topics[0].partitions[0].error_code == NONE, 20, "a committed offset"
    )
    assert wired.produce(record_batch(b"x", key=b"k"), topic="__consumer_offsets").error_code == INVALID_TOPIC


# -- idempotence --------------------------------------------------------------------


@pytest.fixture
def producer_id(wired) -> int:
    asked = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return wait_until(lambda: wired.wire.send(22, 3, asked).producer_id + 1, 20, "a producer id") - 1


def test_a_repeated_batch_is_answered_with_its_first_offset_and_stored_once(wired, producer_id):
    batches = [record_batch(f"{n}".encode(), b"and", producer=(producer_id, 0, n * 2)) for n in range(5)]
    assert [wired.produce(batch).base_offset for batch in batches] == [0, 2, 4, 6, 8]
    for number in (4, 0, 2):
        again = wired.produce(batches[number])
        assert (again.error_code, again.base_offset) == (NONE, number * 2)
    assert wired.fetch(0).high_watermark == 10


def test_a_gap_in_the_sequence_and_an_old_epoch_are_refused(wired, producer_id):
    assert wired.produce(record_batch(b"0", producer=(producer_id, 1, 0))).error_code == NONE
    assert wired.produce(record_batch(b"5", producer=(producer_id, 1, 5))).error_code == OUT_OF_ORDER_SEQUENCE
    assert wired.produce(record_batch(b"1", producer=(producer_id, 0, 1))).error_code == INVALID_PRODUCER_EPOCH
    assert wired.produce(record_batch(b"9", producer=(producer_id, 2, 9))).error_code == OUT_OF_ORDER_SEQUENCE
    assert wired.produce(record_batch(b"0", producer=(producer_id, 2, 0))).error_code == NONE
    assert wired.fetch(0).high_watermark == 2


def test_a_sequence_wraps_to_zero(wired, producer_id):
    top = 2**31 - 1
    assert wired.produce(record_batch(b"a", b"b", producer=(producer_id, 0, top - 1))).error_code == NONE
    assert wired.produce(record_batch(b"c", producer=(producer_id, 0, 0))).error_code == NONE


# -- fetch --------------------------------------------------------------------------


def first_offset(records: bytes) -> int:
    return struct.unpack(">q", bytes(records)[:8])[0]


def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch(wired):
    batch = record_batch(*(f"{n}".encode() for n in range(10)))
    wired.produce(batch)
    found = bytes(wired.fetch(7).records)
    assert first_offset(found) == 0 and len(found) == len(batch)


def test_the_first_batch_comes_whole_however_small_the_limits(wired):
    batch = record_batch(b"x" * 50_000)
    wired.produce(batch)
    wired.produce(batch)
    assert len(bytes(wired.fetch(0, max_bytes=100, partition_max_bytes=100).records)) == len(batch)


def test_an_offset_outside_the_log_is_out_of_range_and_its_end_is_not(wired):
    wired.produce(record_batch(b"x"))
    for offset in (5, -3):
        found = wired.fetch(offset)
        assert (found.error_code, bytes(found.records or b"")) == (OFFSET_OUT_OF_RANGE, b"")
    end = wired.fetch(1)
    assert (end.error_code, end.high_watermark, end.log_start_offset) == (NONE, 1, 0)
    assert end.records is not None and bytes(end.records) == b""


def test_a_newer_leader_epoch_than_the_brokers_is_unknown(wired):
    wired.produce(record_batch(b"x"))
    assert wired.fetch(0, epoch=0).error_code == NONE
    assert wired.fetch(0, epoch=9).error_code == UNKNOWN_LEADER_EPOCH


def test_a_long_poll_waits_its_time_when_nothing_comes(wired):
    started = time.monotonic()
    assert bytes(wired.fetch(0, max_wait_ms=600).records) == b""
    assert 0.5 < time.monotonic() - started < 3


def test_a_long_poll_ends_when_a_record_comes(wired):
    elsewhere = Wired(wired.broker, wired.topic)
    timer = threading.Timer(0.3, lambda: elsewhere.produce(record_batch(b"wake up")))
    timer.start()
    started = time.monotonic()
    found = wired.fetch(0, max_wait_ms=10_000)
    timer.join()
    assert b"wake up" in bytes(found.records)
    assert time.monotonic() - started < 5


def test_a_long_poll_waits_for_min_bytes(wired):
    wired.produce(record_batch(b"small"))
    started = time.monotonic()
    found = wired.fetch(0, max_wait_ms=600, min_bytes=100_000)
    assert b"small" in bytes(found.records) and time.monotonic() - started > 0.5


# -- offsets by time ----------------------------------------------------------------


def test_special_timestamps_find_the_ends_and_the_latest_time(wired):
    wired.produce(record_batch(b"a", b"b", b"c", timestamps=[BASE_TIME, BASE_TIME + 900, BASE_TIME + 100]))
    assert wired.offset_at(-1).offset == 3
    assert wired.offset_at(-2).offset == 0
    latest = wired.offset_at(-3)
    assert (latest.offset, latest.timestamp) == (1, BASE_TIME + 900)
    assert wired.offset_at(-4).offset == 0


def test_time_finds_a_record_inside_its_batch_even_when_times_are_out_of_order(wired):
    wired.produce(record_batch(b"a", b"b", b"c", timestamps=[BASE_TIME, BASE_TIME + 900, BASE_TIME + 100]))
    wired.produce(record_batch(b"d", timestamps=[BASE_TIME + 500]))
    for wanted, offset, timestamp in ((0, 0, 0), (1, 1, 900), (900, 1, 900)):
        found = wired.offset_at(BASE_TIME + wanted)
        assert (found.error_code, found.offset, found.timestamp) == (NONE, offset, BASE_TIME + timestamp)
    nothing = wired.offset_at(BASE_TIME + 901)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (NONE, -1, -1)


def test_deleted_records_move_the_start_and_cannot_be_fetched(wired):
    for number in range(5):
        wired.produce(record_batch(f"{number}".encode()))

    def delete(offset):
        topic = {"name": wired.topic, "partitions": [{"partition_index": 0, "offset": offset}]}
        return wired.wire.send(21, 2, {"topics": [topic], "timeout_ms": 5000}).topics[0].partitions[0]

    assert (delete(3).error_code, delete(3).low_watermark) == (NONE, 3)
    assert delete(99).error_code == OFFSET_OUT_OF_RANGE
    assert wired.fetch(2).error_code == OFFSET_OUT_OF_RANGE
    assert wired.offset_at(-2).offset == 3
    assert (delete(-1).low_watermark, wired.offset_at(-2).offset) == (5, 5)


# -- topics and configs -------------------------------------------------------------


def create(wire: Wire, *topics: dict, validate_only: bool = False):
    return wire.send(19, 7, {"topics": list(topics), "timeout_ms": 10_000, "validate_only": validate_only}).topics


def test_create_topics_refuses_each_mistake_by_its_own_code(wired):
    def code(**topic):
        return create(wired.wire, {"num_partitions": 1, "replication_factor": 1, **topic})[0].error_code

    name = f"{wired.topic}-mistakes"
    assert code(name=wired.topic) == TOPIC_ALREADY_EXISTS
    assert code(name=name, num_partitions=0) == INVALID_PARTITIONS
    assert code(name=name, replication_factor=0) == INVALID_REPLICATION_FACTOR
    assert code(name="..") == INVALID_TOPIC
    assert code(name="x" * 250) == INVALID_TOPIC
    assert code(name=name, configs=[{"name": "retention.mss", "value": "1"}]) == INVALID_CONFIG
    assert code(name=name, configs=[{"name": "retention.ms", "value": None}]) == INVALID_CONFIG
    assignments = [{"partition_index": 0, "broker_ids": [0]}]
    assert code(name=name, assignments=assignments) == INVALID_REQUEST
    assert name not in CLIENT.topics(wired.broker.bootstrap)


def test_create_topics_uses_the_brokers_defaults_for_minus_one(wired):
    (made,) = create(wired.wire, {"name": f"{wired.topic}-defaults", "num_partitions": -1, "replication_factor": -1})
    assert (made.error_code, made.num_partitions, made.replication_factor) == (NONE, 1, 1)
    assert {config.name for config in made.configs} >= {"retention.ms", "cleanup.policy", "max.message.bytes"}


def test_validate_only_checks_and_makes_nothing(wired):
    name = f"{wired.topic}-validated"
    (would,) = create(wired.wire, {"name": name, "num_partitions": 3, "replication_factor": 1}, validate_only=True)
    assert (would.error_code, would.num_partitions) == (NONE, 3)
    assert name not in CLIENT.topics(wired.broker.bootstrap)


def test_names_that_differ_by_dot_and_underscore_collide(wired):
    (made,) = create(wired.wire, {"name": f"{wired.topic}.a_b", "num_partitions": 1, "replication_factor": 1})
    assert made.error_code == NONE
    (refused,) = create(wired.wire, {"name": f"{wired.topic}_a.b", "num_partitions": 1, "replication_factor": 1})
    assert refused.error_code == INVALID_TOPIC


def test_a_topic_made_again_has_a_new_id_and_starts_at_zero(wired):
    def topic_id():
        return (
            wired.wire.send(3, 12, {"topics": [{"name": wired.topic}], "allow_auto_topic_creation": False})
            .topics[0]
            .topic_id
        )

    old = topic_id()
    wired.produce(record_batch(b"old"))
    CLIENT.delete_topic(wired.broker.bootstrap, wired.topic)
    wait_until(lambda: wired.topic not in CLIENT.topics(wired.broker.bootstrap), 10, "the topic gone")
    CLIENT.create_topic(wired.broker.bootstrap, wired.topic)
    wait_until(lambda: wired.fetch(0).error_code == NONE, 10, "the topic made again")
    assert topic_id() != old
    assert wired.fetch(0).high_watermark == 0
    assert wired.produce(record_batch(b"new")).base_offset == 0


def test_describe_configs_answers_the_keys_asked_for_with_type_and_source(wired):
    CLIENT.alter_topic_config(wired.broker.bootstrap, wired.topic, {"max.message.bytes": "12345"})
    resource = {
        "resource_type": 2,
        "resource_name": wired.topic,
        "configuration_keys": ["max.message.bytes", "cleanup.policy"],
    }
    (answer,) = wired.wire.send(
        32, 4, {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    ).results
    found = {config.name: config for config in answer.configs}
    assert set(found) == {"max.message.bytes", "cleanup.policy"}
    size, policy = found["max.message.bytes"], found["cleanup.policy"]
    assert (size.value, size.config_source, size.config_type, size.read_only) == ("12345", 1, 3, False)
    assert (policy.value, policy.config_source, policy.config_type) == ("delete", 5, 7)
    assert [synonym.name for synonym in size.synonyms] == ["max.message.bytes", "message.max.bytes"]
    assert size.documentation


def test_describe_configs_of_the_broker_lists_what_tools_read(wired):
    (answer,) = wired.wire.send(
        32, 2, {"resources": [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}]}
    ).results
    names = {config.name for config in answer.configs}
    assert answer.error_code == NONE
    assert {
        "num.partitions",
        "auto.create.topics.enable",
        "message.max.bytes",
        "log.dirs",
        "log.cleanup.policy",
    } <= names


def test_incremental_changes_append_subtract_and_delete(wired):
    def change(operation, name, value):
        resource = {"resource_type": 2, "resource_name": wired.topic}
        resource["configs"] = [{"name": name, "config_operation": operation, "value": value}]
        return wired.wire.send(44, 1, {"resources": [resource]}).responses[0].error_code

    def config():
        return CLIENT.topic_config(wired.broker.bootstrap, wired.topic)

    assert change(2, "cleanup.policy", "compact") == NONE
    wait_until(lambda: config()["cleanup.policy"] == "delete,compact", 5, "both policies")
    assert change(3, "cleanup.policy", "delete") == NONE
    wait_until(lambda: config()["cleanup.policy"] == "compact", 5, "the policy that is left")
    assert change(1, "cleanup.policy", None) == NONE
    wait_until(lambda: config()["cleanup.policy"] == "delete", 5, "the default again")
    assert change(2, "retention.ms", "5") == INVALID_CONFIG
    assert change(0, "retention.mss", "5") == INVALID_CONFIG


def test_a_record_without_a_key_has_no_place_in_a_compacted_topic(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1, {"cleanup.policy": "compact"})
    wired = Wired(broker, topic)
    refused = wired.produce(record_batch(b"a", b"b"))
    assert refused.error_code == INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [0, 1]
    assert wired.produce(record_batch(b"a", key=b"k")).error_code == NONE


def test_partitions_are_added_and_never_taken_away(wired):
    def add(count):
        asked = {"topics": [{"name": wired.topic, "count": count, "assignments": None}], "timeout_ms": 10_000}
        return wired.wire.send(37, 3, asked).results[0].error_code

    wired.produce(record_batch(b"before"))
    assert add(3) == NONE
    wait_until(lambda: CLIENT.topics(wired.broker.bootstrap)[wired.topic] == 3, 10, "three partitions")
    assert add(3) == add(2) == INVALID_PARTITIONS
    assert CLIENT.produce(wired.broker.bootstrap, wired.topic, [Record(b"x", partition=2)]) == [0]
    assert wired.fetch(0).high_watermark == 1
