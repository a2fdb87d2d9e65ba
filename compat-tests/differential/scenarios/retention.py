"""Compaction and retention (S-73, S-66, S-42, S-54)."""

from __future__ import annotations

import time

from .. import batch
from ..batch import BASE_TIME, Row
from ..scenario import scenario
from ..transactional import Producer

# A topic that compacts within a second when something new comes.
SOON = {
    "cleanup__policy": "compact",
    "segment__ms": 100,
    "min__cleanable__dirty__ratio": 0.01,
    "max__compaction__lag__ms": 200,
    "delete__retention__ms": 60_000,
}


def put(t, topic, *pairs: tuple[str, str | None], **more) -> None:
    rows = [Row(None if value is None else value.encode(), key.encode(), time=now()) for key, value in pairs]
    t.append(topic, *rows, **more)


def now() -> int:
    return int(time.time() * 1000)


def rows(t, topic, isolation: int = 0) -> list[list]:
    """(offset, key, value) of every record up to the end, as a consumer walks there."""
    found, offset, end = [], t.offsets(topic)[0], t.offsets(topic)[1]
    while offset < end:
        shown = batch.show(t.fetch(topic, offset, isolation=isolation)["records"])
        if not shown:
            raise AssertionError(f"nothing at {offset} of {end}")
        for one in shown:
            if one["attributes"] & batch.CONTROL:
                continue
            found += [
                [record["offset"], record["key"], record["value"]]
                for record in one["records"]
                if record["offset"] >= offset
            ]
        offset = shown[-1]["offsets"][1] + 1
    return found


def roll(t, topic) -> None:
    """Something new, so that what is before may be compacted."""
    time.sleep(0.15)
    put(t, topic, (f"roll-{now()}", "x"))


def compacted(t, topic, keys: dict[str, str], what: str = "compaction") -> list[list]:
    """Wait until each of these keys has one record, that one; the records of these keys."""

    def done():
        mine = [row for row in rows(t, topic) if row[1].decode() in keys]
        if len(mine) == len(keys) and all(row[2] == (keys[row[1].decode()] or "").encode() for row in mine):
            return mine
        roll(t, topic)
        return None

    return t.until(what, done, timeout=25, pause=0.3)


@scenario("S-73 S-66", bugs=(22, 45))
def latest_row_of_each_key_stays(t):
    topic = t.topic(**SOON)
    put(t, topic, ("a", "1"), ("b", "1"), ("a", "2"))
    put(t, topic, ("b", "2"), ("c", "1"))
    put(t, topic, ("a", "3"))
    t.see("rows", compacted(t, topic, {"a": "3", "b": "2", "c": "1"}))


