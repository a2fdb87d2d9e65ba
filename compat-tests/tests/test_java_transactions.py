"""Transactions of Apache Kafka's own Java client: what a read-committed consumer sees, and who is fenced when.

Releases 2.8 and 3.9 speak the first version of the protocol, 4.2 the second (KIP-890: an epoch for each transaction).
"""

from __future__ import annotations

import pytest

from harness.clients.base import Refused
from harness.clients.java import JAVA_4, RELEASES, Java
from harness.process import wait_until
from harness.record import Record

each_release = pytest.mark.parametrize("client", RELEASES, ids=str)
java_4 = pytest.mark.parametrize("client", [JAVA_4], ids=str)


def records(*values: str, partition: int = 0) -> list[Record]:
    return [Record(value.encode(), partition=partition) for value in values]


def make_topic(client: Java, broker, topic: str, partitions: int = 1) -> None:
    client.create_topic(broker.bootstrap, topic, partitions)
    wait_until(lambda: client.topics(broker.bootstrap).get(topic) == partitions, 10, f"{topic} in the metadata")


def committed(client: Java, broker, topic: str, count: int, partition: int = 0, timeout: float = 20) -> list[bytes]:
    """The values of the first `count` records that a read-committed consumer gets."""
    found = client.fetch(broker.bootstrap, topic, count, partition=partition, timeout=timeout, read_committed=True)
    return [record.value for record in found]


def assert_no_more(client: Java, broker, topic: str, count: int, partition: int = 0) -> None:
    """A read-committed consumer gets `count` records and not one more."""
    with pytest.raises(Refused, match=f"read {count} of {count + 1} records"):
        committed(client, broker, topic, count + 1, partition, timeout=1.5)


@pytest.mark.program("transactions: commit and abort, over partitions")
@each_release
def test_a_read_committed_consumer_sees_what_was_committed(client, broker, topic):
    make_topic(client, broker, topic, 2)
    producer = client.transaction(broker.bootstrap, topic)
    producer.begin()
    assert producer.send(topic, records("a", "b") + records("c", partition=1)) == [0, 1, 0]
    producer.commit()
    producer.begin()
    # Each partition's commit marker took an offset.
    assert producer.send(topic, records("gone") + records("gone", partition=1)) == [3, 2]
    producer.abort()
    producer.begin()
    assert producer.send(topic, records("d")) == [5]
    producer.commit()
    producer.close()

    assert committed(client, broker, topic, 3) == [b"a", b"b", b"d"]
    assert committed(client, broker, topic, 1, partition=1) == [b"c"]
    assert_no_more(client, broker, topic, 3)
    assert_no_more(client, broker, topic, 1, partition=1)
    everything = client.fetch(broker.bootstrap, topic, 4)
    assert [(record.offset, record.value) for record in everything] == [(0, b"a"), (1, b"b"), (3, b"gone"), (5, b"d")]
    end = client.ask("list_offsets", bootstrap=broker.bootstrap, topic=topic, which="latest")
    assert end["offset"] == 7


@pytest.mark.program("transactions: what is open holds back what comes after it")
@each_release
def test_an_open_transaction_holds_back_what_comes_after_it(client, broker, topic):
    make_topic(client, broker, topic)
    producer = client.transaction(broker.bootstrap, topic)
    producer.begin()
    producer.send(topic, records("open"))
    client.produce(broker.bootstrap, topic, records("after"))
    assert_no_more(client, broker, topic, 0)
    assert [record.value for record in client.fetch(broker.bootstrap, topic, 2)] == [b"open", b"after"]
    producer.commit()
    assert committed(client, broker, topic, 2) == [b"open", b"after"]
    producer.close()


@pytest.mark.program("transactions: many, aborted and committed in turn, large and compressed")
@each_release
def test_many_transactions_in_turn(client, broker, topic):
    make_topic(client, broker, topic)
    producer = client.transaction(broker.bootstrap, topic, **{"compression.type": "lz4", "batch.size": "2000"})
    kept = []
    for number in range(30):
        producer.begin()
        values = [f"{number}-{i}-" + "x" * 300 for i in range(20)]
        producer.send(topic, records(*values))
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            kept += [value.encode() for value in values]
    producer.close()
    assert committed(client, broker, topic, len(kept)) == kept
    assert_no_more(client, broker, topic, len(kept))


