"""Transactions: what each client does with them, what the wire answers, and what survives. The same answers as Apache Kafka's (`--peer kafka`)."""

from __future__ import annotations

import time

import pytest
from kafka import KafkaAdminClient
from kafka.admin import AbortTransactionSpec
from kafka.structs import TopicPartition

from harness.clients import BY_NAME
from harness.process import wait_until
from harness.txn import (
    PRODUCERS,
    READERS,
    Fenced,
    Identity,
    WireProducer,
    committed_offset,
    end_offset,
    fetch,
)
from harness.wire import Wire

CLIENT = BY_NAME["confluent-kafka"]
UNCOMMITTED, COMMITTED = 0, 1

NONE, UNKNOWN_TOPIC, ILLEGAL_GENERATION, UNKNOWN_MEMBER, TOPIC_AUTHORIZATION = 0, 3, 22, 25, 29
INVALID_REQUEST, OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_ID_MAPPING = (
    42,
    45,
    47,
    48,
    49,
)
INVALID_TIMEOUT, TXN_ID_AUTHORIZATION, NOT_ATTEMPTED, INVALID_RECORD, UNSTABLE, FENCED = 50, 53, 55, 87, 88, 90
NOT_FOUND, ABORTABLE, INVALID_REGEX = 105, 120, 128


@pytest.fixture(params=PRODUCERS, ids=lambda producer: producer.name)
def producer_of(request):
    return request.param


@pytest.fixture
def made_topic(broker, topic):
    """The test's topic, with two partitions."""
    CLIENT.create_topic(broker.bootstrap, topic, 2)
    wait_until(lambda: CLIENT.topics(broker.bootstrap).get(topic) == 2, 10, f"{topic} in the metadata")
    return topic


@pytest.fixture
def wired(broker, topic):
    """Transactional producers on the wire; ids are the test's own."""

    def producer(name: str = "", second: bool = True, of=broker) -> WireProducer:
        return WireProducer(of.kafka_port, f"{topic}{name}", second)

    return producer


# -- with the clients -----------------------------------------------------------------------------


@pytest.mark.feature("transactions: commit, abort, read committed")
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_committed_records_are_read_and_aborted_ones_are_not(producer_of, reader, broker, made_topic):
    producer = producer_of(broker.bootstrap, made_topic)
    for round_, (values, commits) in enumerate(
        [((b"a", b"b"), True), ((b"c",), False), ((b"d",), True), ((b"e",), False)]
    ):
        producer.begin()
        producer.send(made_topic, values)
        producer.commit() if commits else producer.abort()
        assert round_ >= 0
    assert reader(broker.bootstrap, made_topic, "read_committed") == [b"a", b"b", b"d"]
    assert reader(broker.bootstrap, made_topic, "read_uncommitted") == [b"a", b"b", b"c", b"d", b"e"]
    producer.begin()
    producer.send(made_topic, [b"open"])
    CLIENT.produce(broker.bootstrap, made_topic, [record(b"plain")])
    assert reader(broker.bootstrap, made_topic, "read_committed") == [b"a", b"b", b"d"], "nothing beyond an open one"
    producer.commit()
    wait_until(
        lambda: reader(broker.bootstrap, made_topic, "read_committed") == [b"a", b"b", b"d", b"open", b"plain"],
        10,
        "the end of the transaction to be seen",
    )
    producer.close()


def record(value: bytes):
    from harness.record import Record

    return Record(value)


def test_a_second_instance_fences_the_first(producer_of, broker, made_topic):
    first = producer_of(broker.bootstrap, made_topic)
    first.begin()
    first.send(made_topic, [b"lost"])
    second = producer_of(broker.bootstrap, made_topic)
    second.begin()
    second.send(made_topic, [b"kept"])
    # Not a write: kafka-python takes its id back after INVALID_PRODUCER_EPOCH, and so fences the second.
    with pytest.raises(Fenced):
        first.commit()
    second.commit()
    assert READERS["confluent-kafka"](broker.bootstrap, made_topic, "read_committed") == [b"kept"]
    second.close()


