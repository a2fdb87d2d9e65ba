"""Produce: what is stored, what is refused and how it is said (S-26 to S-38)."""

from __future__ import annotations

import time
import uuid

from .. import batch
from ..batch import GZIP, LZ4, SNAPPY, ZSTD, Row
from ..connection import Closed, NoAnswer
from ..scenario import scenario

HOUR_MS = 3_600_000


def now() -> int:
    return int(time.time() * 1000)


def refused(t, label: str, records: bytes | None, topic=None, versions=(3, 7, 8, 9, 12)) -> None:
    topic = topic or t.topic(f"t-{label.replace(' ', '-')}")
    for version in versions:
        t.see(f"{label} v{version}", t.produce(topic, records, version=version))
    t.see(f"{label}: offsets", t.offsets(topic))


@scenario("S-33", bugs=(28,))
def answer_at_every_version(t):
    topic = t.topic()
    for version in range(3, 14):
        t.see(f"v{version}", t.produce(topic, batch.make(b"a", b"b"), version=version))
    t.see("offsets", t.offsets(topic))


@scenario("S-26")
def no_records(t):
    refused(t, "empty", b"")


@scenario("S-26")
def records_that_are_null(t):
    topic = t.topic()
    for version in (7, 9):
        conn = t.connect()
        part = {"index": 0, "records": None}
        conn.send(
            "Produce", version, acks=-1, timeout_ms=1000, topic_data=[{"name": topic.name, "partition_data": [part]}]
        )
        try:
            t.see(f"v{version}", conn.receive("Produce", version, patience=1.5))
        except (Closed, NoAnswer) as outcome:
            t.see(f"v{version}", type(outcome).__name__)


@scenario("S-26")
def two_batches_in_one_partition(t):
    refused(t, "two", batch.make(b"a") + batch.make(b"b"))


@scenario("S-26")
def batch_without_records(t):
    refused(t, "empty batch", batch.make())


@scenario("S-26", bugs=(54,))
def old_magic(t):
    for magic in (0, 1, 3):
        refused(t, f"magic {magic}", batch.make(b"a", magic=magic), versions=(7, 9))


@scenario("S-27")
def crc_is_wrong(t):
    refused(t, "crc", batch.make(b"a", crc=1))


@scenario("S-27")
def batch_length_is_wrong(t):
    good = batch.make(b"a")
    for label, length in (
        ("longer", len(good) - 12 + 5),
        ("shorter", len(good) - 12 - 3),
        ("tiny", 10),
        ("negative", -1),
    ):
        refused(t, label, batch.make(b"a", length=length), versions=(9,))


@scenario("S-27")
def bytes_that_are_no_batch(t):
    refused(t, "short", b"abc", versions=(9,))
    refused(t, "noise", b"\x7f" * 80, versions=(9,))


@scenario("S-28", bugs=(50,))
def batch_larger_than_the_topic_allows(t):
    topic = t.topic(max__message__bytes=1000)
    fits = 1000 - len(batch.make(b""))
    refused(t, "larger", batch.make(b"x" * 1000), topic, versions=(3, 8, 9))
    exact = batch.make(b"x" * (fits - 4))
    t.see("size", len(exact) <= 1000)
    t.see("at the limit", t.produce(topic, batch.make(b"x" * (fits - 2))))
    t.see("one more", t.produce(topic, batch.make(b"x" * (fits - 1))))


@scenario("S-28")
def limit_is_on_the_compressed_batch(t):
    topic = t.topic(max__message__bytes=1000)
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        t.see(f"codec {codec}", t.produce(topic, batch.make(b"x" * 5000, codec=codec)))


@scenario("S-29")
def acks_of_every_value(t):
    topic = t.topic()
    for acks in (1, -1, 2, -2, 100):
        t.see(f"acks {acks}", t.produce(topic, batch.make(b"a"), acks=acks))
    t.see("offsets", t.offsets(topic))


@scenario("S-29")
def bad_acks_are_said_for_every_partition(t):
    topic = t.topic(partitions=2)
    parts = [{"index": index, "records": batch.make(b"a")} for index in (0, 1, 7)]
    t.ask("answer", "Produce", 9, acks=5, timeout_ms=1000, topic_data=[{"name": topic.name, "partition_data": parts}])


@scenario("S-29")
def acks_zero_that_fails_closes(t):
    topic = t.topic()
    for label, name, records in (
        ("unknown topic", t.name("nowhere"), batch.make(b"a")),
        ("wrong crc", topic.name, batch.make(b"a", crc=1)),
        ("two batches", topic.name, batch.make(b"a") * 2),
    ):
        conn = t.connect()
        part = {"index": 0, "records": records}
        conn.send("Produce", 7, acks=0, timeout_ms=1000, topic_data=[{"name": name, "partition_data": [part]}])
        t.see(label, conn.state(2))


