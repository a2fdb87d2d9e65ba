"""What survives: offsets, groups, producers, configs and retention, over clean restarts and kill -9."""

from __future__ import annotations

import time

import pytest

from harness.clients import BY_NAME, Refused
from harness.process import wait_until
from harness.record import Record
from harness.wire import Wire, record_batch

pytestmark = pytest.mark.weir_only

CLIENT = BY_NAME["confluent-kafka"]


@pytest.fixture(params=("restart", "kill_and_restart"))
def comes_back(request):
    """Stops the broker one way or the other, and starts it again."""
    return lambda broker: getattr(broker, request.param)()


def contents(records: list[Record]) -> list[tuple]:
    return [record.content for record in records]


def test_topics_configs_and_records_survive(comes_back, start_broker, topic):
    broker = start_broker()
    CLIENT.create_topic(broker.bootstrap, topic, 3, {"retention.ms": "1234567"})
    CLIENT.alter_topic_config(broker.bootstrap, topic, {"max.message.bytes": "54321"})
    records = [Record(f"{p}-{i}".encode(), f"k{i}".encode(), partition=p) for p in range(3) for i in range(20)]
    CLIENT.produce(broker.bootstrap, topic, records)
    comes_back(broker)
    config = CLIENT.topic_config(broker.bootstrap, topic)
    assert (config["retention.ms"], config["max.message.bytes"]) == ("1234567", "54321")
    for partition in range(3):
        back = CLIENT.fetch(broker.bootstrap, topic, 20, partition=partition)
        assert contents(back) == contents([record for record in records if record.partition == partition])


def test_committed_offsets_survive(comes_back, start_broker, topic):
    broker = start_broker()
    CLIENT.create_topic(broker.bootstrap, topic)
    CLIENT.produce(broker.bootstrap, topic, [Record(f"{i}".encode()) for i in range(10)])
    member = CLIENT.join(broker.bootstrap, "g", topic)
    member.read(10)
    member.commit()
    member.close()
    comes_back(broker)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"new")])
    member = CLIENT.join(broker.bootstrap, "g", topic)
    assert [record.value for record in member.read(1)] == [b"new"]
    member.close()


def test_a_live_group_goes_on_over_a_restart(comes_back, start_broker, topic):
    broker = start_broker()
    CLIENT.create_topic(broker.bootstrap, topic)
    member = CLIENT.join(broker.bootstrap, "g", topic)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"before")])
    assert member.read(1)[0].value == b"before"
    member.commit()
    comes_back(broker)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"after")])
    assert member.read(1)[0].value == b"after"
    member.commit()
    member.close()


def produce_batch(wire: Wire, topic: str, batch: bytes):
    asked = {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    }
    return wire.send(0, 9, asked).responses[0].partition_responses[0]


@pytest.mark.parametrize("sealed", (False, True), ids=("in-the-tail", "sealed"))
def test_a_producers_retry_after_a_restart_is_still_a_retry(sealed, comes_back, start_broker, topic):
    broker = start_broker()
    CLIENT.create_topic(broker.bootstrap, topic)
    wire = Wire(broker.kafka_port)
    asked = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    producer_id = wire.send(22, 3, asked).producer_id
    batches = [record_batch(b"a", b"b", producer=(producer_id, 0, 2 * n)) for n in range(3)]
    assert [produce_batch(wire, topic, batch).base_offset for batch in batches] == [0, 2, 4]
    if sealed:
        broker.seal(topic)
    comes_back(broker)
    wire = Wire(broker.kafka_port)
    again = produce_batch(wire, topic, batches[2])
    assert (again.error_code, again.base_offset) == (0, 4)
    assert produce_batch(wire, topic, record_batch(b"c", producer=(producer_id, 0, 6))).base_offset == 6
    assert wire.send(22, 3, asked).producer_id != producer_id


def test_a_deleted_topic_stays_deleted(comes_back, start_broker, topic):
    broker = start_broker()
    CLIENT.create_topic(broker.bootstrap, topic)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"x" * 1000) for _ in range(100)])
    broker.seal(topic)
    CLIENT.delete_topic(broker.bootstrap, topic)
    comes_back(broker)
    assert topic not in CLIENT.topics(broker.bootstrap)
    wait_until(lambda: not list((broker.data / "segments").rglob("*.log")), 10, "the segments of the topic removed")


def test_retention_by_time_and_by_size_move_the_log_start(start_broker, topic):
    broker = start_broker({"log.retention.check.interval.ms": "200"})
    by_time, by_size = f"{topic}-time", f"{topic}-size"
    CLIENT.create_topic(broker.bootstrap, by_time, 1, {"retention.ms": "3600000"})
    CLIENT.create_topic(broker.bootstrap, by_size, 1, {"retention.bytes": "30000"})
    now = int(time.time() * 1000)
    CLIENT.produce(broker.bootstrap, by_time, [Record(b"old", timestamp=now - 7_200_000) for _ in range(10)])
    broker.seal(by_time)
    CLIENT.produce(broker.bootstrap, by_time, [Record(b"young", timestamp=now)])
    for _ in range(5):
        CLIENT.produce(broker.bootstrap, by_size, [Record(b"x" * 1000) for _ in range(10)])
        broker.seal(by_size)
    wait_until(lambda: broker.partitions(by_time)[0]["log_start"] == 10, 10, "the old records gone")
    wait_until(lambda: broker.partitions(by_size)[0]["log_start"] == 20, 10, "the oldest bytes gone")
    with pytest.raises(Refused):
        CLIENT.fetch(broker.bootstrap, by_time, 1, start=3, timeout=5)
    assert CLIENT.fetch(broker.bootstrap, by_time, 1, start=10)[0].value == b"young"
    broker.restart()
    assert broker.partitions(by_time)[0]["log_start"] == 10


def test_a_thousand_partitions_come_back_in_seconds(comes_back, start_broker, topic):
    broker = start_broker()
    CLIENT.create_topic(broker.bootstrap, topic, 1000)
    records = [Record(b"x" * 100, partition=p) for p in range(1000)]
    assert CLIENT.produce(broker.bootstrap, topic, records) == [0] * 1000
    started = time.monotonic()
    comes_back(broker)
    print(f"1,000 partitions back after {time.monotonic() - started:.2f} s, with the stop")
    assert CLIENT.produce(broker.bootstrap, topic, records) == [1] * 1000
    assert not list((broker.data / "segments").rglob("*.log")), "quiet partitions make no files"
