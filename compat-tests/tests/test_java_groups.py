"""Consumer groups of Apache Kafka's own Java client: every protocol and assignor it has, seen from inside its members."""

from __future__ import annotations

import itertools
import time

import pytest

from harness.clients.base import Refused
from harness.clients.java import JAVA_4, RELEASES, Java, Member
from harness.process import wait_until
from harness.record import Record

each_release = pytest.mark.parametrize("client", RELEASES, ids=str)
java_4 = pytest.mark.parametrize("client", [JAVA_4], ids=str)

ASSIGNOR = "partition.assignment.strategy"
CLIENTS_PACKAGE = "org.apache.kafka.clients.consumer."
EAGER = {ASSIGNOR: f"{CLIENTS_PACKAGE}RangeAssignor"}
COOPERATIVE = {ASSIGNOR: f"{CLIENTS_PACKAGE}CooperativeStickyAssignor"}
CONSUMER = {"group.protocol": "consumer"}
QUICK_METADATA = {"metadata.max.age.ms": "500"}


def make_topic(client: Java, broker, topic: str, partitions: int = 4) -> None:
    client.create_topic(broker.bootstrap, topic, partitions)
    wait_until(lambda: client.topics(broker.bootstrap).get(topic) == partitions, 10, f"{topic} in the metadata")


def poll_until(members: list[Member], condition, timeout: float, what: str) -> list[Record]:
    """Polls every member in turn until `condition()`; what they read meanwhile."""
    records: list[Record] = []

    def polled():
        for member in members:
            records.extend(member.poll(0.1))
        return condition()

    wait_until(polled, timeout, what, pause=0)
    return records


def shared_by(members: list[Member], partitions: int):
    """True when the members hold all partitions, each one partition in one place, and nobody holds none."""

    def shared():
        held = [member.assignment() for member in members]
        return all(held) and sorted(itertools.chain(*held)) == list(range(partitions))

    return shared


def partitions_of(events: list[str], what: str) -> list[set[int]]:
    told = (event.partition(" ") for event in events)
    return [{int(p) for p in numbers.split(",") if p} for name, _, numbers in told if name == what]


@pytest.mark.program("eager rebalance: everything is revoked, then shared anew")
@each_release
def test_an_eager_rebalance_revokes_everything(client, broker, topic):
    make_topic(client, broker, topic)
    first = client.join(broker.bootstrap, topic, topic, settings=EAGER)
    poll_until([first], lambda: first.assignment() == {0, 1, 2, 3}, 20, "the first member with all partitions")
    second = client.join(broker.bootstrap, topic, topic, settings=EAGER)
    poll_until([first, second], shared_by([first, second], 4), 20, "two members sharing")
    assert partitions_of(first.events(), "revoked")[-1] == {0, 1, 2, 3}
    assert sorted([first.assignment(), second.assignment()], key=min) == [{0, 1}, {2, 3}]
    first.close()
    poll_until([second], lambda: second.assignment() == {0, 1, 2, 3}, 20, "the second with all partitions")
    second.close()


@pytest.mark.program("cooperative rebalance: only what moves is revoked")
@each_release
def test_a_cooperative_rebalance_revokes_only_what_moves(client, broker, topic):
    make_topic(client, broker, topic)
    first = client.join(broker.bootstrap, topic, topic, settings=COOPERATIVE)
    poll_until([first], lambda: first.assignment() == {0, 1, 2, 3}, 20, "the first member with all partitions")
    second = client.join(broker.bootstrap, topic, topic, settings=COOPERATIVE)
    poll_until([first, second], shared_by([first, second], 4), 20, "two members sharing")
    moved = second.assignment()
    assert len(moved) == 2
    assert [revoked for revoked in partitions_of(first.events(), "revoked") if revoked] == [moved]
    second.close()
    poll_until([first], lambda: first.assignment() == {0, 1, 2, 3}, 20, "the first with all partitions again")
    # What it kept it was never told to give up, nor given twice.
    given = [assigned for assigned in partitions_of(first.events(), "assigned") if assigned]
    assert given == [{0, 1, 2, 3}, moved]
    first.close()


@pytest.mark.program("from eager to cooperative, one member at a time")
@each_release
def test_a_group_moves_from_eager_to_cooperative_by_rolling_restart(client, broker, topic):
    make_topic(client, broker, topic)
    both = {ASSIGNOR: f"{COOPERATIVE[ASSIGNOR]},{EAGER[ASSIGNOR]}"}
    first = client.join(broker.bootstrap, topic, topic, settings=EAGER)
    second = client.join(broker.bootstrap, topic, topic, settings=both)
    poll_until([first, second], shared_by([first, second], 4), 20, "eager and both sharing")
    assert client.ask("describe_group", bootstrap=broker.bootstrap, group=topic)["assignor"] == "range"
    first.close()
    third = client.join(broker.bootstrap, topic, topic, settings=both)
    poll_until([second, third], shared_by([second, third], 4), 20, "both and both sharing")
    assert client.ask("describe_group", bootstrap=broker.bootstrap, group=topic)["assignor"] == "cooperative-sticky"
    second.close()
    third.close()


