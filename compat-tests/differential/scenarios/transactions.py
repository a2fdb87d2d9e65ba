"""Transactions: coordinator and data path, both versions of the protocol (S-43 to S-46, S-53, S-54, S-94 to S-100)."""

from __future__ import annotations

import time

from .. import batch
from ..members import Member, commit, committed
from ..scenario import scenario
from ..transactional import Producer

READ_COMMITTED = 1


def not_in_transaction(answer: dict) -> dict:
    """From version 11 on Kafka answers one of two errors, now this one and now the other."""
    either = answer["error_code"] in (48, 120)
    return {"base_offset": answer["base_offset"], "error_code": "one of the two" if either else answer["error_code"]}


def seen(t, topic, isolation: int = READ_COMMITTED, offset: int = 0, version: int = 11) -> dict:
    return t.fetch(topic, offset, isolation=isolation, version=version)


# -- ids and epochs ---------------------------------------------------------------


@scenario("S-94", bugs=(50,))
def init_at_every_version(t):
    for version in range(6):
        producer = Producer(t, f"tx{version}").begin(version)
        t.see(f"v{version} first", producer.identity())
        t.see(f"v{version} again", producer.begin(version).identity())


@scenario("S-94", bugs=(50,))
def init_with_bad_values(t):
    producer = Producer(t).begin()
    for timeout in (0, -1, 900_000, 900_001):
        t.see(f"timeout {timeout}", Producer(t, f"tx{timeout}").ask_id(transaction_timeout_ms=timeout))
    t.see("empty id", producer.ask_id(transactional_id=""))
    t.see("id without epoch", producer.ask_id(producer_id=producer.id))
    t.see("epoch without id", producer.ask_id(producer_epoch=0))


@scenario("S-94", bugs=(38,))
def init_with_an_epoch_that_is_fenced(t):
    old = Producer(t).begin()
    first = old.identity()
    Producer(t).begin()
    new = Producer(t).begin()
    for version in (3, 4, 5):
        t.see(f"v{version} old epoch", old.ask_id(version, **first))
    t.see("current", new.ask_id(4, **new.identity()))
    t.see("once more, as a retry", new.ask_id(4, **new.identity()))
    t.see("another id", new.ask_id(4, producer_id=new.id + 1_000_000, producer_epoch=0))


@scenario("S-94")
def init_aborts_what_was_open(t):
    topic, old = t.topic(), Producer(t).begin()
    old.add((topic, 0))
    old.send(topic, b"a")
    new = Producer(t)
    t.see("first answer", new.ask_id())
    new.begin()
    new.settled(topic, 2)
    t.see("epoch moved", new.epoch > old.epoch)
    t.see("read committed", seen(t, topic))
    t.see_error("old one", old.send(topic, b"b")["error_code"])


# -- one transaction --------------------------------------------------------------


@scenario("S-43 S-45 S-46 S-96", bugs=(37,))
def commit_of_one_partition(t):
    topic, producer = t.topic(), Producer(t).begin()
    t.see("add", producer.add((topic, 0)))
    t.see("produce", producer.send(topic, b"a", b"b"))
    t.see("open: latest", [t.offsets(topic), t.offsets(topic, isolation=1)])
    t.see("open: read uncommitted", seen(t, topic, 0))
    t.see("open: read committed", seen(t, topic))
    t.see("commit", producer.end(True))
    producer.settled(topic, 3)
    t.see("read uncommitted", seen(t, topic, 0))
    t.see("read committed", seen(t, topic))


@scenario("S-53 S-46", bugs=(1, 2, 34))
def abort_of_one_partition(t):
    topic, producer = t.topic(), Producer(t).begin()
    t.append(topic, b"before")
    producer.run(topic, b"a", b"b", commit=False)
    t.append(topic, b"after")
    for version in (4, 11, 13):
        for isolation in (0, 1):
            t.see(f"v{version} isolation {isolation}", seen(t, topic, isolation, version=version))


@scenario("S-53", bugs=(1, 2, 34, 62))
def aborted_list_of_several_producers(t):
    topic, first, second = t.topic(), Producer(t, "a").begin(), Producer(t, "b").begin()
    first.add((topic, 0)), second.add((topic, 0))
    first.send(topic, b"a1")
    second.send(topic, b"b1")
    first.send(topic, b"a2")
    second.end(False)
    t.until("b's marker", lambda: t.offsets(topic)[1] == 4)
    t.see("a open: latest", [t.offsets(topic), t.offsets(topic, isolation=1)])
    first.end(False)
    first.settled(topic, 5)
    t.see("from 0", seen(t, topic)["aborted_transactions"])
    for offset in range(6):
        t.see(f"from {offset}", seen(t, topic, offset=offset))


