"""Log compaction, with stock clients, on Weir and (`--peer kafka`) on Apache Kafka.

Kafka only rolls a segment when something is appended, so every wait writes a record of a key of its own, which is left
out of what is compared.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from conftest import SHARED_SETTINGS, start_server
from kafka import KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from harness.process import wait_until
from harness.wire import Wire

NUDGE = b"~nudge"
EAGER = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(scope="module")
def cleaning(request, tmp_path_factory):
    """A broker whose cleaner looks often."""
    settings = {**SHARED_SETTINGS, "log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "300"}
    server = start_server(request.config, tmp_path_factory.mktemp("cleaning"), settings)
    yield server
    server.stop()


def make(server, topic: str, configs: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(20)


def producer(server, **options) -> Producer:
    return Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0, **options})


def produce(sender: Producer, topic: str, key: bytes | None, value: bytes | None) -> int:
    """Sends one record and answers its offset."""
    sent = []
    sender.produce(
        topic, key=key, value=value, partition=0, on_delivery=lambda error, message: sent.append((error, message))
    )
    sender.flush(20)
    ((error, message),) = sent
    assert error is None, error
    return message.offset()


def read(server, topic: str, start: int = 0) -> list[tuple[int, bytes, bytes | None]]:
    """Every record from `start` to the end, as a consumer gets them that reads up to the end offset."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        place = TopicPartition(topic, 0, start)
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        consumer.assign([place])
        records, deadline = [], time.monotonic() + 20
        # Before the first record a consumer has no position, which is a negative one.
        while (at := max(consumer.position([place])[0].offset, start)) < end:
            assert time.monotonic() < deadline, f"the reader is stuck at {at} of {end}"
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                records.append((message.offset(), message.key(), message.value()))
        return [record for record in records if record[1] != NUDGE]
    finally:
        consumer.close()


def wait_for(server, topic: str, done, what: str, timeout: float = 60) -> list:
    """Nudges the log until `done(records)`."""
    sender = producer(server)

    def look():
        produce(sender, topic, NUDGE, b"")
        time.sleep(0.5)
        records = read(server, topic)
        return (records,) if done(records) else None

    (records,) = wait_until(look, timeout, what, pause=0.05)
    return records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_newest_record_of_each_key_stays_where_it_was(cleaning, topic, codec):
    make(cleaning, topic, EAGER)
    sender = producer(cleaning, **{"compression.type": codec, "linger.ms": 50})
    offsets = {}

    def note(error, message):
        assert error is None, error
        offsets[message.key()] = (message.offset(), message.value())

    for round_ in range(20):
        for key in range(10):
            sender.produce(topic, key=b"k%d" % key, value=b"%d of %d" % (key, round_), partition=0, on_delivery=note)
        sender.flush(20)
    records = wait_for(cleaning, topic, lambda records: len(records) == 10, "200 records to become 10")
    assert records == sorted((offset, key, value) for key, (offset, value) in offsets.items())
    # A consumer whose position was compacted away goes on behind the gap.
    assert read(cleaning, topic, 3) == records
    assert read(cleaning, topic, records[4][0]) == records[4:]


def test_a_tombstone_is_seen_and_then_gone(cleaning, topic):
    make(cleaning, topic, {**EAGER, "delete.retention.ms": "4000"})
    sender = producer(cleaning)
    produce(sender, topic, b"gone", b"1")
    kept = produce(sender, topic, b"kept", b"1")
    tombstone = produce(sender, topic, b"gone", None)
    both = [(kept, b"kept", b"1"), (tombstone, b"gone", None)]
    wait_for(cleaning, topic, lambda records: records == both, "the deleted value to go")
    wait_for(cleaning, topic, lambda records: records == both[:1], "the tombstone to go")


def test_what_is_younger_than_the_lag_stays(cleaning, topic):
    make(cleaning, topic, {**EAGER, "min.compaction.lag.ms": "3600000"})
    make(cleaning, f"{topic}-other", EAGER)
    sender = producer(cleaning)
    for name in (topic, f"{topic}-other"):
        for value in (b"1", b"2", b"3"):
            produce(sender, name, b"k", value)
    wait_for(cleaning, f"{topic}-other", lambda records: len(records) == 1, "the topic without a lag to be compacted")
    assert [value for _, _, value in read(cleaning, topic)] == [b"1", b"2", b"3"]