@pytest.mark.program("members that have no assignor in common")
@each_release
def test_a_member_without_a_common_assignor_is_refused(client, broker, topic):
    make_topic(client, broker, topic)
    first = client.join(broker.bootstrap, topic, topic, settings=EAGER)
    poll_until([first], lambda: first.assignment(), 20, "the first member with partitions")
    other = client.join(broker.bootstrap, topic, topic, settings={ASSIGNOR: f"{CLIENTS_PACKAGE}RoundRobinAssignor"})
    with pytest.raises(Refused, match="InconsistentGroupProtocolException"):
        poll_until([other], lambda: False, 10, "a refusal")
    other.close()
    first.close()


@pytest.mark.program("static members: a restart moves nothing, a twin is fenced")
@each_release
def test_a_static_member_restarts_without_a_rebalance(client, broker, topic):
    make_topic(client, broker, topic)
    as_one, as_two = ({**EAGER, "group.instance.id": name, "session.timeout.ms": "20000"} for name in ("one", "two"))
    first = client.join(broker.bootstrap, topic, topic, settings=as_one)
    second = client.join(broker.bootstrap, topic, topic, settings=as_two)
    poll_until([first, second], shared_by([first, second], 4), 20, "two static members sharing")
    held, events = second.assignment(), first.events()
    second.close()
    again = client.join(broker.bootstrap, topic, topic, settings=as_two)
    poll_until([first, again], shared_by([first, again], 4), 20, "the static member back")
    assert again.assignment() == held
    assert first.events() == events, "the other member was told of the restart"

    twin = client.join(broker.bootstrap, topic, topic, settings=as_two)
    poll_until([first, twin], lambda: twin.assignment() == held, 20, "the twin in the place of the first")
    with pytest.raises(Refused, match="FencedInstanceIdException"):
        poll_until([again], lambda: False, 10, "the replaced member fenced")
    again.close()
    twin.close()
    first.close()


@pytest.mark.program("a member that stops polling loses its partitions")
@each_release
def test_a_member_that_stops_polling_loses_its_partitions(client, broker, topic):
    make_topic(client, broker, topic)
    slow = {**COOPERATIVE, "max.poll.interval.ms": "2000"}
    first = client.join(broker.bootstrap, topic, topic, settings=slow)
    poll_until([first], lambda: first.assignment() == {0, 1, 2, 3}, 20, "the first member with all partitions")
    second = client.join(broker.bootstrap, topic, topic, settings=COOPERATIVE)
    poll_until([second], lambda: second.assignment() == {0, 1, 2, 3}, 30, "the second with what the first lost")
    with pytest.raises(Refused, match="CommitFailedException|RebalanceInProgressException"):
        first.commit()
    poll_until([first, second], shared_by([first, second], 4), 20, "both sharing once the first polls again")
    assert {0, 1, 2, 3} in partitions_of(first.events(), "lost")
    first.close()
    second.close()


@pytest.mark.program("subscription by pattern: a new topic is found")
@each_release
def test_a_pattern_subscription_finds_new_topics(client, broker, topic):
    make_topic(client, broker, f"{topic}-a", 1)
    member = client.join(broker.bootstrap, topic, topic, pattern=f"{topic}-.*", settings=QUICK_METADATA)
    client.produce(broker.bootstrap, f"{topic}-a", [Record(b"from a")])
    assert [record.value for record in member.read(1)] == [b"from a"]
    member.commit()
    make_topic(client, broker, f"{topic}-b", 1)
    client.produce(broker.bootstrap, f"{topic}-b", [Record(b"from b")])
    assert [record.value for record in member.read(1)] == [b"from b"]
    member.close()


@pytest.mark.program("a subscription notices partitions that are added")
@each_release
def test_added_partitions_are_assigned(client, broker, topic):
    make_topic(client, broker, topic, 1)
    member = client.join(broker.bootstrap, topic, topic, settings={**COOPERATIVE, **QUICK_METADATA})
    poll_until([member], lambda: member.assignment() == {0}, 20, "the one partition")
    client.ask("create_partitions", bootstrap=broker.bootstrap, topic=topic, partitions=3)
    poll_until([member], lambda: member.assignment() == {0, 1, 2}, 20, "the added partitions")
    member.close()


@pytest.mark.program("releases 2.8, 3.9 and 4.2 in one group", "java-4")
def test_three_releases_share_one_group(broker, topic):
    make_topic(JAVA_4, broker, topic, 6)
    members = [client.join(broker.bootstrap, topic, topic, settings=COOPERATIVE) for client in RELEASES]
    poll_until(members, shared_by(members, 6), 40, "three releases sharing")
    assert [len(member.assignment()) for member in members] == [2, 2, 2]
    for member in members:
        member.close()