@pytest.mark.program("transactions: a newer producer fences the older")
@each_release
def test_a_newer_producer_fences_the_older(client, broker, topic):
    make_topic(client, broker, topic)
    older = client.transaction(broker.bootstrap, topic)
    older.begin()
    older.send(topic, records("of the older"))
    newer = client.transaction(broker.bootstrap, topic)
    with pytest.raises(Refused, match="ProducerFencedException|InvalidProducerEpochException"):
        older.commit()
    with pytest.raises(Refused, match="ProducerFencedException|InvalidProducerEpochException|KafkaException"):
        older.begin()
        older.send(topic, records("of the older again"))
    newer.begin()
    newer.send(topic, records("of the newer"))
    newer.commit()
    assert committed(client, broker, topic, 1) == [b"of the newer"]
    assert_no_more(client, broker, topic, 1)
    older.vanish()
    newer.close()


@pytest.mark.program("transactions: a crashed producer's is aborted when it comes back")
@each_release
def test_what_a_crashed_producer_left_open_is_aborted_when_it_comes_back(client, broker, topic):
    make_topic(client, broker, topic)
    crashed = client.transaction(broker.bootstrap, topic)
    crashed.begin()
    crashed.send(topic, records("left open"))
    crashed.vanish()
    assert_no_more(client, broker, topic, 0)
    back = client.transaction(broker.bootstrap, topic)
    back.begin()
    back.send(topic, records("once more"))
    back.commit()
    assert committed(client, broker, topic, 1) == [b"once more"]
    back.close()


@pytest.mark.program("transactions: offsets of a group, committed and aborted with the records")
@each_release
def test_offsets_are_committed_with_the_transaction(client, broker, topic):
    make_topic(client, broker, topic)
    output = f"{topic}-out"
    make_topic(client, broker, output)
    client.produce(broker.bootstrap, topic, records(*"abcdef"))
    arguments = {"bootstrap": broker.bootstrap, "group": topic, "topic": topic}
    member = client.join(broker.bootstrap, topic, topic)
    member.read(6)
    producer = client.transaction(broker.bootstrap, topic)

    producer.begin()
    producer.send(output, records("A", "B"))
    producer.send_offsets(member, topic, {0: 2})
    # Pending: not yet the group's offset, and a reader that asks for stable offsets has to wait.
    assert client.ask("group_offsets", **arguments) == {}
    producer.commit()
    wait_until(lambda: client.ask("group_offsets", **arguments) == {"0": 2}, 10, "the offset of the transaction")
    producer.begin()
    producer.send(output, records("gone"))
    producer.send_offsets(member, topic, {0: 5})
    producer.abort()
    assert member.committed(topic) == 2
    assert committed(client, broker, output, 2) == [b"A", b"B"]
    assert_no_more(client, broker, output, 2)
    producer.close()
    member.close()


@pytest.mark.program("transactions: offsets of a member that lost its place are refused")
@each_release
def test_offsets_of_a_member_that_lost_its_place_are_refused(client, broker, topic):
    make_topic(client, broker, topic)
    client.produce(broker.bootstrap, topic, records("a"))
    lost = client.join(broker.bootstrap, topic, topic, settings={"max.poll.interval.ms": "1000"})
    lost.read(1)
    # Not polled for longer than its interval: out of the group, and another takes the partition.
    other = client.join(broker.bootstrap, topic, topic)
    other.read(1)
    producer = client.transaction(broker.bootstrap, topic)
    producer.begin()
    with pytest.raises(Refused, match="CommitFailedException"):
        producer.send_offsets(lost, topic, {0: 1})
    producer.abort()
    assert other.committed(topic) is None
    producer.close()
    other.close()
    lost.close()


