"""Fetch: waiting, sizes, offsets, sessions (S-47 to S-58)."""

from __future__ import annotations

import threading
import time
import uuid

from .. import batch
from ..batch import GZIP, ZSTD, Row
from ..scenario import scenario


def timed(t, label: str, topic, least: float, most: float, **how) -> dict:
    """Fetch, and note whether it took as long as it should."""
    begun = time.monotonic()
    found = t.fetch(topic, **how)
    took = time.monotonic() - begun
    t.see(f"{label}: waited as it should", least <= took <= most)
    return found


def session(t, version: int = 11, on=None, topics=(), **values) -> dict:
    values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **values}
    return t.call("Fetch", version, on, topics=list(topics), **values)


def part(topic, *partitions: int, offset: int = 0, **more) -> dict:
    parts = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **more} for index in partitions
    ]
    return {"topic": topic.name, "topic_id": topic.id, "partitions": parts}


@scenario("S-52 S-57", bugs=(2, 31, 49, 51))
def answer_at_every_version(t):
    topic = t.topic()
    t.append(topic, b"a", b"b")
    for version in range(4, 18):
        t.see(f"v{version}", t.fetch(topic, version=version))
        t.see(f"v{version} at the end", t.fetch(topic, 2, version=version))


@scenario("S-52 S-57")
def whole_answers_of_old_and_new_versions(t):
    topic = t.topic()
    t.append(topic, b"a")
    for version in (4, 7, 11, 12, 13, 16, 17):
        t.see(f"v{version}", session(t, version, topics=[part(topic, 0)], session_epoch=-1))


@scenario("S-47", bugs=(35, 50))
def offset_in_the_middle_of_a_batch_returns_the_whole_batch(t):
    topic = t.topic()
    t.append(topic, b"a", b"b", b"c")
    t.append(topic, b"d", b"e", codec=GZIP)
    for offset in range(6):
        t.see(f"offset {offset}", t.fetch(topic, offset))


@scenario("S-48")
def first_batch_comes_whole_however_small_the_limits(t):
    topic = t.topic()
    t.append(topic, b"a" * 500)
    t.append(topic, b"b" * 500)
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0}, {"partition_max_bytes": 0}):
        found = t.fetch(topic, **limits)
        t.see(f"{limits}", [one["offsets"] for one in batch.show(found["records"])])


@scenario("S-48")
def partition_limit_cuts_at_a_batch(t):
    topic = t.topic()
    for value in (b"a", b"b", b"c", b"d"):
        t.append(topic, value * 500)
    size = len(batch.make(b"a" * 500))
    for limit in (size - 1, size, size + 1, 2 * size, 3 * size - 1, 10 * size):
        found = t.fetch(topic, partition_max_bytes=limit)
        t.see(f"limit {limit - size:+d}", [one["offsets"] for one in batch.show(found["records"])])


@scenario("S-48")
def space_of_the_request_is_shared_in_order(t):
    topic = t.topic(partitions=3)
    for index in range(3):
        t.append(topic, b"a" * 500, partition=index)
        t.append(topic, b"b" * 500, partition=index)
    size = len(batch.make(b"a" * 500))
    for limit in (1, size, 2 * size, 3 * size, 5 * size):
        answer = session(t, topics=[part(topic, 2, 0, 1)], session_epoch=-1, max_bytes=limit)
        counts = {
            one["partition_index"]: len(batch.split(one["records"])) for one in answer["responses"][0]["partitions"]
        }
        t.see(f"limit {limit}", [counts.get(index) for index in (2, 0, 1)])


@scenario("S-49", bugs=(7,))
def long_poll_waits_and_then_answers_empty(t):
    topic = t.topic()
    for version in (4, 11, 13):
        t.see(f"v{version}", timed(t, f"v{version}", topic, 0.45, 3, max_wait_ms=500, version=version))


