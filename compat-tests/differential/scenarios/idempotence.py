"""Idempotent producers: ids, epochs, sequences, duplicates (S-39 to S-43, S-94)."""

from __future__ import annotations

from .. import batch
from ..scenario import scenario

LAST = 0x7FFFFFFF


def new_id(t, version: int = 4) -> int:
    answer = t.call("InitProducerId", version, transactional_id=None, transaction_timeout_ms=1000)
    if answer["error_code"]:
        raise AssertionError(f"InitProducerId answered {answer['error_code']}")
    return answer["producer_id"]


def send(t, topic, pid: int, sequence: int, *rows, epoch: int = 0, version: int = 9, **more) -> dict:
    return t.produce(topic, batch.make(*(rows or (b"v",)), producer=(pid, epoch, sequence), **more), version=version)


@scenario("S-94", bugs=(40,))
def producer_id_at_every_version(t):
    for version in range(6):
        t.ask(f"v{version}", "InitProducerId", version, transactional_id=None, transaction_timeout_ms=1000)


@scenario("S-94")
def producer_ids_differ(t):
    t.see("three", len({new_id(t) for _ in range(3)}))


@scenario("S-94")
def producer_id_with_odd_values(t):
    t.ask("timeout 0", "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0)
    t.ask("timeout -1", "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=-1)
    pid = new_id(t)
    t.ask(
        "id and epoch",
        "InitProducerId",
        4,
        transactional_id=None,
        transaction_timeout_ms=1000,
        producer_id=pid,
        producer_epoch=0,
    )
    t.ask("id alone", "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000, producer_id=pid)
    t.ask("epoch alone", "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000, producer_epoch=3)
    t.ask("empty transactional id", "InitProducerId", 4, transactional_id="", transaction_timeout_ms=1000)


@scenario("S-39", bugs=(14, 15))
def repeated_batch_is_answered_with_its_first_offset(t):
    topic, pid = t.topic(), new_id(t)
    t.append(topic, b"before")
    for version in (3, 7, 9, 12):
        topic2 = t.topic(f"v{version}")
        t.append(topic2, b"before")
        t.see(f"v{version} first", send(t, topic2, pid, 0, b"a", b"b", version=version))
        t.see(f"v{version} again", send(t, topic2, pid, 0, b"a", b"b", version=version))
        t.see(f"v{version} offsets", t.offsets(topic2))


@scenario("S-39", bugs=(14, 15))
def five_batches_are_remembered(t):
    topic, pid = t.topic(), new_id(t)
    for sequence in range(7):
        send(t, topic, pid, sequence)
    for sequence in (6, 5, 4, 3, 2, 1, 0):
        t.see(f"again {sequence}", send(t, topic, pid, sequence))
    t.see("offsets", t.offsets(topic))


@scenario("S-39")
def repeated_batch_that_is_longer_or_shorter(t):
    topic, pid = t.topic(), new_id(t)
    t.see("first", send(t, topic, pid, 0, b"a", b"b"))
    t.see("shorter", send(t, topic, pid, 0, b"a"))
    t.see("longer", send(t, topic, pid, 0, b"a", b"b", b"c"))
    t.see("overlapping", send(t, topic, pid, 1, b"b", b"c"))


@scenario("S-39 S-33")
def repeated_batch_with_log_append_time(t):
    topic, pid = t.topic(message__timestamp__type="LogAppendTime"), new_id(t)
    first = send(t, topic, pid, 0)
    again = send(t, topic, pid, 0)
    t.see("same time", first["log_append_time_ms"] == again["log_append_time_ms"])
    t.see("answers", [first, again])


@scenario("S-40")
def sequence_that_leaves_a_gap(t):
    topic, pid = t.topic(), new_id(t)
    t.see("first", send(t, topic, pid, 0))
    for version in (7, 9):
        t.see(f"gap v{version}", send(t, topic, pid, 5, version=version))
    t.see("next", send(t, topic, pid, 1))


@scenario("S-40")
def epochs(t):
    topic, pid = t.topic(), new_id(t)
    t.see("first", send(t, topic, pid, 0, epoch=2))
    for version in (7, 9):
        t.see(f"older v{version}", send(t, topic, pid, 1, epoch=1, version=version))
    t.see("newer, not from 0", send(t, topic, pid, 1, epoch=3))
    t.see("newer from 0", send(t, topic, pid, 0, epoch=3))
    t.see("the old one", send(t, topic, pid, 1, epoch=2))


@scenario("S-40")
def sequence_wraps(t):
    topic, pid = t.topic(), new_id(t)
    t.see("near the end", send(t, topic, pid, LAST - 1, b"a"))
    t.see("over the end", send(t, topic, pid, LAST, b"a", b"b", b"c"))
    t.see("after", send(t, topic, pid, 2))
    t.see("again", send(t, topic, pid, LAST, b"a", b"b", b"c"))


@scenario("S-41", bugs=(13,))
def producer_without_state_may_begin_anywhere(t):
    topic, pid = t.topic(), new_id(t)
    t.see("sequence 42", send(t, topic, pid, 42))
    t.see("next", send(t, topic, pid, 43))


@scenario("S-41 S-63", bugs=(13,))
def producer_whose_records_were_deleted_goes_on(t):
    topic, pid = t.topic(), new_id(t)
    send(t, topic, pid, 0)
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": -1}]}]
    t.call("DeleteRecords", 2, timeout_ms=5000, topics=topics)
    t.see("next", send(t, topic, pid, 1))
    t.see("the one before", send(t, topic, pid, 0))


@scenario("S-39")
def producers_do_not_disturb_each_other(t):
    topic, first, second = t.topic(partitions=2), new_id(t), new_id(t)
    t.see("first", send(t, topic, first, 0))
    t.see("second", send(t, topic, second, 0))
    t.see("first again", send(t, topic, first, 1))
    t.see("other partition", t.produce(topic, batch.make(b"a", producer=(first, 0, 0)), partition=1))


@scenario("S-40")
def sequence_and_epoch_that_are_negative(t):
    topic, pid = t.topic(), new_id(t)
    t.see("sequence -1", send(t, topic, pid, -1))
    t.see("epoch -1", send(t, topic, pid, 0, epoch=-1))
    t.see("sequence -5", send(t, topic, pid, -5))


@scenario("S-41")
def producer_id_nobody_gave(t):
    topic = t.topic()
    t.see("answer", send(t, topic, 987654321, 0))


@scenario("S-39 S-31")
def repeated_batch_in_another_codec(t):
    topic, pid = t.topic(), new_id(t)
    t.see("plain", send(t, topic, pid, 0))
    t.see("gzip", send(t, topic, pid, 0, codec=batch.GZIP))
    t.see("offsets", t.offsets(topic))


@scenario("S-39 S-42 S-46")
def batches_keep_their_producer(t):
    topic, pid = t.topic(), new_id(t)
    send(t, topic, pid, 0, b"a", b"b")
    t.see("fetched", t.fetch(topic))


@scenario("S-39")
def pipelined_batches_are_all_taken(t):
    topic, pid = t.topic(), new_id(t)
    conn = t.connect()
    for sequence in range(5):
        part = {"index": 0, "records": batch.make(b"v", producer=(pid, 0, sequence))}
        conn.send("Produce", 9, acks=-1, timeout_ms=5000, topic_data=[{"name": topic.name, "partition_data": [part]}])
    answers = []
    for number in range(5):
        answer = conn.receive("Produce", 9, correlation=number + 1)
        answers.append(answer["responses"][0]["partition_responses"][0])
    t.see("answers", [[answer["error_code"], answer["base_offset"]] for answer in answers])