@pytest.mark.program("where to begin without a commit: latest, none, by duration")
@java_4
def test_a_group_without_commits_begins_where_it_is_told(client, broker, topic):
    make_topic(client, broker, topic, 1)
    now = int(time.time() * 1000)
    client.produce(
        broker.bootstrap, topic, [Record(f"{age}".encode(), timestamp=now - age * 1000) for age in (7200, 60)]
    )
    recent = client.join(broker.bootstrap, f"{topic}-1", topic, settings={"auto.offset.reset": "by_duration:PT1H"})
    assert [record.value for record in recent.read(1)] == [b"60"]
    recent.close()
    nowhere = client.join(broker.bootstrap, f"{topic}-2", topic, settings={"auto.offset.reset": "none"})
    with pytest.raises(Refused, match="NoOffsetForPartitionException"):
        nowhere.read(1, 10)
    nowhere.close()


# -- KIP-848: group.protocol=consumer -----------------------------------------------------------------------------


@pytest.mark.program("KIP-848: commit and resume")
@java_4
def test_a_consumer_protocol_group_resumes_where_it_committed(client, broker, topic):
    make_topic(client, broker, topic, 1)
    client.produce(broker.bootstrap, topic, [Record(f"{i}".encode()) for i in range(10)])
    member = client.join(broker.bootstrap, topic, topic, settings=CONSUMER)
    assert [record.value for record in member.read(10)] == [f"{i}".encode() for i in range(10)]
    member.commit()
    assert member.committed(topic) == 10
    told = client.ask("describe_group", bootstrap=broker.bootstrap, group=topic)
    assert (told["type"], told["state"], told["assignor"]) == ("Consumer", "Stable", "uniform")
    assert [one["partitions"] for one in told["members"]] == [[0]]
    assert client.ask("list_all_groups", bootstrap=broker.bootstrap)[topic] == "Consumer consumer Stable"
    member.close()
    client.produce(broker.bootstrap, topic, [Record(f"{i}".encode()) for i in range(10, 15)])
    member = client.join(broker.bootstrap, topic, topic, settings=CONSUMER)
    assert [record.value for record in member.read(5)] == [f"{i}".encode() for i in range(10, 15)]
    member.close()
    client.ask("delete_group", bootstrap=broker.bootstrap, group=topic)
    assert topic not in client.ask("list_all_groups", bootstrap=broker.bootstrap)


@pytest.mark.program("KIP-848: the broker's assignors, uniform and range")
@pytest.mark.parametrize("assignor", ("uniform", "range"))
@java_4
def test_a_consumer_protocol_group_revokes_only_what_moves(client, assignor, broker, topic):
    make_topic(client, broker, topic)
    settings = {**CONSUMER, "group.remote.assignor": assignor}
    first = client.join(broker.bootstrap, topic, topic, settings=settings)
    poll_until([first], lambda: first.assignment() == {0, 1, 2, 3}, 20, "the first member with all partitions")
    second = client.join(broker.bootstrap, topic, topic, settings=settings)
    poll_until([first, second], shared_by([first, second], 4), 40, "two members sharing")
    moved = second.assignment()
    assert len(moved) == 2
    assert [revoked for revoked in partitions_of(first.events(), "revoked") if revoked] == [moved]
    told = client.ask("describe_group", bootstrap=broker.bootstrap, group=topic)
    assert told["assignor"] == assignor
    assert sorted(sum((one["partitions"] for one in told["members"]), [])) == [0, 1, 2, 3]
    if assignor == "range":
        assert sorted([first.assignment(), second.assignment()], key=min) == [{0, 1}, {2, 3}]
    first.close()
    poll_until([second], lambda: second.assignment() == {0, 1, 2, 3}, 40, "the second with all partitions")
    second.close()


@pytest.mark.program("KIP-848: what is refused")
@java_4
def test_a_consumer_protocol_group_refuses_what_it_does_not_have(client, broker, topic):
    make_topic(client, broker, topic)
    with pytest.raises(Refused, match="UnsupportedAssignorException"):
        client.join(broker.bootstrap, topic, topic, settings={**CONSUMER, "group.remote.assignor": "nobody"}).read(
            1, 20
        )
    with pytest.raises(Refused, match="InvalidRegularExpression"):
        client.join(broker.bootstrap, topic, topic, re2="(unclosed", settings=CONSUMER).read(1, 20)