def test_offsets_are_committed_with_the_records_they_led_to(producer_of, broker, made_topic):
    group, wire = f"{made_topic}-group", Wire(broker.kafka_port)
    producer = producer_of(broker.bootstrap, made_topic)
    producer.begin()
    producer.send(made_topic, [b"from 0 to 5"])
    producer.send_offset(group, made_topic, 5)
    producer.abort()
    wait_until(lambda: committed_offset(wire, group, made_topic, stable=True).error_code == NONE, 10, "it to end")
    assert committed_offset(wire, group, made_topic).committed_offset == -1
    producer.begin()
    producer.send(made_topic, [b"from 0 to 7"])
    producer.send_offset(group, made_topic, 7)
    assert committed_offset(wire, group, made_topic).committed_offset == -1
    producer.commit()
    wait_until(lambda: committed_offset(wire, group, made_topic, stable=True).committed_offset == 7, 10, "the offset")
    assert READERS["aiokafka"](broker.bootstrap, made_topic, "read_committed") == [b"from 0 to 7"]
    producer.close()


def test_an_admin_lists_describes_and_aborts(broker, made_topic, wired):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    open_, idle = wired("-open"), wired("-idle")
    open_.init(), idle.init()
    assert open_.produce(made_topic, b"a", b"b") == NONE

    (of_broker,) = admin.list_transactions().values()
    listed = {found.transactional_id: found for found in of_broker}
    assert listed[open_.id].state == "Ongoing" and listed[idle.id].state == "Empty"
    described = admin.describe_transactions([open_.id])[open_.id]
    assert (described.producer_id, described.producer_epoch) == open_.who

    where = TopicPartition(made_topic, 0)
    (state,) = admin.describe_producers([where])[where].active_producers
    assert (state.producer_id, state.producer_epoch) == open_.who
    assert (state.last_sequence, state.current_transaction_start_offset) == (1, 0)
    # What `kafka-transactions.sh abort` sends.
    admin.abort_transaction(AbortTransactionSpec(where, *open_.who))
    wait_until(lambda: end_offset(open_.wire, made_topic, COMMITTED) == 3, 10, "the last stable offset to move")
    (state,) = admin.describe_producers([where])[where].active_producers
    assert state.current_transaction_start_offset in (None, -1)
    assert READERS["kcat"](broker.bootstrap, made_topic, "read_committed") == []
    admin.close()


# -- on the wire ----------------------------------------------------------------------------------


@pytest.mark.parametrize("second", (False, True), ids=("v1", "v2"))
def test_the_last_stable_offset_and_the_list_of_aborted(second, broker, made_topic, wired):
    one, two, wire = wired("-1", second), wired("-2", second), Wire(broker.kafka_port)
    for producer in (one, two):
        assert producer.init().error_code == NONE
        if not second:
            assert producer.add(made_topic) == NONE
    assert one.produce(made_topic, b"a") == NONE
    assert two.produce(made_topic, b"b") == NONE
    found = fetch(wire, made_topic, 0, COMMITTED)
    assert (found.high_watermark, found.last_stable_offset) == (2, 0)
    assert not found.records and not found.aborted_transactions
    assert (end_offset(wire, made_topic, COMMITTED), end_offset(wire, made_topic, UNCOMMITTED)) == (0, 2)
    found = fetch(wire, made_topic, 0, UNCOMMITTED)
    assert found.aborted_transactions is None and b"a" in bytes(found.records)

    aborted = two.who
    assert two.end(False).error_code == NONE
    two.wait_for("CompleteAbort")
    assert end_offset(wire, made_topic, COMMITTED) == 0, "the other is still open"
    assert one.end(True).error_code == NONE
    wait_until(lambda: end_offset(wire, made_topic, COMMITTED) == 4, 10, "the last stable offset to move")
    found = fetch(wire, made_topic, 0, COMMITTED)
    listed = [(txn.producer_id, txn.first_offset) for txn in found.aborted_transactions]
    assert listed == [(aborted.id, 1)]