@scenario("S-29")
def min_insync_replicas_above_the_replicas(t):
    topic = t.topic(min__insync__replicas=2)
    for acks in (-1, 1):
        t.see(f"acks {acks}", t.produce(topic, batch.make(b"a"), acks=acks))


@scenario("S-30")
def unknown_topic_and_partition(t):
    topic = t.topic()
    for version in (3, 7, 8, 9, 12):
        t.see(f"partition v{version}", t.produce(topic, batch.make(b"a"), partition=5, version=version))
        parts = [{"index": 0, "records": batch.make(b"a")}]
        t.ask(
            f"topic v{version}",
            "Produce",
            version,
            acks=-1,
            timeout_ms=1000,
            topic_data=[{"name": t.name("nowhere"), "partition_data": parts}],
        )
    answer = t.call("Metadata", 12, topics=[{"name": t.name("nowhere")}], allow_auto_topic_creation=False)
    t.see("created", answer["topics"][0]["error_code"] == 0)


@scenario("S-30")
def unknown_topic_id(t):
    parts = [{"index": 0, "records": batch.make(b"a")}]
    for topic_id in (uuid.UUID(int=0xABC), uuid.UUID(int=0)):
        t.ask(
            f"id {topic_id.int}",
            "Produce",
            13,
            acks=-1,
            timeout_ms=1000,
            topic_data=[{"topic_id": topic_id, "partition_data": parts}],
        )


@scenario("S-30")
def negative_partition(t):
    topic = t.topic()
    t.see("answer", t.produce(topic, batch.make(b"a"), partition=-1))


@scenario("S-31")
def every_codec_is_stored_as_it_came(t):
    topic = t.topic()
    sent = [batch.make(b"a" * 50, b"b" * 50, codec=codec) for codec in (0, GZIP, SNAPPY, LZ4, ZSTD)]
    for codec, records in enumerate(sent):
        t.see(f"codec {codec}", t.produce(topic, records))
    found = batch.split(t.fetch(topic)["records"])
    t.see("same bytes from the CRC on", [one[17:] == other[17:] for one, other in zip(sent, found)])
    t.see("fetched", t.fetch(topic))


@scenario("S-31")
def zstd_needs_version_7(t):
    topic = t.topic()
    for version in (3, 6, 7):
        t.see(f"v{version}", t.produce(topic, batch.make(b"a", codec=ZSTD), version=version))


@scenario("S-31")
def codecs_that_do_not_exist(t):
    for codec in (5, 6, 7):
        refused(t, f"codec {codec}", batch.make(b"a", codec=codec), versions=(9,))


@scenario("S-31 S-27")
def payload_that_does_not_decompress(t):
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        refused(t, f"codec {codec}", batch.make(b"a", codec=codec, payload=b"not compressed at all"), versions=(9,))


@scenario("S-31")
def topic_with_a_codec_of_its_own_recompresses(t):
    topic = t.topic(compression__type="gzip")
    t.see("plain", t.produce(topic, batch.make(b"a" * 100)))
    t.see("zstd", t.produce(topic, batch.make(b"a" * 100, codec=ZSTD)))
    t.see("fetched", t.fetch(topic))


@scenario("S-31")
def topic_that_stores_uncompressed(t):
    topic = t.topic(compression__type="uncompressed")
    t.see("gzip", t.produce(topic, batch.make(b"a" * 100, codec=GZIP)))
    t.see("fetched", t.fetch(topic))


@scenario("S-32", bugs=(37,))
def only_base_offset_and_leader_epoch_are_written_by_the_broker(t):
    topic = t.topic()
    t.append(topic, b"x")
    sent = batch.make(b"a", b"b", epoch=5)
    t.see("answer", t.produce(topic, sent))
    found = batch.split(t.fetch(topic, 1)["records"])[0]
    t.see("rest is the same", found[16:] == sent[16:])
    t.see("fetched", t.fetch(topic, 1))


@scenario("S-32")
def base_offset_that_is_not_zero(t):
    refused(t, "77", batch.make(b"a", base_offset=77), versions=(7, 9))


@scenario("S-33 S-32")
def log_append_time(t):
    topic = t.topic(message__timestamp__type="LogAppendTime")
    t.see("answer", t.produce(topic, batch.make(Row(b"a", time=1000), Row(b"b", time=2000))))
    t.see("compressed", t.produce(topic, batch.make(Row(b"c", time=1000), codec=GZIP)))
    fetched = t.fetch(topic)
    shown = batch.show(fetched["records"])
    t.see("attributes", [one["attributes"] for one in shown])
    t.see("max timestamps", [one["max_timestamp"] for one in shown])
    t.see("crc", ["crc" in one for one in shown])