@scenario("S-53 S-49")
def aborted_list_goes_only_as_far_as_the_data(t):
    topic, producer = t.topic(), Producer(t).begin()
    for _ in range(3):
        producer.run(topic, b"x" * 300, commit=False)
    found = t.fetch(topic, isolation=1, partition_max_bytes=400)
    t.see("batches", len(batch.split(found["records"])))
    t.see("aborted", found["aborted_transactions"])


@scenario("S-45", bugs=(6, 39))
def open_transaction_holds_the_last_stable_offset(t):
    topic, producer = t.topic(), Producer(t).begin()
    t.append(topic, b"a")
    producer.add((topic, 0))
    producer.send(topic, b"b")
    t.append(topic, b"c")
    t.see("latest", [t.offsets(topic), t.offsets(topic, isolation=1)])
    t.see("read committed", seen(t, topic))
    t.see("from the last stable offset", seen(t, topic, offset=1))
    t.see("beyond it", seen(t, topic, offset=2))
    for isolation in (0, 1):
        parts = [{"partition_index": 0, "timestamp": batch.BASE_TIME}]
        answer = t.call("ListOffsets", 7, isolation_level=isolation, topics=[{"name": topic.name, "partitions": parts}])
        t.see(f"by time, isolation {isolation}", answer["topics"][0]["partitions"][0])
    producer.end(True)
    producer.settled(topic, 4)
    t.see("then", [t.offsets(topic), t.offsets(topic, isolation=1)])


@scenario("S-45 S-60")
def largest_timestamp_and_open_transactions(t):
    topic, producer = t.topic(), Producer(t).begin()
    t.append(topic, batch.Row(b"a", time=batch.BASE_TIME + 5))
    producer.add((topic, 0))
    producer.send(topic, batch.Row(b"b", time=batch.BASE_TIME + 9))
    for isolation in (0, 1):
        parts = [{"partition_index": 0, "timestamp": -3}]
        answer = t.call("ListOffsets", 7, isolation_level=isolation, topics=[{"name": topic.name, "partitions": parts}])
        t.see(f"isolation {isolation}", answer["topics"][0]["partitions"][0])
    producer.end(False)