@pytest.mark.parametrize("second", (False, True), ids=("v1", "v2"))
def test_what_may_be_ended_how(second, made_topic, wired):
    producer = wired("", second)
    producer.init()
    first = producer.who
    # Nothing was begun.
    assert producer.end(True).error_code == INVALID_TXN_STATE
    answer = producer.end(False)
    assert answer.error_code == (NONE if second else INVALID_TXN_STATE)
    if second:
        assert (answer.producer_id, answer.producer_epoch) == (first.id, first.epoch + 1)
        producer.wait_for("CompleteAbort")
    for commits in (True, False):
        state = "CompleteCommit" if commits else "CompleteAbort"
        if not second:
            assert producer.add(made_topic) == NONE
        assert producer.produce(made_topic, b"x") == NONE
        assert producer.state() == "Ongoing"
        ended = producer.who
        assert producer.end(commits).error_code == NONE
        producer.wait_for(state)
        # A retry, whose answer was lost: as it was. And the opposite of what was decided.
        again = producer.end(commits, who=ended)
        assert again.error_code == NONE
        if second:
            assert (again.producer_id, again.producer_epoch) == producer.who == (ended.id, ended.epoch + 1)
        assert producer.end(not commits, who=ended).error_code == INVALID_TXN_STATE
    stale = Identity(producer.who.id, producer.who.epoch - 2) if second else Identity(producer.who.id, 5)
    assert producer.end(True, who=stale).error_code == FENCED
    assert producer.end(True, who=Identity(producer.who.id + 9999, 0)).error_code == INVALID_ID_MAPPING
    nobody = wired("-nobody", second)
    assert nobody.end(True, who=Identity(1, 0)).error_code == INVALID_ID_MAPPING


def test_fencing_and_recovery_at_initialization(made_topic, wired):
    producer, other = wired(), wired()
    first = Identity(producer.init().producer_id, 0)
    assert producer.who == first
    assert producer.produce(made_topic, b"x") == NONE
    # Another instance: what was open is aborted, which takes an epoch of its own.
    assert other.init().error_code == NONE
    assert other.who.id == first.id and other.who.epoch > 1
    assert other.describe().transaction_state == "Empty"
    assert producer.produce(made_topic, b"y", sequence=1) == INVALID_PRODUCER_EPOCH
    assert producer.end(True).error_code == FENCED
    assert producer.end(True, version=1).error_code == INVALID_PRODUCER_EPOCH
    assert producer.add(made_topic) == FENCED
    assert producer.add(made_topic, version=1) == INVALID_PRODUCER_EPOCH
    # KIP-360: with its own epoch a producer goes on, with an older one it is fenced.
    before = other.who
    assert other.init(expected=before).producer_epoch == before.epoch + 1
    assert other.init(expected=before).producer_epoch == before.epoch + 1, "a retry"
    assert other.init(expected=first).error_code == FENCED
    assert other.init(expected=first, version=3).error_code == INVALID_PRODUCER_EPOCH


def test_requests_that_make_no_sense(made_topic, wired):
    producer = wired()
    assert producer.init(timeout_ms=0).error_code == INVALID_TIMEOUT
    assert producer.init(timeout_ms=900_001).error_code == INVALID_TIMEOUT
    empty = wired()
    empty.id = ""
    assert empty.init().error_code == INVALID_REQUEST
    producer.init()
    assert producer.add("no-such-topic") == UNKNOWN_TOPIC
    asked = {"v3_and_below_transactional_id": producer.id, "v3_and_below_producer_id": producer.who.id}
    topics = [{"name": made_topic, "partitions": [0, 7]}]
    asked |= {"v3_and_below_producer_epoch": producer.who.epoch, "v3_and_below_topics": topics}
    found = producer.wire.send(24, 3, asked).results_by_topic_v3_and_below[0].results_by_partition
    codes = {part.partition_index: part.partition_error_code for part in found}
    assert codes == {0: NOT_ATTEMPTED, 7: UNKNOWN_TOPIC}
    assert producer.add(made_topic, who=Identity(producer.who.id + 9999, 0)) == INVALID_ID_MAPPING
    assert producer.describe().transaction_state == "Empty", "none of it began a transaction"
    assert wired("-nobody").describe().error_code == NOT_FOUND


def test_writes_are_verified_against_the_transaction(made_topic, wired):
    old, new = wired("-old", second=False), wired("-new")
    old.init(), new.init()
    # Not added: each version is told what its clients know.
    assert old.produce(made_topic, b"x", version=9) == INVALID_TXN_STATE
    assert old.produce(made_topic, b"x", version=11) == ABORTABLE
    assert old.add(made_topic, 0) == NONE
    assert (old.verify(made_topic, 0), old.verify(made_topic, 1)) == (NONE, ABORTABLE)
    assert old.produce(made_topic, b"x") == NONE
    assert old.produce(made_topic, b"x", partition=1) == INVALID_TXN_STATE
    # From v12 on, the write itself adds the partition.
    assert new.produce(made_topic, b"y", partition=1) == NONE
    topics = {found.topic: list(found.partitions) for found in new.describe().topics}
    assert topics == {made_topic: [1]}
    assert new.produce(made_topic, b"y", sequence=5) == OUT_OF_ORDER_SEQUENCE, "it begins with 0"
    # Outside of the transaction that is open.
    assert new.produce(made_topic, b"z", partition=1, attributes=0) == INVALID_TXN_STATE
    for producer in (old, new):
        assert producer.end(False).error_code == NONE