@scenario("S-33")
def producer_may_not_set_the_timestamp_type(t):
    refused(t, "bit", batch.make(b"a", attributes=batch.TIMESTAMP_TYPE), versions=(7, 9))


@scenario("S-34")
def offset_deltas_out_of_order(t):
    for label, deltas in (("gap", (0, 2)), ("repeated", (0, 0)), ("backwards", (1, 0)), ("from one", (1, 2))):
        refused(t, label, batch.make(*(Row(b"a", delta=delta) for delta in deltas)), versions=(9,))


@scenario("S-34")
def last_offset_delta_is_wrong(t):
    for delta in (0, 5, -1):
        refused(t, f"delta {delta}", batch.make(b"a", b"b", last_delta=delta), versions=(9,))


@scenario("S-34")
def record_count_is_wrong(t):
    for count in (1, 3, 0, -1, 0x7FFFFFFF):
        refused(t, f"count {count}", batch.make(b"a", b"b", count=count), versions=(9,))


@scenario("S-34")
def record_length_is_wrong(t):
    for length in (3, 50, -1, 0):
        refused(t, f"length {length}", batch.make(Row(b"abc", length=length)), versions=(9,))


@scenario("S-34")
def bytes_left_after_the_last_record(t):
    good = batch.make(b"a")
    refused(t, "left", batch.make(b"a", payload=good[61:] + b"zzz"), versions=(9,))


@scenario("S-34", bugs=(50,))
def record_without_a_key_on_a_compacted_topic(t):
    topic = t.topic(cleanup__policy="compact")
    rows = (Row(b"a", b"k"), Row(b"b"), Row(b"c", b"k"), Row(b"d"))
    refused(t, "keyless", batch.make(*rows), topic, versions=(3, 7, 8, 9, 12))
    t.see("keyed", t.produce(topic, batch.make(Row(b"a", b"k"))))
    t.see("empty key", t.produce(topic, batch.make(Row(b"a", b""))))
    t.see("compressed", t.produce(topic, batch.make(*rows, codec=GZIP)))


