"""Client x feature, the transactional rows: what is aborted is never read, and offsets move with the records."""

from __future__ import annotations

import pytest

from harness.clients.base import COPY, READ_COMMITTED, TRANSACTIONS, Refused
from harness.matrix import CREATOR, clients_with, contents, make_topic, values

# The client that writes what others read, and reads what others write.
OTHER = CREATOR


@pytest.mark.feature("transactions: commit and abort")
@clients_with(TRANSACTIONS)
def test_what_a_transaction_aborts_is_in_the_log_and_not_read(client, broker, topic):
    make_topic(broker, topic)
    first, aborted, second = values(5, prefix="kept "), values(5, prefix="gone "), values(5, 5, prefix="kept ")
    client.transact(broker.bootstrap, topic, f"{topic}-tx", [(first, True), (aborted, False), (second, True)])
    committed = OTHER.fetch(broker.bootstrap, topic, 10, read_committed=True)
    assert contents(committed) == contents(first + second)
    everything = OTHER.fetch(broker.bootstrap, topic, 15)
    assert contents(everything) == contents(first + aborted + second)
    # Three markers, each with an offset of its own, lie between and after the records.
    assert OTHER.offset_at(broker.bootstrap, topic, -1) >= 18


@pytest.mark.feature("transactions: a second producer with the same id goes on")
@clients_with(TRANSACTIONS)
def test_a_later_producer_with_the_same_transactional_id_goes_on(client, broker, topic):
    make_topic(broker, topic)
    for start in (0, 3):
        client.transact(broker.bootstrap, topic, f"{topic}-tx", [(values(3, start), True)])
    assert contents(OTHER.fetch(broker.bootstrap, topic, 6, read_committed=True)) == contents(values(6))


@pytest.mark.feature("read_committed consumer")
@clients_with(READ_COMMITTED)
def test_read_committed_drops_what_was_aborted(client, broker, topic):
    make_topic(broker, topic)
    transactions = [(values(5), True), (values(5, prefix="gone "), False), (values(5, 5), True)]
    OTHER.transact(broker.bootstrap, topic, f"{topic}-tx", transactions)
    committed = client.fetch(broker.bootstrap, topic, 10, read_committed=True)
    assert contents(committed) == contents(values(10))
    assert contents(client.fetch(broker.bootstrap, topic, 15)) == contents(
        [record for records, _ in transactions for record in records]
    )
    with pytest.raises((TimeoutError, Refused)):
        client.fetch(broker.bootstrap, topic, 11, read_committed=True, timeout=2)


@pytest.mark.feature("transactions: consume, transform, produce")
@clients_with(COPY)
def test_offsets_are_committed_and_aborted_with_the_transaction(client, broker, topic):
    target, group = f"{topic}-out", f"{topic}-group"
    make_topic(broker, topic)
    make_topic(broker, target)
    OTHER.produce(broker.bootstrap, topic, values(10))

    def copy(count: int, commit: bool) -> None:
        client.copy_in_transaction(broker.bootstrap, topic, target, group, f"{topic}-tx", count, commit)

    copy(10, commit=False)
    copy(10, commit=True)  # the same ten: the abort left the group where it was
    assert contents(OTHER.fetch(broker.bootstrap, target, 10, read_committed=True)) == contents(values(10))
    OTHER.produce(broker.bootstrap, topic, values(5, 10))
    copy(5, commit=True)  # and only what came after the commit
    assert contents(OTHER.fetch(broker.bootstrap, target, 15, read_committed=True)) == contents(values(15))
    with pytest.raises((TimeoutError, Refused)):
        OTHER.fetch(broker.bootstrap, target, 16, read_committed=True, timeout=1)