@scenario("S-49", bugs=(7,))
def long_poll_ends_when_data_comes(t):
    topic = t.topic()
    timer = threading.Timer(0.4, lambda: t.produce(topic, batch.make(b"a"), on=other))
    other = t.connect()
    _ = t.wire
    timer.start()
    t.see("found", timed(t, "data", topic, 0.3, 6, max_wait_ms=8000))
    timer.join()


@scenario("S-49")
def min_bytes_is_waited_for(t):
    topic = t.topic()
    t.append(topic, b"a" * 100)
    size = len(batch.make(b"a" * 100))
    t.see("enough", timed(t, "enough", topic, 0, 2, max_wait_ms=4000, min_bytes=size)["high_watermark"])
    found = timed(t, "one more", topic, 0.55, 3, max_wait_ms=600, min_bytes=size + 1)
    t.see("still answers what there is", len(batch.split(found["records"])))


@scenario("S-49")
def no_wait_asked(t):
    topic = t.topic()
    for wait, least in ((0, 0), (-1, 0)):
        t.see(f"wait {wait}", timed(t, f"wait {wait}", topic, least, 2, max_wait_ms=wait, min_bytes=1000))
    t.see("min bytes 0", timed(t, "min bytes 0", topic, 0, 2, max_wait_ms=4000, min_bytes=0)["error_code"])


@scenario("S-49")
def error_in_one_partition_answers_at_once(t):
    topic = t.topic()
    begun = time.monotonic()
    answer = session(t, topics=[part(topic, 0, 5)], session_epoch=-1, max_wait_ms=5000)
    t.see("at once", time.monotonic() - begun < 2)
    t.see("answer", answer["responses"])


@scenario("S-49", bugs=(8,))
def full_partition_answers_though_min_bytes_is_not_met(t):
    topic = t.topic()
    for _ in range(3):
        t.append(topic, b"a" * 500)
    found = timed(t, "full", topic, 0, 6, max_wait_ms=1000, min_bytes=100_000, partition_max_bytes=600)
    t.see("batches", len(batch.split(found["records"])))


@scenario("S-49")
def request_without_partitions_answers_at_once(t):
    begun = time.monotonic()
    t.see("answer", session(t, session_epoch=-1, max_wait_ms=5000))
    t.see("at once", time.monotonic() - begun < 2)


@scenario("S-50")
def offset_out_of_range(t):
    topic = t.topic()
    t.append(topic, b"a", b"b")
    for version in (4, 5, 11, 12, 13, 16):
        for offset in (3, 100, -1):
            t.see(f"v{version} offset {offset}", t.fetch(topic, offset, version=version))


@scenario("S-50 S-63")
def offset_below_the_log_start(t):
    topic = t.topic()
    t.append(topic, b"a")
    t.append(topic, b"b")
    t.append(topic, b"c")
    deleted = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 2}]}]
    t.ask("delete", "DeleteRecords", 2, timeout_ms=5000, topics=deleted)
    for offset in (0, 1, 2, 3):
        t.see(f"offset {offset}", t.fetch(topic, offset))


@scenario("S-51 S-23", bugs=(59,))
def leader_epoch_of_the_request_is_checked(t):
    topic = t.topic()
    t.append(topic, b"a")
    for version in (9, 11, 12, 13, 16):
        for epoch in (-1, 0, 1):
            t.see(f"v{version} epoch {epoch}", t.fetch(topic, version=version, current_leader_epoch=epoch))


@scenario("S-51")
def last_fetched_epoch_that_the_log_does_not_have(t):
    topic = t.topic()
    t.append(topic, b"a")
    for epoch in (-1, 0, 5):
        found = t.fetch(topic, 1, version=12, current_leader_epoch=0, last_fetched_epoch=epoch)
        t.see(f"epoch {epoch}", found)


@scenario("S-56 S-30")
def unknown_topic_and_partition(t):
    topic = t.topic()
    for version in (4, 11, 12):
        t.see(f"v{version} partition", t.fetch(topic, partition=9, version=version))
        nowhere = {"topic": t.name("nowhere"), "partitions": part(topic, 0)["partitions"]}
        t.see(f"v{version} topic", session(t, version, topics=[nowhere], session_epoch=-1)["responses"])