@scenario("S-34")
def timestamp_too_far_ahead(t):
    topic = t.topic()
    rows = (Row(b"a", time=now()), Row(b"b", time=now() + 2 * HOUR_MS), Row(b"c", time=now() + 3 * HOUR_MS))
    for version in (3, 7, 8, 9):
        t.see(f"v{version}", t.produce(topic, batch.make(*rows), version=version))
    t.see("half an hour ahead", t.produce(topic, batch.make(Row(b"a", time=now() + HOUR_MS // 2))))
    t.see("offsets", t.offsets(topic))


@scenario("S-34")
def timestamp_too_far_behind(t):
    topic = t.topic(message__timestamp__before__max__ms=HOUR_MS)
    rows = (Row(b"a", time=now()), Row(b"b", time=now() - 2 * HOUR_MS))
    for version in (7, 9):
        t.see(f"v{version}", t.produce(topic, batch.make(*rows), version=version))
    t.see("within", t.produce(topic, batch.make(Row(b"a", time=now() - HOUR_MS // 2))))


@scenario("S-34")
def timestamp_bounds_count_for_compressed_batches_too(t):
    topic = t.topic()
    rows = (Row(b"a", time=now()), Row(b"b", time=now() + 2 * HOUR_MS))
    for codec in (GZIP, ZSTD):
        t.see(f"codec {codec}", t.produce(topic, batch.make(*rows, codec=codec)))


@scenario("S-34")
def negative_timestamps(t):
    topic = t.topic(retention__ms=-1)
    for stamp in (-1, -2, 0):
        t.see(f"{stamp}", t.produce(topic, batch.make(Row(b"a", time=stamp))))
    t.see("fetched", t.fetch(topic))


@scenario("S-34")
def max_timestamp_that_the_records_do_not_have(t):
    topic = t.topic()
    t.see("answer", t.produce(topic, batch.make(b"a", max_time=batch.BASE_TIME + 5)))
    t.see("fetched", t.fetch(topic))


@scenario("S-35")
def control_batch_from_a_client(t):
    refused(t, "control", batch.make(Row(b"\0\0\0\0\0\0", b"\0\0\0\1"), attributes=batch.CONTROL), versions=(7, 9))


@scenario("S-35 S-43")
def transactional_batch_without_a_transactional_id(t):
    topic = t.topic()
    records = batch.make(b"a", attributes=batch.TRANSACTIONAL, producer=(5, 0, 0))
    for version in (7, 9, 11, 12):
        t.see(f"v{version}", t.produce(topic, records, version=version))


@scenario("S-35")
def producing_to_an_internal_topic(t):
    t.coordinator(t.name("g"))
    for name in ("__consumer_offsets",):
        parts = [{"index": 0, "records": batch.make(Row(b"a", b"k"))}]
        answer = t.call("Produce", 9, acks=-1, timeout_ms=1000, topic_data=[{"name": name, "partition_data": parts}])
        t.see(name, answer["responses"])


@scenario("S-36")
def partitions_fail_one_by_one(t):
    topic, other = t.topic("a", partitions=2), t.topic("b")
    parts = [
        {"index": 0, "records": batch.make(b"a")},
        {"index": 1, "records": batch.make(b"a", crc=3)},
        {"index": 9, "records": batch.make(b"a")},
    ]
    t.ask(
        "answer",
        "Produce",
        9,
        acks=-1,
        timeout_ms=5000,
        topic_data=[
            {"name": topic.name, "partition_data": parts},
            {"name": t.name("nowhere"), "partition_data": parts[:1]},
            {"name": other.name, "partition_data": parts[:1]},
        ],
    )
    t.see("offsets", [t.offsets(topic, 0), t.offsets(topic, 1), t.offsets(other)])


@scenario("S-36")
def same_partition_twice_in_one_request(t):
    topic = t.topic()
    part = {"index": 0, "records": batch.make(b"a")}
    conn = t.connect()
    conn.send("Produce", 9, acks=-1, timeout_ms=5000, topic_data=[{"name": topic.name, "partition_data": [part, part]}])
    try:
        t.see("answer", conn.receive("Produce", 9))
    except Closed:
        t.see("answer", "closed")


@scenario("S-36")
def request_without_topics(t):
    t.ask("answer", "Produce", 9, acks=-1, timeout_ms=1000, topic_data=[])


@scenario("S-38", bugs=(60,))
def nulls_empties_and_headers_survive(t):
    topic = t.topic()
    rows = (
        Row(None, None),
        Row(b"", b""),
        Row(None, b"k"),
        Row(b"v", None, ((b"a", b"1"), (b"b", None), (b"a", b"2"), (b"a", b""), (b"", b"x"))),
        Row(b"\xff\x00", b"\x00\xff", ((b"z", b"\xff"),)),
    )
    for codec in (0, GZIP, ZSTD):
        t.append(topic, *rows, codec=codec)
    t.see("fetched", t.fetch(topic))


@scenario("S-34")
def header_that_is_wrong(t):
    good = batch.make(Row(b"v", b"k", ((b"a", b"1"),)))[61:]
    # The header count is the varint after the value: say that there are more, and a negative number.
    at = good.index(b"\x02v") + 2
    for label, count in (("more", b"\x0a"), ("negative", b"\x01")):
        refused(t, label, batch.make(Row(b"v", b"k"), payload=good[:at] + count + good[at + 1 :]), versions=(9,))


@scenario("S-34")
def record_attributes_are_kept(t):
    topic = t.topic()
    t.see("answer", t.produce(topic, batch.make(Row(b"a", attributes=3))))
    t.see("fetched", t.fetch(topic)["records"] is not None)


@scenario("S-33 S-57", bugs=(31,))
def log_start_offset_is_filled_in(t):
    topic = t.topic()
    t.append(topic, b"a", b"b", b"c")
    t.ask(
        "delete",
        "DeleteRecords",
        2,
        timeout_ms=5000,
        topics=[{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 2}]}],
    )
    t.see("produce", t.produce(topic, batch.make(b"d")))
    t.see("fetch", t.fetch(topic, 3))


@scenario("S-37 S-33")
def hints_of_version_10_are_absent_without_a_reason(t):
    topic = t.topic()
    part = {"index": 0, "records": batch.make(b"a")}
    for version in (10, 11, 12):
        answer = t.call(
            "Produce", version, acks=-1, timeout_ms=1000, topic_data=[{"name": topic.name, "partition_data": [part]}]
        )
        t.see(f"v{version}", sorted(answer))


@scenario("S-27")
def unused_attribute_bits(t):
    for bit in (0x40, 0x80, 0x4000):
        topic = t.topic(f"bit-{bit}")
        t.see(f"bit {bit:#x}", t.produce(topic, batch.make(b"a", attributes=bit)))
        t.see(f"bit {bit:#x} offsets", t.offsets(topic))