@scenario("S-54", bugs=(33, 37, 52))
def control_batches_are_returned(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.run(topic, b"a", commit=True)
    for isolation in (0, 1):
        t.see(f"marker, isolation {isolation}", seen(t, topic, isolation, offset=1))
        t.see(f"end, isolation {isolation}", seen(t, topic, isolation, offset=2))


@scenario("S-49 S-45", bugs=(52,))
def long_poll_of_read_committed_waits_for_the_marker(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")
    begun = time.monotonic()
    found = t.fetch(topic, isolation=1, max_wait_ms=500)
    t.see("waits", time.monotonic() - begun >= 0.45)
    t.see("empty", found)
    other = t.connect()
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    other.send(
        "Fetch",
        11,
        max_wait_ms=10_000,
        min_bytes=1,
        isolation_level=1,
        session_epoch=-1,
        topics=[{"topic": topic.name, "partitions": parts}],
    )
    begun = time.monotonic()
    producer.end(True)
    t.see("then", other.receive("Fetch", 11)["responses"])
    t.see("in time", time.monotonic() - begun < 5)


@scenario("S-96 S-36")
def several_partitions_end_together(t):
    topic, producer = t.topic(partitions=3), Producer(t).begin()
    producer.add(*((topic, index) for index in range(3)))
    for index in range(2):
        producer.send(topic, b"a", partition=index)
    t.see("commit", producer.end(True))
    for index in range(2):
        producer.settled(topic, 2, index)
    t.until("the third marker", lambda: t.offsets(topic, 2)[1] == 1)
    t.see("offsets", [t.offsets(topic, index) for index in range(3)])


# -- AddPartitionsToTxn ------------------------------------------------------------


@scenario("S-95")
def add_partitions_at_every_version(t):
    topic, producer = t.topic(partitions=4), Producer(t).begin()
    for version in range(4):
        t.see(f"v{version}", producer.add((topic, version), version=version))
        t.see(f"v{version} again", producer.add((topic, version), version=version))
    producer.end(False)


@scenario("S-95", bugs=(38,))
def add_partitions_of_a_stranger(t):
    topic, producer = t.topic(), Producer(t).begin()
    for version in (1, 2, 3):
        for label, more in (
            ("producer id", {"v3_and_below_producer_id": producer.id + 1_000_000}),
            ("older epoch", {"v3_and_below_producer_epoch": -1}),
            ("newer epoch", {"v3_and_below_producer_epoch": 77}),
            ("unknown id", {"v3_and_below_transactional_id": t.name("nobody")}),
            ("empty id", {"v3_and_below_transactional_id": ""}),
        ):
            t.see(f"v{version} {label}", producer.add((topic, 0), version=version, **more))


@scenario("S-95")
def add_partitions_is_all_or_nothing(t):
    topic, producer = t.topic(), Producer(t).begin()
    topics = [{"name": topic.name, "partitions": [0, 9]}, {"name": t.name("nowhere"), "partitions": [0]}]
    t.see("answer", producer.add(v3_and_below_topics=topics))
    t.see_error("produce after", producer.send(topic, b"a")["error_code"])


# -- the data path -----------------------------------------------------------------


@scenario("S-43 S-100", bugs=(57, 62))
def produce_without_adding_the_partition(t):
    for version in (7, 9, 10, 11):
        topic, producer = t.topic(f"t{version}"), Producer(t, f"tx{version}").begin()
        t.see(f"v{version}", not_in_transaction(producer.send(topic, b"a", version=version)))
        t.see(f"v{version} offsets", t.offsets(topic))


@scenario("S-43", bugs=(57,))
def produce_with_an_old_epoch(t):
    for version in (7, 9, 11):
        topic, old = t.topic(f"t{version}"), Producer(t, f"tx{version}").begin()
        old.add((topic, 0))
        old.send(topic, b"a")
        new = Producer(t, f"tx{version}").begin()
        new.settled(topic, 2)
        t.see(f"v{version}", old.send(topic, b"b", version=version))


@scenario("S-43")
def write_outside_the_open_transaction(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")
    t.see("answer", t.produce(topic, batch.make(b"b", producer=(producer.id, producer.epoch, 1))))
    producer.end(False)


@scenario("S-100 S-43", bugs=(62,))
def late_write_after_the_end(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.run(topic, b"a", commit=False)
    for version in (9, 11):
        t.see(f"v{version}", not_in_transaction(producer.send(topic, b"late", version=version)))
    t.see("offsets", t.offsets(topic))


@scenario("S-41 S-43")
def first_sequence_of_a_transaction(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.add((topic, 0))
    t.see("sequence 5", producer.send(topic, b"a", sequence=5))
    producer.end(False)


@scenario("S-39 S-43")
def repeated_batch_in_a_transaction(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.add((topic, 0))
    t.see("first", producer.send(topic, b"a", sequence=0))
    t.see("again", producer.send(topic, b"a", sequence=0))
    t.see("gap", producer.send(topic, b"a", sequence=4))
    producer.end(True)


@scenario("S-43")
def plain_batch_with_a_transactional_id(t):
    topic, producer = t.topic(), Producer(t).begin()
    records = batch.make(b"a")
    t.see("answer", t.produce(topic, records, txn=producer.name))


@scenario("S-43")
def transactional_id_that_is_not_the_producers(t):
    topic, producer, other = t.topic(), Producer(t).begin(), Producer(t, "other").begin()
    producer.add((topic, 0))
    records = batch.make(b"a", attributes=batch.TRANSACTIONAL, producer=(producer.id, producer.epoch, 0))
    t.see("answer", t.produce(topic, records, txn=other.name))
    producer.end(False)


# -- EndTxn -------------------------------------------------------------------------


@scenario("S-96")
def end_twice(t):
    topic, producer = t.topic(), Producer(t).begin()
    for commit_it in (True, False):
        end = t.offsets(topic)[1]
        producer.add((topic, 0))
        producer.send(topic, b"a")
        t.see(f"{commit_it}", producer.end(commit_it))
        producer.settled(topic, end + 2)
        t.see(f"{commit_it} again", producer.end(commit_it))
        t.see(f"{commit_it} and the opposite", producer.end(not commit_it))


@scenario("S-96", bugs=(38,))
def end_of_the_wrong_producer(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")
    for version in (1, 2, 3, 4):
        for label, more in (
            ("producer id", {"producer_id": producer.id + 1_000_000}),
            ("newer epoch", {"producer_epoch": 77}),
            ("older epoch", {"producer_epoch": -1}),
            ("unknown id", {"transactional_id": t.name("nobody")}),
        ):
            t.see(f"v{version} {label}", producer.ask_end(True, version, **more))
    producer.end(False)


@scenario("S-96")
def end_of_nothing(t):
    producer = Producer(t).begin()
    for commit_it in (True, False):
        t.see(f"{commit_it}", producer.end(commit_it))


@scenario("S-98 S-96", bugs=(16,))
def resumed_with_the_end_alone(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")
    for connection in t.connections:
        connection.close()
    t._shared = None
    t.see("end on a new connection", producer.end(True))
    producer.settled(topic, 2)
    t.see("read committed", seen(t, topic))


@scenario("S-98 S-45", bugs=(12, 39))
def timeout_aborts(t):
    topic, producer = t.topic(), Producer(t, timeout_ms=800).begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")
    producer.settled(topic, 2)
    t.see("read committed", seen(t, topic))
    t.see("produce", producer.send(topic, b"b"))
    t.see("end", producer.end(True))
    t.see("add", producer.add((topic, 0)))
    t.see("new epoch is later", Producer(t).begin().epoch > producer.epoch)


# -- the second version --------------------------------------------------------------


@scenario("S-44 S-96 S-100", bugs=(62,))
def second_version_commit(t):
    topic, producer = t.topic(), Producer(t).begin(5)
    t.need("EndTxn", 5)
    t.see("produce", producer.send(topic, b"a", version=12))
    before = producer.identity()
    t.see("commit", producer.end(True, 5))
    t.see("epoch moved", [producer.id == before["producer_id"], producer.epoch - before["producer_epoch"]])
    producer.settled(topic, 2)
    t.see("read committed", seen(t, topic))
    t.see("next", producer.send(topic, b"b", version=12))
    t.see("abort", producer.end(False, 5))
    producer.settled(topic, 4)
    t.see("then", seen(t, topic))


@scenario("S-44 S-96")
def second_version_end_is_retried(t):
    topic, producer = t.topic(), Producer(t).begin(5)
    t.need("EndTxn", 5)
    producer.send(topic, b"a", version=12)
    old = producer.identity()
    producer.end(True, 5)
    producer.settled(topic, 2)
    t.see("again with the old epoch", producer.ask_end(True, 5, **old))
    t.see("the opposite", producer.ask_end(False, 5, **old))
    t.see("commit of nothing", producer.ask_end(True, 5))
    t.see("abort of nothing", producer.ask_end(False, 5))


@scenario("S-44 S-100", bugs=(57, 62))
def second_version_write_of_the_epoch_before(t):
    topic, producer = t.topic(), Producer(t).begin(5)
    t.need("EndTxn", 5)
    producer.send(topic, b"a", version=12)
    old = producer.epoch
    producer.end(False, 5)
    producer.settled(topic, 2)
    t.see("late write", producer.send(topic, b"late", version=12, epoch=old, sequence=1))
    t.see("offsets", t.offsets(topic))


@scenario("S-44 S-41")
def second_version_first_sequence(t):
    topic, producer = t.topic(), Producer(t).begin(5)
    t.need("EndTxn", 5)
    t.see("sequence 5", producer.send(topic, b"a", version=12, sequence=5))
    producer.end(False, 5)


@scenario("S-44")
def second_version_by_topic_id(t):
    topic, producer = t.topic(), Producer(t).begin(5)
    t.need("EndTxn", 5)
    t.see("produce", producer.send(topic, b"a", version=13))
    t.see("commit", producer.end(True, 5)["error_code"])
    producer.settled(topic, 2)


# -- offsets in transactions ------------------------------------------------------------


@scenario("S-97 S-84", bugs=(12,))
def offsets_wait_for_the_commit(t):
    topic, group, producer = t.topic(), t.name("g"), Producer(t).begin()
    t.coordinator(group)
    commit(t, group, topic, 1)
    t.see("add", producer.offsets_to_group(group))
    t.see_error("commit offset", producer.commit_offset(group, topic, 7))
    for version in (7, 8):
        t.see(f"pending v{version}", committed(t, group, topic, version))
        t.see(f"pending v{version}, stable", committed(t, group, topic, version, stable=True))
    t.see("end", producer.end(True))
    t.until("it stable", lambda: _stable(t, group, topic))
    t.see("then", committed(t, group, topic, stable=True))


def _stable(t, group: str, topic) -> bool:
    return committed(t, group, topic, stable=True)["topics"][0]["partitions"][0]["error_code"] == 0


@scenario("S-97", bugs=(12,))
def offsets_of_an_aborted_transaction(t):
    topic, group, producer = t.topic(), t.name("g"), Producer(t).begin()
    t.coordinator(group)
    commit(t, group, topic, 1)
    producer.offsets_to_group(group)
    producer.commit_offset(group, topic, 7)
    t.see("end", producer.end(False))
    t.until("it stable", lambda: _stable(t, group, topic))
    t.see("then", committed(t, group, topic, stable=True))


@scenario("S-97", bugs=(12,))
def offsets_of_a_transaction_that_timed_out(t):
    topic, group, producer = t.topic(), t.name("g"), Producer(t, timeout_ms=800).begin()
    t.coordinator(group)
    producer.offsets_to_group(group)
    producer.commit_offset(group, topic, 7)
    t.see("pending", committed(t, group, topic, stable=True))
    t.until("it stable", lambda: _stable(t, group, topic))
    t.see("then", committed(t, group, topic, stable=True))


@scenario("S-97", bugs=(17,))
def offsets_are_fenced_by_the_group(t):
    topic, group, producer = t.topic(), t.name("g"), Producer(t).begin()
    t.coordinator(group)
    member = Member(t, group)
    member.settle()
    producer.offsets_to_group(group)
    for label, more in (
        ("without a member", {}),
        ("the member", {"member_id": member.id, "generation_id": member.generation}),
        ("another member", {"member_id": "nobody", "generation_id": member.generation}),
        ("another generation", {"member_id": member.id, "generation_id": 9}),
        ("another instance", {"member_id": member.id, "generation_id": member.generation, "group_instance_id": "x"}),
    ):
        t.see_error(label, producer.commit_offset(group, topic, 3, **more))
    t.see_error("v2 knows no member", producer.commit_offset(group, topic, 3, version=2))
    producer.end(False)


@scenario("S-97", bugs=(27,))
def offsets_while_the_group_is_completing(t):
    topic, group, producer = t.topic(), t.name("g"), Producer(t).begin()
    t.coordinator(group)
    member = Member(t, group)
    member.enter()
    t.see("add", producer.offsets_to_group(group))
    mine = {"member_id": member.id, "generation_id": member.generation}
    t.see_error("the member", producer.commit_offset(group, topic, 3, **mine))
    t.see_error("without a member", producer.commit_offset(group, topic, 3))
    producer.end(False)


@scenario("S-97 S-95")
def offsets_of_a_stranger(t):
    topic, group, producer = t.topic(), t.name("g"), Producer(t).begin()
    t.coordinator(group)
    for version in (0, 1, 2, 3):
        for label, more in (
            ("producer id", {"producer_id": producer.id + 1_000_000}),
            ("epoch", {"producer_epoch": 77}),
            ("unknown id", {"transactional_id": t.name("nobody")}),
        ):
            fields = {"transactional_id": producer.name, **producer.identity(), "group_id": group}
            t.ask(f"v{version} {label}", "AddOffsetsToTxn", version, **{**fields, **more})
    producer.offsets_to_group(group)
    parts = [{"partition_index": 9, "committed_offset": 1, "committed_metadata": ""}]
    t.ask(
        "unknown partition",
        "TxnOffsetCommit",
        3,
        transactional_id=producer.name,
        group_id=group,
        **producer.identity(),
        topics=[{"name": topic.name, "partitions": parts}, {"name": t.name("nowhere"), "partitions": parts}],
    )
    producer.end(False)


@scenario("S-44 S-97")
def offsets_without_adding_the_group(t):
    topic, group = t.topic(), t.name("g")
    t.coordinator(group)
    first = Producer(t, "a").begin()
    for version in (3, 4):
        t.see_error(f"v{version}", first.commit_offset(group, topic, 3, version=version))
    t.need("EndTxn", 5)
    second = Producer(t, "b").begin(5)
    t.see_error("v5", second.commit_offset(group, topic, 5, version=5))
    t.see("end", second.end(True, 5))
    t.until("it stable", lambda: _stable(t, group, topic))
    t.see("then", committed(t, group, topic, stable=True))


@scenario("S-85 S-97")
def group_with_pending_offsets_is_deleted(t):
    topic, group, producer = t.topic(), t.name("g"), Producer(t).begin()
    t.coordinator(group)
    producer.offsets_to_group(group)
    producer.commit_offset(group, topic, 7)
    t.ask("delete", "DeleteGroups", 2, groups_names=[group])
    t.see("end", producer.end(True))
    t.until("it stable", lambda: _stable(t, group, topic))
    t.see("then", committed(t, group, topic, stable=True))


# -- seen by admins ------------------------------------------------------------------------


@scenario("S-99")
def described_in_every_state(t):
    topic, producer = t.topic(partitions=2), Producer(t).begin()
    names = [producer.name, t.name("nobody"), ""]
    t.ask("empty", "DescribeTransactions", 0, transactional_ids=names)
    producer.add((topic, 0), (topic, 1))
    producer.send(topic, b"a")
    t.ask("open", "DescribeTransactions", 0, transactional_ids=names[:1])
    producer.end(True)
    producer.settled(topic, 2)
    t.until("it complete", lambda: _state(t, producer) == "CompleteCommit")
    t.ask("complete", "DescribeTransactions", 0, transactional_ids=names[:1])


def _state(t, producer) -> str:
    answer = t.call("DescribeTransactions", 0, transactional_ids=[producer.name])
    return answer["transaction_states"][0]["transaction_state"]


@scenario("S-99")
def listed_with_filters(t):
    topic, producer, idle = t.topic(), Producer(t, "a-open").begin(), Producer(t, "b-idle").begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")

    def mine(version: int, **filters):
        answer = t.call("ListTransactions", version, **filters)
        answer["transaction_states"] = [
            found for found in answer["transaction_states"] if found["transactional_id"].startswith(t.unique)
        ]
        return answer

    for version in range(3):
        t.see(f"v{version}", mine(version))
    t.see("open", mine(0, state_filters=["Ongoing"]))
    t.see("unknown state", mine(0, state_filters=["Ongoing", "Nowhere"]))
    t.see("producer", mine(0, producer_id_filters=[idle.id]))
    t.see("longer than a day", mine(1, duration_filter=86_400_000))
    t.see("longer than nothing", mine(1, duration_filter=0))
    t.see("pattern", mine(2, transactional_id_pattern=f"{t.unique}b.*"))
    t.see("bad pattern", mine(2, transactional_id_pattern="(["))
    producer.end(False)


@scenario("S-99")
def producers_with_an_open_transaction(t):
    topic, producer = t.topic(), Producer(t).begin()
    t.append(topic, b"a")
    producer.add((topic, 0))
    producer.send(topic, b"b", b"c")
    wanted = [{"name": topic.name, "partition_indexes": [0]}]
    t.ask("open", "DescribeProducers", 0, topics=wanted)
    producer.end(True)
    producer.settled(topic, 4)
    t.ask("ended", "DescribeProducers", 0, topics=wanted)


@scenario("S-98", bugs=(39,))
def aborted_by_an_admin(t):
    topic, producer = t.topic(), Producer(t).begin()
    producer.add((topic, 0))
    producer.send(topic, b"a")
    marker = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "topics": [{"name": topic.name, "partition_indexes": [0]}],
        "coordinator_epoch": -1,
    }
    t.ask("markers", "WriteTxnMarkers", 1, markers=[marker])
    t.until("the marker", lambda: t.offsets(topic)[1] == 2)
    t.see("read committed", seen(t, topic))


@scenario("S-35")
def producing_to_the_transaction_log(t):
    Producer(t).begin()
    parts = [{"index": 0, "records": batch.make(batch.Row(b"a", b"k"))}]
    t.ask(
        "answer",
        "Produce",
        9,
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": "__transaction_state", "partition_data": parts}],
    )


@scenario("S-95 S-63")
def records_of_an_open_transaction_are_deleted(t):
    topic, producer = t.topic(), Producer(t).begin()
    t.append(topic, b"a")
    producer.add((topic, 0))
    producer.send(topic, b"b")
    t.append(topic, b"c")
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 3}]}]
    t.ask("delete", "DeleteRecords", 2, timeout_ms=5000, topics=topics)
    t.see("latest", [t.offsets(topic), t.offsets(topic, isolation=1)])
    t.see("end", producer.end(True))
    producer.settled(topic, 4)
    t.see("read committed", seen(t, topic, offset=3))