@pytest.mark.program("transactions: one that takes too long is aborted by the broker")
@java_4
def test_a_transaction_that_takes_too_long_is_aborted(client, broker, topic):
    make_topic(client, broker, topic)
    producer = client.transaction(broker.bootstrap, topic, **{"transaction.timeout.ms": "1000"})
    producer.begin()
    producer.send(topic, records("too slow"))
    client.produce(broker.bootstrap, topic, records("after"))
    assert committed(client, broker, topic, 1, timeout=30) == [b"after"]
    with pytest.raises(Refused, match="InvalidTxnStateException|ProducerFencedException|InvalidProducerEpochException"):
        producer.commit()
    producer.vanish()
    with pytest.raises(Refused, match="InvalidTxnTimeoutException|transaction timeout"):
        client.transaction(broker.bootstrap, f"{topic}-2", **{"transaction.timeout.ms": "999999999"})


@pytest.mark.program("transactions: listed, described, aborted and fenced by an operator")
@java_4
def test_an_operator_sees_and_ends_transactions(client, broker, topic):
    make_topic(client, broker, topic)
    bootstrap = broker.bootstrap
    producer = client.transaction(bootstrap, topic)
    producer.begin()
    producer.send(topic, records("a", "b"))
    assert client.ask("list_transactions", bootstrap=bootstrap)[topic] == "Ongoing"
    told = client.ask("describe_transaction", bootstrap=bootstrap, transactional_id=topic)
    assert (told["state"], told["timeout_ms"], told["partitions"]) == ("Ongoing", 60_000, [f"{topic}-0"])
    (state,) = client.ask("describe_producers", bootstrap=bootstrap, topic=topic)
    assert state["producer_id"] == told["producer_id"] and state["epoch"] == told["epoch"]
    assert (state["last_sequence"], state["transaction_start"]) == (1, 0)

    client.ask(
        "abort_transaction",
        bootstrap=bootstrap,
        topic=topic,
        producer_id=state["producer_id"],
        epoch=state["epoch"],
        coordinator_epoch=max(state["coordinator_epoch"], 0),
    )
    (state,) = client.ask("describe_producers", bootstrap=bootstrap, topic=topic)
    assert state["transaction_start"] == -1
    client.produce(bootstrap, topic, records("after"))
    assert committed(client, broker, topic, 1) == [b"after"]
    producer.vanish()

    other = client.transaction(bootstrap, f"{topic}-2")
    other.begin()
    other.send(topic, records("fenced"))
    client.ask("fence_producer", bootstrap=bootstrap, transactional_id=f"{topic}-2")
    with pytest.raises(Refused, match="ProducerFencedException|InvalidProducerEpochException"):
        other.commit()
    other.vanish()
    assert_no_more(client, broker, topic, 1)
    with pytest.raises(Refused, match="TransactionalIdNotFoundException"):
        client.ask("describe_transaction", bootstrap=bootstrap, transactional_id="nobody")


@pytest.mark.program("transactions: open, and committed, through kill -9 of the broker")
@each_release
def test_a_transaction_survives_kill_9_of_the_broker(client, own_server, topic):
    broker = own_server
    make_topic(client, broker, topic)
    producer = client.transaction(broker.bootstrap, topic)
    producer.begin()
    producer.send(topic, records("committed before"))
    producer.commit()
    producer.begin()
    producer.send(topic, records("gone"))
    producer.abort()
    producer.begin()
    producer.send(topic, records("half before"))
    left = client.transaction(broker.bootstrap, f"{topic}-left")
    left.begin()
    left.send(topic, records("never ended"))

    broker.kill_and_restart()
    producer.send(topic, records("half after"))
    producer.commit()
    assert committed(client, broker, topic, 2) == [b"committed before", b"half before"]
    assert_no_more(client, broker, topic, 2)
    left.vanish()
    # The one that never ended holds the rest back until its producer is back.
    client.transaction(broker.bootstrap, f"{topic}-left").close()
    assert committed(client, broker, topic, 3) == [b"committed before", b"half before", b"half after"]
    assert_no_more(client, broker, topic, 3)
    producer.close()