def test_a_late_write_of_an_ended_transaction_is_refused(made_topic, wired):
    old, new = wired("-old", second=False), wired("-new")
    old.init(), new.init()
    assert old.add(made_topic) == NONE
    for producer in (old, new):
        late = producer.who
        assert producer.produce(made_topic, b"x") == NONE
        assert producer.end(False).error_code == NONE
        producer.wait_for("CompleteAbort")
        refused = producer.produce(made_topic, b"late", who=late, sequence=1)
        assert refused == (INVALID_PRODUCER_EPOCH if producer.second else INVALID_TXN_STATE)
    wire = old.wire
    assert end_offset(wire, made_topic, COMMITTED) == end_offset(wire, made_topic, UNCOMMITTED)


def test_a_transactional_batch_needs_a_transactional_id(made_topic, wired):
    producer = wired()
    producer.init()
    batchless = producer.id
    producer.id = None
    assert producer.produce(made_topic, b"x") == TXN_ID_AUTHORIZATION
    producer.id = batchless
    # A client does not write markers.
    assert producer.produce(made_topic, b"x", attributes=(1 << 4) | (1 << 5)) == INVALID_RECORD


@pytest.mark.parametrize("second", (False, True), ids=("v1", "v2"))
def test_offsets_are_pending_until_the_marker(second, made_topic, wired):
    producer, group = wired("", second), f"{made_topic}-{second}"
    producer.init()
    wire = producer.wire
    if not second:
        assert producer.commit_offset(group, made_topic, 3) == INVALID_TXN_STATE
        assert producer.add_offsets(group) == NONE
    for commits, offset, expected in ((False, 3, -1), (True, 4, 4), (False, 5, 4)):
        if not second:
            assert producer.add_offsets(group) == NONE
        assert producer.commit_offset(group, made_topic, offset) == NONE
        before = committed_offset(wire, group, made_topic)
        unstable = committed_offset(wire, group, made_topic, stable=True)
        assert before.error_code == NONE and before.committed_offset != offset
        assert (unstable.error_code, unstable.committed_offset) == (UNSTABLE, -1)
        assert producer.end(commits).error_code == NONE
        producer.wait_for("CompleteCommit" if commits else "CompleteAbort")
        after = committed_offset(wire, group, made_topic, stable=True)
        assert (after.error_code, after.committed_offset) == (NONE, expected)


def test_a_member_that_was_left_behind_commits_no_offsets(made_topic, wired):
    producer, group = wired(), f"{made_topic}-group"
    producer.init()
    assert producer.commit_offset(group, made_topic, 1, member="m", generation=3) == ILLEGAL_GENERATION
    asked = {"group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "member_id": ""}
    asked |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"\x00\x00"}]}
    joined = producer.wire.send(11, 3, asked)
    assert joined.error_code == NONE
    # In the middle of the rebalance, before SyncGroup, it is let through.
    who = {"member": joined.member_id, "generation": joined.generation_id}
    assert producer.commit_offset(group, made_topic, 1, **who) == NONE
    stale = {**who, "generation": joined.generation_id - 1}
    assert producer.commit_offset(group, made_topic, 2, **stale) == ILLEGAL_GENERATION
    assert producer.commit_offset(group, made_topic, 2, **{**who, "member": "nobody"}) == UNKNOWN_MEMBER
    assert producer.end(True).error_code == NONE
    producer.wait_for("CompleteCommit")
    assert committed_offset(producer.wire, group, made_topic).committed_offset == 1


