"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords (S-59 to S-63)."""

from __future__ import annotations

from ..batch import BASE_TIME, GZIP, ZSTD, Row
from ..scenario import scenario


def at(t, topic, timestamp: int, version: int = 7, partition: int = 0, isolation: int = 0, **part) -> dict:
    parts = [{"partition_index": partition, "timestamp": timestamp, **part}]
    answer = t.call(
        "ListOffsets", version, isolation_level=isolation, topics=[{"name": topic.name, "partitions": parts}]
    )
    return answer["topics"][0]["partitions"][0]


def row(time: int, value: bytes = b"v") -> Row:
    return Row(value, time=BASE_TIME + time)


@scenario("S-59 S-61")
def latest_and_earliest_at_every_version(t):
    topic = t.topic()
    t.append(topic, b"a", b"b")
    for version in range(1, 11):
        for timestamp in (-1, -2):
            t.see(f"v{version} {timestamp}", at(t, topic, timestamp, version))


@scenario("S-59")
def special_timestamps_by_version(t):
    topic = t.topic()
    t.append(topic, row(5), row(3))
    for timestamp, versions in (
        (-3, (6, 7, 8)),
        (-4, (7, 8, 9)),
        (-5, (8, 9, 10)),
        (-6, (10,)),
        (-7, (10,)),
        (-100, (7,)),
    ):
        for version in versions:
            t.see(f"{timestamp} v{version}", at(t, topic, timestamp, version))


@scenario("S-59")
def version_11(t):
    topic = t.topic()
    t.append(topic, row(5), row(3))
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, BASE_TIME + 4):
        t.see("T+4" if timestamp > 0 else f"{timestamp}", at(t, topic, timestamp, 11))


@scenario("S-59", bugs=(5,))
def offset_of_the_largest_timestamp(t):
    topic = t.topic()
    t.see("empty", at(t, topic, -3))
    t.append(topic, row(10), row(30), row(20))
    t.see("in the middle", at(t, topic, -3))
    t.append(topic, row(5), row(30))
    t.see("the first of equals", at(t, topic, -3))
    t.append(topic, row(7), row(40), codec=GZIP)
    t.see("in a compressed batch", at(t, topic, -3))


@scenario("S-60", bugs=(3, 36))
def first_record_at_or_after_a_timestamp(t):
    topic = t.topic()
    t.append(topic, row(10), row(20), row(30))
    t.append(topic, row(40), row(50), codec=ZSTD)
    for stamp in (0, 10, 11, 20, 25, 30, 31, 45, 50):
        t.see(f"T+{stamp}", at(t, topic, BASE_TIME + stamp))


@scenario("S-60", bugs=(4,))
def no_record_at_or_after_a_timestamp(t):
    topic = t.topic()
    t.see("empty topic", at(t, topic, BASE_TIME))
    t.append(topic, row(10))
    for version in (1, 4, 7, 10):
        t.see(f"v{version}", at(t, topic, BASE_TIME + 11, version))
    t.see("far future", at(t, topic, 0x7FFFFFFFFFFFFFFF))


@scenario("S-60", bugs=(3,))
def timestamps_out_of_order(t):
    topic = t.topic()
    t.append(topic, row(50), row(10), row(40))
    t.append(topic, row(20), row(60))
    for stamp in (5, 15, 45, 51, 55, 60, 61):
        t.see(f"T+{stamp}", at(t, topic, BASE_TIME + stamp))


@scenario("S-60")
def timestamp_zero_is_a_timestamp(t):
    topic = t.topic()
    t.append(topic, row(10))
    t.see("0", at(t, topic, 0))


@scenario("S-60 S-59")
def log_append_time_is_searched(t):
    topic = t.topic(message__timestamp__type="LogAppendTime")
    t.append(topic, Row(b"a", time=1000), Row(b"b", time=2000))
    t.see("from 0", at(t, topic, 0))
    t.see("largest", at(t, topic, -3))


@scenario("S-59", bugs=(6,))
def isolation_without_transactions(t):
    topic = t.topic()
    t.append(topic, b"a")
    for isolation in (0, 1):
        t.see(f"isolation {isolation}", at(t, topic, -1, 2, isolation=isolation))


@scenario("S-61")
def unknown_topic_and_partition(t):
    topic = t.topic()
    for version in (1, 4, 7):
        t.see(f"v{version} partition", at(t, topic, -1, version, partition=4))
        parts = [{"partition_index": 0, "timestamp": -1}]
        t.ask(f"v{version} topic", "ListOffsets", version, topics=[{"name": t.name("nowhere"), "partitions": parts}])