def test_no_record_waits_longer_than_the_maximal_lag(cleaning, topic):
    make(
        cleaning, topic, {"cleanup.policy": "compact", "max.compaction.lag.ms": "500", "min.cleanable.dirty.ratio": "1"}
    )
    sender = producer(cleaning)
    for value in (b"1", b"2", b"3"):
        produce(sender, topic, b"k", value)
    wait_for(
        cleaning, topic, lambda records: [value for *_, value in records] == [b"3"], "the lag to have it compacted"
    )


def test_compact_and_delete_do_both(cleaning, topic):
    make(cleaning, topic, {**EAGER, "cleanup.policy": "compact,delete", "retention.ms": "6000"})
    sender = producer(cleaning)
    produce(sender, topic, b"a", b"1")
    last = produce(sender, topic, b"a", b"2")
    wait_for(cleaning, topic, lambda records: records == [(last, b"a", b"2")], "compaction")

    # Compaction joins segments, and retention goes by the newest record of one: nothing more is written now.
    wait_until(lambda: log_start(cleaning, topic) > last, 60, "retention to take what is old", pause=0.2)


def log_start(server, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "reader"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[0]
    finally:
        consumer.close()


def test_a_record_without_a_key_is_refused(cleaning, topic):
    make(cleaning, topic, {"cleanup.policy": "compact"})
    errors = []
    sender = producer(cleaning)
    sender.produce(topic, value=b"no key", partition=0, on_delivery=lambda error, _: errors.append(error))
    sender.flush(20)
    assert errors[0].code() == KafkaError.INVALID_RECORD
    python = KafkaProducer(bootstrap_servers=cleaning.bootstrap)
    with pytest.raises(PythonKafkaError) as refused:
        python.send(topic, value=b"no key").get(20)
    python.close()
    assert "InvalidRecord" in type(refused.value).__name__
    # Each bad record is named.
    from kafka.record.default_records import DefaultRecordBatchBuilder

    batch = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=9999,
    )
    for offset, key in enumerate([b"a", None, b"c", None]):
        batch.append(offset, timestamp=int(time.time() * 1000), key=key, value=b"v", headers=[])
    answer = Wire(cleaning.kafka_port).send(
        0,
        8,
        {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch.build())}]}],
        },
    )
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == 87
    assert [error.batch_index for error in partition.record_errors] == [1, 3]
    assert read(cleaning, topic) == []


def test_a_producer_goes_on_after_its_records_were_compacted_away(cleaning, topic):
    make(cleaning, topic, EAGER)
    sender = producer(cleaning, **{"enable.idempotence": True})
    for value in range(10):
        produce(sender, topic, b"k", b"%d" % value)
    last = produce(sender, topic, b"k", b"last")
    wait_for(cleaning, topic, lambda records: records == [(last, b"k", b"last")], "compaction")
    cleaning.stop()
    cleaning.start()
    offset = produce(sender, topic, b"k", b"after")
    assert read(cleaning, topic)[-1] == (offset, b"k", b"after")


def test_records_of_a_compacted_topic_cannot_be_deleted_by_offset(cleaning, topic):
    make(cleaning, topic, {"cleanup.policy": "compact"})
    produce(producer(cleaning), topic, b"k", b"v")
    admin = AdminClient({"bootstrap.servers": cleaning.bootstrap})
    with pytest.raises(Exception) as refused:
        list(admin.delete_records([TopicPartition(topic, 0, 1)]).values())[0].result(20)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION


def test_a_reader_gets_to_the_end_over_a_log_that_is_only_gaps(cleaning, topic):
    make(cleaning, topic, {**EAGER, "delete.retention.ms": "100"})
    sender = producer(cleaning)
    for key in range(5):
        produce(sender, topic, b"k%d" % key, b"1")
    for key in range(5):
        produce(sender, topic, b"k%d" % key, None)
    wait_for(cleaning, topic, lambda records: records == [], "all keys to go")
    for start in range(10):
        assert read(cleaning, topic, start) == []