@scenario("S-56")
def unknown_topic_id(t):
    topic = t.topic()
    for version in (13, 16):
        for topic_id in (uuid.UUID(int=0xABC), uuid.UUID(int=0)):
            nowhere = {**part(topic, 0), "topic_id": topic_id}
            t.see(f"v{version} {topic_id.int}", session(t, version, topics=[nowhere], session_epoch=-1)["responses"])
        t.see(f"v{version} partition", t.fetch(topic, partition=9, version=version))


@scenario("S-56 S-22")
def id_of_a_topic_that_was_made_again(t):
    topic = t.topic()
    t.append(topic, b"old")
    t.call("DeleteTopics", 5, topic_names=[topic.name], timeout_ms=5000)
    t.until(
        "it gone",
        lambda: t.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": None}])["topics"][0]["error_code"],
    )
    again = t.topic()
    t.see("old id", t.fetch(topic, version=13))
    t.see("new id", t.fetch(again, version=13))
    t.see("name", t.fetch(again, version=11))


@scenario("S-53", bugs=(2,))
def aborted_list_by_isolation_without_transactions(t):
    topic = t.topic()
    t.append(topic, b"a")
    for version in (4, 11, 13):
        for isolation in (0, 1):
            found = t.fetch(topic, version=version, isolation=isolation)
            t.see(f"v{version} isolation {isolation}", found["aborted_transactions"])


@scenario("S-58")
def zstd_below_version_10(t):
    topic = t.topic()
    t.append(topic, b"a", codec=ZSTD)
    for version in (4, 9, 10, 11):
        t.see(f"v{version}", t.fetch(topic, version=version))


@scenario("S-58")
def zstd_topic_below_version_10(t):
    topic = t.topic(compression__type="zstd")
    t.append(topic, b"a")
    for version in (9, 10):
        t.see(f"v{version}", t.fetch(topic, version=version))


# -- sessions -------------------------------------------------------------------


@scenario("S-55")
def session_is_opened_and_answers_only_what_changed(t):
    topic = t.topic(partitions=2)
    t.append(topic, b"a")
    conn = t.connect()
    first = session(t, on=conn, topics=[part(topic, 0, 1)], session_epoch=0)
    t.see("opened", first)
    number = first["session_id"]
    for epoch in (1, 2):
        answer = session(
            t, on=conn, topics=[part(topic, 0, offset=1)] if epoch == 1 else [], session_id=number, session_epoch=epoch
        )
        t.see(f"epoch {epoch}", answer)
    t.append(topic, b"b", partition=1)
    t.see("after a record", session(t, on=conn, session_id=number, session_epoch=3))


@scenario("S-55")
def session_with_topic_ids(t):
    topic = t.topic()
    t.append(topic, b"a")
    first = session(t, 13, topics=[part(topic, 0)], session_epoch=0)
    t.see("opened", first)
    t.see("by name", session(t, 12, topics=[part(topic, 0)], session_id=first["session_id"], session_epoch=1))


@scenario("S-55")
def session_epoch_and_id_that_are_wrong(t):
    topic = t.topic()
    number = session(t, topics=[part(topic, 0)], session_epoch=0)["session_id"]
    t.see("epoch too large", session(t, topics=[], session_id=number, session_epoch=9))
    t.see("unknown id", session(t, topics=[], session_id=123456789, session_epoch=1))
    t.see("epoch right", session(t, topics=[], session_id=number, session_epoch=1)["error_code"])


@scenario("S-55")
def session_is_closed(t):
    topic = t.topic()
    number = session(t, topics=[part(topic, 0)], session_epoch=0)["session_id"]
    t.see("closed", session(t, topics=[part(topic, 0)], session_id=number, session_epoch=-1))
    t.see("used after", session(t, topics=[], session_id=number, session_epoch=1))