@pytest.mark.program("KIP-848: subscription by RE2 pattern, matched by the broker")
@java_4
def test_the_broker_matches_an_re2_pattern(client, broker, topic):
    make_topic(client, broker, f"{topic}-a", 1)
    make_topic(client, broker, f"{topic}-other", 1)
    client.produce(broker.bootstrap, f"{topic}-a", [Record(b"from a")])
    client.produce(broker.bootstrap, f"{topic}-other", [Record(b"not asked for")])
    member = client.join(broker.bootstrap, topic, topic, re2=f"{topic}-[a-b]$", settings=CONSUMER)
    assert [record.value for record in member.read(1)] == [b"from a"]
    make_topic(client, broker, f"{topic}-b", 1)
    client.produce(broker.bootstrap, f"{topic}-b", [Record(b"from b")])
    assert [record.value for record in member.read(1, 60)] == [b"from b"]
    member.close()


@pytest.mark.program("KIP-848: static members")
@java_4
def test_a_static_member_of_a_consumer_protocol_group_comes_back(client, broker, topic):
    make_topic(client, broker, topic)
    as_one, as_two = ({**CONSUMER, "group.instance.id": name} for name in ("one", "two"))
    first = client.join(broker.bootstrap, topic, topic, settings=as_one)
    second = client.join(broker.bootstrap, topic, topic, settings=as_two)
    poll_until([first, second], shared_by([first, second], 4), 40, "two static members sharing")
    held, events = second.assignment(), first.events()
    twin = client.join(broker.bootstrap, topic, topic, settings=as_two)
    with pytest.raises(Refused, match="UnreleasedInstanceIdException"):
        poll_until([twin], lambda: False, 20, "a refusal of the twin")
    twin.close()
    second.close()
    again = client.join(broker.bootstrap, topic, topic, settings=as_two)
    poll_until([first, again], shared_by([first, again], 4), 40, "the static member back")
    assert again.assignment() == held
    assert first.events() == events, "the other member was told of the restart"
    again.close()
    first.close()


@pytest.mark.program("KIP-848: a classic group migrates online, there and back")
@java_4
def test_a_classic_group_migrates_online_and_back(client, broker, topic):
    make_topic(client, broker, topic)

    def kind():
        return client.ask("describe_group", bootstrap=broker.bootstrap, group=topic)["type"]

    classic = client.join(broker.bootstrap, topic, topic, settings=COOPERATIVE)
    poll_until([classic], lambda: classic.assignment() == {0, 1, 2, 3}, 20, "the classic member with all partitions")
    assert kind() == "Classic"
    client.produce(broker.bootstrap, topic, [Record(b"before", partition=p) for p in range(4)])
    assert len(classic.read(4)) == 4
    classic.commit()

    modern = client.join(broker.bootstrap, topic, topic, settings=CONSUMER)
    read = poll_until([classic, modern], shared_by([classic, modern], 4), 60, "both protocols sharing one group")
    assert kind() == "Consumer"
    assert read == [], "records were read again after the migration"
    client.produce(broker.bootstrap, topic, [Record(b"during", partition=p) for p in range(4)])
    seen: list[Record] = []

    def all_seen():
        return sorted(record.partition for record in seen) == [0, 1, 2, 3]

    def poll_both():
        seen.extend(classic.poll(0.1) + modern.poll(0.1))
        return all_seen()

    wait_until(poll_both, 20, "the records produced during the migration", pause=0)
    # The last member of the consumer protocol leaves: the group is a classic one again.
    modern.close()
    poll_until([classic], lambda: classic.assignment() == {0, 1, 2, 3}, 60, "the classic member with all partitions")
    assert kind() == "Classic"
    classic.close()


@pytest.mark.program("groups of both protocols are where they were after kill -9")
@pytest.mark.parametrize("settings", (COOPERATIVE, CONSUMER), ids=("classic", "consumer"))
@java_4
def test_a_group_survives_kill_9_of_the_broker(client, settings, own_server, topic):
    broker = own_server
    make_topic(client, broker, topic)
    first = client.join(broker.bootstrap, topic, topic, settings=settings)
    second = client.join(broker.bootstrap, topic, topic, settings=settings)
    poll_until([first, second], shared_by([first, second], 4), 40, "two members sharing")
    client.produce(broker.bootstrap, topic, [Record(b"before", partition=p) for p in range(4)])
    seen: list[Record] = []

    def read(count):
        def enough():
            seen.extend(first.poll(0.1) + second.poll(0.1))
            return len(seen) >= count

        wait_until(enough, 60, f"{count} records", pause=0)

    read(4)
    first.commit()
    second.commit()
    broker.kill_and_restart()
    client.produce(broker.bootstrap, topic, [Record(b"after", partition=p) for p in range(4)])
    read(8)
    poll_until([first, second], shared_by([first, second], 4), 60, "two members sharing after the restart")
    assert sorted((record.value, record.partition) for record in seen) == [
        (value, partition) for value in (b"after", b"before") for partition in range(4)
    ]
    first.close()
    second.close()