@scenario("S-73 S-54", bugs=(33, 37))
def offsets_of_compacted_batches_stay(t):
    topic = t.topic(**SOON)
    put(t, topic, ("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("c", "1"))
    put(t, topic, ("c", "2"))
    compacted(t, topic, {"a": "2", "b": "2", "c": "2"})
    shown = batch.show(t.fetch(topic, 0)["records"])
    t.see("first batch", [shown[0]["offsets"], [record["offset"] for record in shown[0]["records"]]])
    t.see("earliest", t.offsets(topic)[0])
    t.see("fetch in a gap", batch.show(t.fetch(topic, 1)["records"])[0]["offsets"])


@scenario("S-73")
def tombstone_stays_for_its_time(t):
    topic = t.topic(**SOON)
    put(t, topic, ("a", "1"), ("b", "1"))
    put(t, topic, ("a", None))

    def gone():
        mine = [row for row in rows(t, topic) if row[1] in (b"a", b"b")]
        if len(mine) == 2:
            return mine
        roll(t, topic)
        return None

    t.see("rows", t.until("compaction", gone, timeout=25, pause=0.3))


@scenario("S-73")
def tombstone_goes_after_its_time(t):
    topic = t.topic(**{**SOON, "delete__retention__ms": 100})
    put(t, topic, ("a", "1"), ("b", "1"))
    put(t, topic, ("a", None))

    def gone():
        mine = [row for row in rows(t, topic) if row[1] in (b"a", b"b")]
        if len(mine) == 1:
            return mine
        roll(t, topic)
        return None

    t.see("rows", t.until("the tombstone gone", gone, timeout=40, pause=0.3))


@scenario("S-73")
def minimum_lag_protects(t):
    topic = t.topic(**{**SOON, "min__compaction__lag__ms": 60_000, "max__compaction__lag__ms": 120_000})
    put(t, topic, ("a", "1"), ("a", "2"))
    for _ in range(4):
        roll(t, topic)
        time.sleep(0.4)
    t.see("rows", [row for row in rows(t, topic) if row[1] == b"a"])


@scenario("S-73 S-42")
def compaction_keeps_the_producers_sequence(t):
    topic = t.topic(**SOON)
    pid = t.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)["producer_id"]
    put(t, topic, ("a", "1"), producer=(pid, 0, 0))
    put(t, topic, ("a", "2"))
    compacted(t, topic, {"a": "2"})
    again = batch.make(Row(b"9", b"z", time=now()), producer=(pid, 0, 5))
    t.see_error("a gap", t.produce(topic, again)["error_code"])
    following = batch.make(Row(b"9", b"z", time=now()), producer=(pid, 0, 1))
    t.see_error("the next", t.produce(topic, following)["error_code"])


@scenario("S-73 S-53", bugs=(1, 33, 52))
def compaction_and_aborted_rows(t):
    topic, producer = t.topic(**SOON), Producer(t).begin()
    put(t, topic, ("a", "1"))
    producer.add((topic, 0))
    producer.send(topic, Row(b"2", b"a", time=now()))
    producer.end(False)
    producer.settled(topic, 3)
    put(t, topic, ("b", "1"), ("b", "2"))
    compacted(t, topic, {"a": "1", "b": "2"})
    t.see("read committed", [row for row in rows(t, topic, 1) if row[1] in (b"a", b"b")])


@scenario("S-73 S-66")
def compaction_keeps_headers_and_times(t):
    topic = t.topic(**SOON)
    stamp = BASE_TIME + 5
    t.append(
        topic,
        Row(b"1", b"a", time=BASE_TIME),
        Row(b"2", b"a", ((b"h", b"1"), (b"h", None)), time=stamp),
        codec=batch.GZIP,
    )
    compacted(t, topic, {"a": "2"})
    first = batch.show(t.fetch(topic, 0)["records"])[0]
    t.see("record", first["records"])
    t.see("codec", first["attributes"])


@scenario("S-66 S-50")
def retention_by_time(t):
    topic = t.topic(retention__ms=1000, segment__ms=200)
    t.append(topic, Row(b"old", time=BASE_TIME))
    t.until("it deleted", lambda: t.offsets(topic)[0] == 1)
    t.see("offsets", t.offsets(topic))
    t.see("fetch", t.fetch(topic, 0))
    t.see("next", t.append(topic, Row(b"new", time=now())))


@scenario("S-66")
def retention_by_time_spares_the_young(t):
    topic = t.topic(retention__ms=3_600_000, segment__ms=200)
    t.append(topic, Row(b"young", time=now()))
    time.sleep(1.0)
    t.see("offsets", t.offsets(topic))


@scenario("S-66")
def retention_by_size(t):
    topic = t.topic(retention__bytes=2_000_000, segment__bytes=1_048_576, max__message__bytes=700_000)
    for _ in range(8):
        t.append(topic, b"x" * 600_000)
    t.until("the oldest deleted", lambda: t.offsets(topic)[0] > 0)
    begin, end = t.offsets(topic)
    t.see("end", end)
    t.see("kept at least the limit", (end - begin) * 600_000 >= 2_000_000)


@scenario("S-66 S-73")
def compact_and_delete_together(t):
    # Compaction itself is put off: it would merge the young into the old, which then outlive their time.
    later = {
        "min__cleanable__dirty__ratio": 0.99,
        "min__compaction__lag__ms": 60_000,
        "max__compaction__lag__ms": 120_000,
    }
    topic = t.topic(**{**SOON, **later, "cleanup__policy": "compact,delete", "retention__ms": 1500})
    t.append(topic, Row(b"1", b"a", time=BASE_TIME), Row(b"1", b"b", time=BASE_TIME))
    roll(t, topic)
    t.until("the first deleted", lambda: t.offsets(topic)[0] >= 2)
    t.see("first is gone", t.fetch(topic, 0)["error_code"])


@scenario("S-66 S-73", bugs=(45,))
def compacted_topic_keeps_what_is_old(t):
    topic = t.topic(**{**SOON, "retention__ms": 500})
    t.append(topic, Row(b"1", b"a", time=BASE_TIME))
    time.sleep(1.2)
    t.see("offsets", t.offsets(topic))
    t.see("rows", rows(t, topic))


@scenario("S-69 S-73")
def policy_changes_to_compact(t):
    topic = t.topic(**{**SOON, "cleanup__policy": "delete"})
    put(t, topic, ("a", "1"), ("a", "2"))
    rows_ = [{"name": "cleanup.policy", "config_operation": 0, "value": "compact"}]
    answer = t.call(
        "IncrementalAlterConfigs",
        1,
        resources=[{"resource_type": 2, "resource_name": topic.name, "configs": rows_}],
    )
    t.see("change", answer["responses"][0]["error_code"])
    t.see("rows", compacted(t, topic, {"a": "2"}))