def test_transactions_are_listed_through_every_filter(made_topic, wired):
    open_, idle = wired("-open"), wired("-idle")
    open_.init(), idle.init()
    assert open_.produce(made_topic, b"x") == NONE

    def listed(version: int = 2, **filters):
        asked = {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
        }
        answer = open_.wire.send(66, version, asked | filters)
        assert answer.error_code == NONE
        return {found.transactional_id for found in answer.transaction_states} & {open_.id, idle.id}

    assert listed() == {open_.id, idle.id}
    assert listed(0, state_filters=["Ongoing"]) == {open_.id}
    assert listed(0, state_filters=["Sleeping"]) == set()
    assert listed(0, producer_id_filters=[idle.who.id]) == {idle.id}
    assert listed(1, state_filters=["Ongoing"], duration_filter=3_600_000) == set()
    assert listed(2, transactional_id_pattern=".*-idle") == {idle.id}
    assert listed(2, transactional_id_pattern="-idle") == set(), "all of the id has to match"
    answer = open_.wire.send(66, 2, {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": "("})
    assert answer.error_code == INVALID_REGEX
    assert open_.end(False).error_code == NONE


def test_the_feature_is_in_force_and_the_topic_is_internal(broker, made_topic, wired):
    producer = wired()
    producer.init()
    answer = producer.wire.send(18, 4, {"client_software_name": "wire", "client_software_version": "1"})
    finalized = {found.name: found.max_version_level for found in answer.finalized_features}
    supported = {found.name: (found.min_version, found.max_version) for found in answer.supported_features}
    assert (finalized["transaction.version"], supported["transaction.version"]) == (2, (0, 2))
    older = producer.wire.send(18, 3, {"client_software_name": "wire", "client_software_version": "1"})
    assert "transaction.version" not in {found.name for found in older.supported_features}
    assert "transaction.version" in {found.name for found in older.finalized_features}
    topics = producer.wire.send(3, 9, {"topics": None, "allow_auto_topic_creation": False}).topics
    internal = {found.name for found in topics if found.is_internal}
    assert "__transaction_state" in internal
    for key in ("wire-a", "wire-b"):
        found = producer.wire.send(10, 3, {"key": key, "key_type": 1})
        assert (found.error_code, found.port) == (NONE, broker.kafka_port)


# -- with brokers of the test's own ---------------------------------------------------------------


@pytest.fixture(params=("restart", "kill_and_restart"))
def comes_back(request):
    return lambda broker: getattr(broker, request.param)()


QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.mark.weir_only
def test_what_is_open_too_long_is_aborted_and_its_producer_fenced(producer_of, start_broker, topic):
    broker = start_broker(QUICK)
    CLIENT.create_topic(broker.bootstrap, topic)
    wire = Wire(broker.kafka_port)
    producer = producer_of(broker.bootstrap, topic, timeout_ms=1000)
    producer.begin()
    producer.send(topic, [b"lost"])
    assert end_offset(wire, topic, COMMITTED) == 0
    wait_until(lambda: end_offset(wire, topic, COMMITTED) == 2, 20, "the transaction to be aborted")
    with pytest.raises(Fenced):
        producer.commit()
    assert READERS["kcat"](broker.bootstrap, topic, "read_committed") == []


@pytest.mark.weir_only
def test_open_transactions_survive_and_are_ended_with_end_txn_alone(comes_back, start_broker, topic):
    broker = start_broker(QUICK)
    CLIENT.create_topic(broker.bootstrap, topic)
    producers = [WireProducer(broker.kafka_port, f"{topic}-{n}") for n in range(3)]
    for number, producer in enumerate(producers):
        producer.init()
        assert producer.produce(topic, f"{number}".encode()) == NONE
        assert producer.commit_offset(f"g{number}", topic, number + 10) == NONE
    comes_back(broker)
    for number, producer in enumerate(producers):
        producer.wire = Wire(broker.kafka_port)
        # Until it is loaded, the coordinator asks to try again.
        producer.wait_for("Ongoing")
        unstable = committed_offset(producer.wire, f"g{number}", topic, stable=True)
        assert unstable.error_code == UNSTABLE
    assert end_offset(producers[0].wire, topic, COMMITTED) == 0
    # As Flink does: the same id and epoch, and nothing but EndTxn.
    for producer, commits in zip(producers, (True, False, True), strict=True):
        assert producer.end(commits).error_code == NONE
        producer.wait_for("CompleteCommit" if commits else "CompleteAbort")
    wire = producers[0].wire
    offsets = [committed_offset(wire, f"g{n}", topic, stable=True).committed_offset for n in range(3)]
    assert offsets == [10, -1, 12]
    assert READERS["confluent-kafka"](broker.bootstrap, topic, "read_committed") == [b"0", b"2"]
    comes_back(broker)
    assert READERS["confluent-kafka"](broker.bootstrap, topic, "read_committed") == [b"0", b"2"]
    wire = Wire(broker.kafka_port)
    offsets = [committed_offset(wire, f"g{n}", topic, stable=True).committed_offset for n in range(3)]
    assert offsets == [10, -1, 12]


@pytest.mark.weir_only
def test_a_kill_right_after_the_decision_loses_nothing(start_broker, topic):
    broker = start_broker(QUICK)
    CLIENT.create_topic(broker.bootstrap, topic, 8)
    expected = []
    for round_ in range(6):
        producer, commits = WireProducer(broker.kafka_port, f"{topic}-{round_ % 2}"), round_ % 3 != 2
        producer.init()
        for partition in range(8):
            assert producer.produce(topic, f"{round_}".encode(), partition=partition) == NONE
        assert producer.commit_offset("g", topic, round_) == NONE
        ended = producer.who
        assert producer.end(commits).error_code == NONE
        broker.kill_and_restart()
        if commits:
            expected.append(round_)
        producer.wire = Wire(broker.kafka_port)
        producer.wait_for("CompleteCommit" if commits else "CompleteAbort")
        # The client that did not hear the answer asks again.
        assert producer.end(commits, who=ended).error_code == NONE
        found = committed_offset(producer.wire, "g", topic, stable=True)
        assert (found.error_code, found.committed_offset) == (NONE, expected[-1])
        for partition in (0, 7):
            read = fetch_values(broker, topic, partition)
            assert read == [f"{number}".encode() for number in expected]


def fetch_values(broker, topic: str, partition: int) -> list[bytes]:
    import subprocess

    command = ["kcat", "-C", "-b", broker.bootstrap, "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q"]
    command += ["-f", "%s\\n", "-X", "isolation.level=read_committed"]
    return subprocess.run(command, capture_output=True, timeout=30, check=True).stdout.splitlines()


@pytest.mark.weir_only
def test_epochs_and_ids_survive_and_idle_ids_are_forgotten(start_broker, topic):
    settings = {"transaction.remove.expired.transaction.cleanup.interval.ms": "100"}
    broker = start_broker(settings)
    first = WireProducer(broker.kafka_port, topic)
    first.init()
    broker.kill_and_restart()
    again = WireProducer(broker.kafka_port, topic)
    again.init()
    assert again.who == Identity(first.who.id, first.who.epoch + 1)
    broker.stop()
    broker.settings["transactional.id.expiration.ms"] = "1"
    broker.start()
    again.wire = Wire(broker.kafka_port)
    wait_until(lambda: again.describe().error_code == NOT_FOUND, 10, "the id to be forgotten")
    broker.restart()
    again.wire = Wire(broker.kafka_port)
    wait_until(lambda: again.describe().error_code == NOT_FOUND, 10, "the id to stay forgotten")


@pytest.mark.weir_only
def test_a_deleted_topic_does_not_hold_up_its_transaction(start_broker, topic):
    broker = start_broker(QUICK)
    for name in (topic, f"{topic}-stays"):
        CLIENT.create_topic(broker.bootstrap, name)
    producer = WireProducer(broker.kafka_port, topic)
    producer.init()
    assert producer.produce(topic, b"x") == producer.produce(f"{topic}-stays", b"y") == NONE
    CLIENT.delete_topic(broker.bootstrap, topic)
    assert producer.end(True).error_code == NONE
    producer.wait_for("CompleteCommit")
    assert READERS["kcat"](broker.bootstrap, f"{topic}-stays", "read_committed") == [b"y"]


@pytest.mark.weir_only
def test_many_short_transactions_in_a_row(start_broker, topic):
    broker = start_broker()
    CLIENT.create_topic(broker.bootstrap, topic)
    producer = WireProducer(broker.kafka_port, topic)
    producer.init()
    begun = time.monotonic()
    for number in range(100):
        assert producer.produce(topic, f"{number}".encode()) == NONE, "the end of the one before is waited for"
        assert producer.end(True).error_code == NONE
    assert time.monotonic() - begun < 30
    values = READERS["confluent-kafka"](broker.bootstrap, topic, "read_committed")
    assert values == [f"{number}".encode() for number in range(100)]