@scenario("S-55")
def session_forgets_partitions(t):
    topic = t.topic(partitions=2)
    number = session(t, topics=[part(topic, 0, 1)], session_epoch=0)["session_id"]
    forgotten = [{"topic": topic.name, "partitions": [1]}]
    t.see("forgot", session(t, session_id=number, session_epoch=1, forgotten_topics_data=forgotten))
    t.append(topic, b"a", partition=1)
    t.append(topic, b"b", partition=0)
    t.see("only the other", session(t, session_id=number, session_epoch=2)["responses"])


@scenario("S-55")
def session_is_replaced_by_a_full_fetch(t):
    topic = t.topic()
    number = session(t, topics=[part(topic, 0)], session_epoch=0)["session_id"]
    again = session(t, topics=[part(topic, 0)], session_id=number, session_epoch=0)
    t.see("new id", again["session_id"] not in (0, number))
    t.see("old one", session(t, session_id=number, session_epoch=1)["error_code"])


@scenario("S-55")
def session_long_poll_ends_when_data_comes(t):
    topic = t.topic()
    number = session(t, topics=[part(topic, 0)], session_epoch=0)["session_id"]
    other = t.connect()
    timer = threading.Timer(0.4, lambda: t.produce(topic, batch.make(b"a"), on=other))
    timer.start()
    begun = time.monotonic()
    answer = session(t, session_id=number, session_epoch=1, max_wait_ms=8000)
    timer.join()
    t.see("in time", time.monotonic() - begun < 6)
    t.see("answer", answer["responses"])


@scenario("S-55")
def session_shows_a_deleted_topic(t):
    topic, other = t.topic("a"), t.topic("b")
    number = session(t, topics=[part(topic, 0), part(other, 0)], session_epoch=0)["session_id"]
    t.call("DeleteTopics", 5, topic_names=[topic.name], timeout_ms=5000)
    t.until(
        "it gone",
        lambda: (
            t.call("Metadata", 9, topics=[{"name": topic.name}], allow_auto_topic_creation=False)["topics"][0][
                "error_code"
            ]
            == 3
        ),
    )
    t.see("answer", session(t, session_id=number, session_epoch=1)["responses"])


@scenario("S-48")
def same_partition_twice_in_one_request(t):
    topic = t.topic()
    t.append(topic, b"a")
    answer = session(t, topics=[part(topic, 0, 0)], session_epoch=-1)
    t.see("partitions", [len(found["partitions"]) for found in answer["responses"]])


@scenario("S-57")
def rack_does_not_move_the_reader(t):
    topic = t.topic()
    t.append(topic, b"a")
    answer = session(t, 11, topics=[part(topic, 0)], session_epoch=-1, rack_id="elsewhere")
    t.see("answer", answer["responses"])


@scenario("S-48 S-28")
def negative_limits(t):
    topic = t.topic()
    t.append(topic, b"a")
    t.see("partition", t.fetch(topic, partition_max_bytes=-1))
    t.see("request", t.fetch(topic, max_bytes=-1))


@scenario("S-50 S-46")
def replica_ids_that_no_consumer_has(t):
    topic = t.topic()
    t.append(topic, b"a")
    for replica in (-1, -2, 7):
        answer = session(t, 11, topics=[part(topic, 0)], session_epoch=-1, replica_id=replica)
        t.see(f"replica {replica}", answer["responses"])


@scenario("S-47 S-37", bugs=(28,))
def many_batches_have_continuous_offsets(t):
    topic = t.topic()
    for count in (1, 3, 2, 5):
        t.append(topic, *([b"v"] * count))
    shown = batch.show(t.fetch(topic)["records"])
    t.see("offsets", [one["offsets"] for one in shown])
    t.see("records", [record["offset"] for one in shown for record in one["records"]])


@scenario("S-38")
def large_record_comes_whole(t):
    topic = t.topic()
    value = bytes(range(256)) * 3900
    t.append(topic, Row(value))
    found = t.fetch(topic, max_bytes=4096, partition_max_bytes=4096)
    shown = batch.show(found["records"])
    t.see("same", [record["value"] == value for one in shown for record in one["records"]])
