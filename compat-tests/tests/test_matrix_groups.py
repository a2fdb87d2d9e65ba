"""Client x feature, the rows about how a member takes part in its group: cooperative, static, KIP-848."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from harness.clients.base import COOPERATIVE, KIP848, STATIC, GroupMember, Membership
from harness.matrix import clients_with, make_topic
from harness.process import wait_until
from harness.record import Record

ALL_FOUR = {0, 1, 2, 3}
COOPERATIVE_MEMBER = Membership(cooperative=True)
SERVER_SIDE_MEMBER = Membership(server_side=True)


def fill(client, broker, topic: str) -> None:
    make_topic(broker, topic, partitions=4)
    client.produce(
        broker.bootstrap, topic, [Record(f"{p}-{i}".encode(), partition=p) for p in range(4) for i in range(5)]
    )


def wait_shared(first: GroupMember, second: GroupMember) -> tuple[set[int], set[int]]:
    """Poll both until they share the four partitions; what each holds."""

    def shared():
        first.poll(0.1)
        second.poll(0.1)
        mine, yours = first.assignment(), second.assignment()
        return (mine, yours) if mine and yours and not mine & yours and mine | yours == ALL_FOUR else None

    return wait_until(shared, 40, "two members sharing four partitions", pause=0)


def wait_alone(member: GroupMember) -> None:
    def alone():
        member.poll(0.1)
        return member.assignment() == ALL_FOUR

    wait_until(alone, 40, "one member holding all partitions", pause=0)


@pytest.mark.feature("group: cooperative rebalance")
@clients_with(COOPERATIVE)
def test_a_cooperative_rebalance_takes_only_what_moves(client, broker, topic):
    fill(client, broker, topic)
    first = client.join(broker.bootstrap, f"{topic}-group", topic, COOPERATIVE_MEMBER)
    first.read(20)
    assert first.assignment() == ALL_FOUR
    second = client.join(broker.bootstrap, f"{topic}-group", topic, COOPERATIVE_MEMBER)
    mine, yours = wait_shared(first, second)
    assert len(mine) == len(yours) == 2
    assert sorted(first.revoked()) == sorted(yours), "the partitions that stay were never taken away"
    first.close()
    wait_alone(second)
    assert second.revoked() == []
    second.close()


@pytest.mark.feature("group: static member comes back")
@clients_with(STATIC)
def test_a_static_member_comes_back_to_its_partitions_and_nobody_notices(client, broker, topic):
    fill(client, broker, topic)
    group = f"{topic}-group"
    first = client.join(broker.bootstrap, group, topic, Membership(instance="one"))
    first.read(20)
    second = client.join(broker.bootstrap, group, topic, Membership(instance="two"))
    mine, yours = wait_shared(first, second)
    taken = len(first.revoked())
    second.close()
    until = time.monotonic() + 1.5  # three heartbeats: an eviction would show
    while time.monotonic() < until:
        first.poll(0.1)
    back = client.join(broker.bootstrap, group, topic, Membership(instance="two"))
    assert wait_shared(first, back) == (mine, yours)
    assert len(first.revoked()) == taken, "the other member kept what it had"
    first.close()
    back.close()


@pytest.mark.feature("group: KIP-848 protocol")
@clients_with(KIP848)
def test_members_of_a_consumer_group_of_kip_848_share_and_resume(client, broker, topic):
    fill(client, broker, topic)
    group = f"{topic}-group"
    first = client.join(broker.bootstrap, group, topic, SERVER_SIDE_MEMBER)
    assert len(first.read(20)) == 20
    assert first.assignment() == ALL_FOUR
    first.commit()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    listed = admin.list_consumer_groups().result(10)
    assert listed.errors == []
    types = {found.group_id: found.type for found in listed.valid}
    assert types[group] == ConsumerGroupType.CONSUMER, "the client fell back to the classic protocol"

    second = client.join(broker.bootstrap, group, topic, SERVER_SIDE_MEMBER)
    mine, yours = wait_shared(first, second)
    assert len(mine) == len(yours) == 2
    first.close()
    wait_alone(second)
    client.produce(broker.bootstrap, topic, [Record(b"late", partition=p) for p in range(4)])
    late = second.read(4)
    assert sorted(record.partition for record in late) == [0, 1, 2, 3], "and nothing that was committed before"
    assert {record.value for record in late} == {b"late"}
    second.commit()
    second.close()