@scenario("S-61")
def same_partition_twice(t):
    topic = t.topic()
    parts = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    t.ask("answer", "ListOffsets", 7, topics=[{"name": topic.name, "partitions": parts}])


@scenario("S-23 S-51 S-61")
def leader_epoch_is_checked(t):
    topic = t.topic()
    t.append(topic, b"a")
    for epoch in (-1, 0, 1):
        t.see(f"epoch {epoch}", at(t, topic, -1, current_leader_epoch=epoch))


@scenario("S-61")
def leader_epoch_of_the_answer(t):
    topic = t.topic()
    for timestamp in (-1, -2, -3, BASE_TIME):
        t.see(f"empty {'T' if timestamp > 0 else timestamp}", at(t, topic, timestamp))
    t.append(topic, b"a")
    for timestamp in (-1, -2, -3, BASE_TIME):
        t.see(f"one record {'T' if timestamp > 0 else timestamp}", at(t, topic, timestamp))


@scenario("S-62")
def offset_for_leader_epoch(t):
    topic = t.topic()
    t.append(topic, b"a", b"b")
    for version in (2, 3, 4):
        for epoch, current in ((0, 0), (0, -1), (1, -1), (-1, -1), (0, 1), (7, 0)):
            parts = [{"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}]
            answer = t.call(
                "OffsetForLeaderEpoch", version, replica_id=-1, topics=[{"topic": topic.name, "partitions": parts}]
            )
            t.see(f"v{version} epoch {epoch} current {current}", answer["topics"])


@scenario("S-62")
def offset_for_leader_epoch_of_the_unknown(t):
    topic = t.topic()
    parts = [{"partition": index, "leader_epoch": 0} for index in (0, 8)]
    topics = [{"topic": topic.name, "partitions": parts}, {"topic": t.name("nowhere"), "partitions": parts[:1]}]
    t.ask("answer", "OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)


@scenario("S-62")
def offset_for_leader_epoch_of_an_empty_log(t):
    topic = t.topic()
    parts = [{"partition": 0, "leader_epoch": 0}]
    t.ask("answer", "OffsetForLeaderEpoch", 4, replica_id=-1, topics=[{"topic": topic.name, "partitions": parts}])


def delete(t, topic, offset: int, version: int = 2, partition: int = 0) -> dict:
    topics = [{"name": topic.name, "partitions": [{"partition_index": partition, "offset": offset}]}]
    return t.call("DeleteRecords", version, timeout_ms=5000, topics=topics)


@scenario("S-63")
def delete_records_moves_the_log_start(t):
    topic = t.topic()
    t.append(topic, b"a", b"b", b"c", b"d")
    for version, offset in ((0, 1), (1, 2), (2, 2), (2, 1), (2, 0)):
        t.see(f"v{version} to {offset}", delete(t, topic, offset, version))
        t.see(f"v{version} to {offset}: offsets", t.offsets(topic))
    t.see("to the end", delete(t, topic, -1))
    t.see("offsets", t.offsets(topic))


@scenario("S-63")
def delete_records_out_of_range(t):
    topic = t.topic()
    t.append(topic, b"a")
    for offset in (2, 100, -2):
        t.see(f"to {offset}", delete(t, topic, offset))
    t.see("unknown partition", delete(t, topic, 0, partition=5))
    topics = [{"name": t.name("nowhere"), "partitions": [{"partition_index": 0, "offset": 0}]}]
    t.ask("unknown topic", "DeleteRecords", 2, timeout_ms=5000, topics=topics)


@scenario("S-63 S-73")
def delete_records_of_a_compacted_topic(t):
    for policy in ("compact", "compact,delete"):
        topic = t.topic(policy.replace(",", "-"), cleanup__policy=policy)
        t.append(topic, Row(b"a", b"k"))
        t.see(policy, delete(t, topic, 1))


@scenario("S-63 S-47")
def delete_records_into_a_batch(t):
    topic = t.topic()
    t.append(topic, b"a", b"b", b"c")
    t.see("answer", delete(t, topic, 1))
    t.see("below", t.fetch(topic, 0))
    t.see("at the start", t.fetch(topic, 1))
    t.see("earliest", at(t, topic, -2))
    t.see("by time", at(t, topic, BASE_TIME))
