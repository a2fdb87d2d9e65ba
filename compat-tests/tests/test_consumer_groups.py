"""KIP-848 consumer groups: step by step on the wire, and with librdkafka. All but the restarts run with `--peer kafka` too."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from harness.clients import BY_NAME
from harness.process import wait_until
from harness.record import Record
from harness.wire import Wire

CLIENT = BY_NAME["confluent-kafka"]

NONE, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS, INVALID_CONFIG, INVALID_REQUEST = 0, 25, 27, 40, 42
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED, FENCED_INSTANCE = 68, 69, 79, 82
TOPIC_SUBSCRIBED, UNKNOWN_TOPIC_ID, FENCED_EPOCH, UNRELEASED_INSTANCE = 86, 100, 110, 111
UNSUPPORTED_ASSIGNOR, STALE_EPOCH, INVALID_REGEX = 112, 113, 128
JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
GROUP_RESOURCE = 32


class Member:
    """A member of the consumer protocol: what it knows, and its requests."""

    def __init__(self, wire: Wire, group: str, instance: str | None = None):
        self.wire, self.group, self.instance = wire, group, instance
        self.id, self.epoch, self.owned = str(uuid.uuid4()), 0, {}

    def send(self, epoch: int, **fields):
        asked = {"group_id": self.group, "member_id": self.id, "member_epoch": epoch, "instance_id": self.instance}
        return self.wire.send(68, 1, asked | fields)

    def join(self, topics=(), regex=None, **fields):
        asked = {"rebalance_timeout_ms": 10_000, "topic_partitions": [], "subscribed_topic_names": list(topics)}
        return self.learn(self.send(JOIN, **asked, subscribed_topic_regex=regex, **fields))

    def beat(self, **fields):
        """A heartbeat that says what the member owns: all that it was last told."""
        owned = [{"topic_id": topic, "partitions": sorted(held)} for topic, held in self.owned.items()]
        return self.learn(self.send(self.epoch, topic_partitions=owned, **fields))

    def learn(self, answer):
        if answer.error_code == NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {held.topic_id: set(held.partitions) for held in answer.assignment.topic_partitions}
        return answer

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for held in self.owned.values() for partition in held)

    def commit(self, topic: str, offset: int, epoch: int | None = None, version: int = 9) -> int:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        asked = {"group_id": self.group, "member_id": self.id, "group_instance_id": self.instance}
        asked["generation_id_or_member_epoch"] = self.epoch if epoch is None else epoch
        asked["topics"] = [{"name": topic, "partitions": [partition]}]
        return self.wire.send(8, version, asked).topics[0].partitions[0].error_code

    def fetch_offsets(self, topic: str, epoch: int):
        topics = [{"name": topic, "partition_indexes": [0]}]
        groups = [{"group_id": self.group, "member_id": self.id, "member_epoch": epoch, "topics": topics}]
        return self.wire.send(9, 9, {"groups": groups}).groups[0]


def describe(wire: Wire, group: str):
    return wire.send(69, 1, {"group_ids": [group], "include_authorized_operations": False}).groups[0]


def settle(*members: Member, deadline: float = 10) -> None:
    """Heartbeats until the group is stable."""

    def stable():
        for member in members:
            assert member.beat().error_code == NONE
        return describe(members[0].wire, members[0].group).group_state == "Stable"

    wait_until(stable, deadline, "a stable group")


@pytest.fixture
def wire(broker, topic):
    """A connection, once the coordinator serves; `topic` has four partitions."""
    CLIENT.create_topic(broker.bootstrap, topic, partitions=4)
    wire = Wire(broker.kafka_port)
    probe = Member(wire, f"{topic}-probe")

    def serves():
        # Kafka makes the topic of groups when it is asked for a coordinator.
        found = wire.send(10, 4, {"key_type": 0, "coordinator_keys": [probe.group]}).coordinators[0]
        # And it learns of a new topic a little later.
        return found.error_code == NONE and probe.join([topic]).error_code == NONE and len(probe.partitions) == 4

    wait_until(serves, 30, "a coordinator")
    probe.send(LEAVE)
    return wire


@pytest.fixture
def group(topic):
    return f"{topic}-group"


def test_partitions_move_only_when_their_owner_gave_them_up(wire, group, topic):
    first, second = Member(wire, group), Member(wire, group)
    answer = first.join([topic])
    assert (answer.error_code, answer.member_epoch, first.partitions) == (NONE, 1, [0, 1, 2, 3])
    assert answer.heartbeat_interval_ms > 0
    assert first.beat().assignment is None, "nothing changed, nothing is said"
    assert (second.join([topic]).member_epoch, second.partitions) == (2, [])
    assert first.beat().member_epoch == 1, "told to give up, at its old epoch"
    assert len(first.partitions) == 2
    assert second.beat().assignment is None, "still not given up"
    assert first.beat().member_epoch == 2
    second.beat()
    assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3] and len(second.partitions) == 2
    assert describe(wire, group).group_state == "Stable"
    assert second.send(LEAVE).error_code == NONE
    settle(first)
    assert (first.epoch, first.partitions) == (3, [0, 1, 2, 3])


def test_requests_that_cannot_be_are_refused_by_kafkas_codes(wire, group, topic):
    member = Member(wire, group)
    assert member.send(1).error_code == GROUP_ID_NOT_FOUND
    assert member.send(JOIN, rebalance_timeout_ms=1000, topic_partitions=[]).error_code == INVALID_REQUEST
    assert member.send(JOIN, topic_partitions=[], subscribed_topic_names=[topic]).error_code == INVALID_REQUEST
    assert member.send(-3).error_code == INVALID_REQUEST
    assert member.send(LEAVE_FOR_A_WHILE).error_code == INVALID_REQUEST
    assert member.join([topic], server_assignor="roundrobin").error_code == UNSUPPORTED_ASSIGNOR
    assert member.join(regex="(").error_code == INVALID_REGEX
    assert member.join([topic]).error_code == NONE
    assert member.send(5).error_code == FENCED_EPOCH
    assert Member(wire, group).send(1).error_code == UNKNOWN_MEMBER
    wire.send(8, 8, {"group_id": f"{group}-empty", "topics": []})


def test_a_static_member_leaves_for_a_while_and_returns(wire, group, topic):
    first, other = Member(wire, group, instance="one"), Member(wire, group)
    first.join([topic])
    other.join([topic])
    settle(first, other)
    had, epoch = first.partitions, first.epoch
    returned = Member(wire, group, instance="one")
    assert returned.join([topic]).error_code == UNRELEASED_INSTANCE
    assert first.send(LEAVE_FOR_A_WHILE).member_epoch == LEAVE_FOR_A_WHILE
    other.beat()
    assert len(other.partitions) == 2, "what it left stays its own"
    assert returned.join([topic]).error_code == NONE
    assert (returned.partitions, returned.epoch) == (had, epoch), "no rebalance"
    assert first.send(epoch).error_code == FENCED_INSTANCE


def test_commits_and_fetches_are_checked_against_the_members_epoch(wire, group, topic):
    member = Member(wire, group)
    member.join([topic])
    assert member.commit(topic, 5) == NONE
    assert member.commit(topic, 6, epoch=0) == STALE_EPOCH
    assert Member(wire, group).commit(topic, 6, epoch=1) == UNKNOWN_MEMBER
    assert Member(wire, f"{group}-none").commit(topic, 6, epoch=1) == GROUP_ID_NOT_FOUND
    found = member.fetch_offsets(topic, member.epoch)
    assert (found.error_code, found.topics[0].partitions[0].committed_offset) == (NONE, 5)
    assert member.fetch_offsets(topic, 7).error_code == STALE_EPOCH
    assert Member(wire, group).fetch_offsets(topic, 1).error_code == UNKNOWN_MEMBER


def test_offsets_are_committed_and_fetched_by_topic_id(wire, group, topic):
    topic_id = wire.send(3, 12, {"topics": [{"name": topic}]}).topics[0].topic_id
    unknown = uuid.uuid4()
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}
    topics = [{"topic_id": known, "partitions": [partition]} for known in (topic_id, unknown)]
    answer = wire.send(8, 10, {"group_id": group, "topics": topics})
    assert {found.topic_id: found.partitions[0].error_code for found in answer.topics} == {
        topic_id: NONE,
        unknown: UNKNOWN_TOPIC_ID,
    }
    topics = [{"topic_id": known, "partition_indexes": [0]} for known in (topic_id, unknown)]
    found = wire.send(9, 10, {"groups": [{"group_id": group, "topics": topics}]}).groups[0].topics
    assert {item.topic_id: (item.partitions[0].committed_offset, item.partitions[0].error_code) for item in found} == {
        topic_id: (3, NONE),
        unknown: (-1, UNKNOWN_TOPIC_ID),
    }
    everything = wire.send(9, 10, {"groups": [{"group_id": group, "topics": None}]}).groups[0].topics
    assert [item.topic_id for item in everything] == [topic_id]


def test_groups_are_described_listed_and_deleted_as_what_they_are(wire, group, topic):
    member = Member(wire, group)
    member.join([topic])
    found = describe(wire, group)
    assert (found.error_code, found.group_state, found.assignor_name) == (NONE, "Stable", "uniform")
    assert (found.group_epoch, found.assignment_epoch) == (1, 1)
    [described] = found.members
    assert (described.member_id, described.member_epoch, described.member_type) == (member.id, 1, 1)
    assert list(described.subscribed_topic_names) == [topic]
    assert described.assignment.topic_partitions[0].topic_name == topic
    assert sorted(described.target_assignment.topic_partitions[0].partitions) == [0, 1, 2, 3]

    classic = wire.send(15, 6, {"groups": [group]}).groups[0]
    assert (classic.error_code, classic.group_state) == (GROUP_ID_NOT_FOUND, "Dead")
    assert wire.send(15, 5, {"groups": [group]}).groups[0].error_code == NONE
    assert describe(wire, f"{group}-none").error_code == GROUP_ID_NOT_FOUND

    def listed(**filters):
        asked = {"states_filter": [], "types_filter": []} | filters
        return {item.group_id: item for item in wire.send(16, 5, asked).groups}

    mine = listed(types_filter=["Consumer"])[group]
    assert (mine.protocol_type, mine.group_state, mine.group_type) == ("consumer", "Stable", "consumer")
    assert group not in listed(types_filter=["classic"])
    assert group in listed(states_filter=["stable"]) and group not in listed(states_filter=["Empty"])

    asked = {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
    assert member.commit(topic, 1) == NONE
    assert wire.send(47, 0, asked).topics[0].partitions[0].error_code == TOPIC_SUBSCRIBED
    assert wire.send(42, 2, {"groups_names": [group]}).results[0].error_code == NON_EMPTY_GROUP
    member.send(LEAVE)
    assert describe(wire, group).group_state == "Empty"
    assert wire.send(42, 2, {"groups_names": [group]}).results[0].error_code == NONE
    assert describe(wire, group).error_code == GROUP_ID_NOT_FOUND
    assert group not in listed()


def test_the_range_assignor_gives_stretches(broker, wire, group, topic):
    CLIENT.create_topic(broker.bootstrap, f"{topic}-b", partitions=4)
    members = [Member(wire, group) for _ in range(2)]
    for member in members:
        member.join([topic, f"{topic}-b"], server_assignor="range")

    def everything():
        settle(*members)
        return sum(len(member.partitions) for member in members) == 8

    wait_until(everything, 10, "all partitions of both topics")
    for member in members:
        parts = [sorted(held) for held in member.owned.values()]
        assert len(parts) == 2 and parts[0] == parts[1] and parts[0] in ([0, 1], [2, 3])


def test_new_partitions_and_new_topics_of_an_expression_are_given_out(broker, wire, group, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    member = Member(wire, group)
    assert member.join(regex=f"{topic}-(a|b)").error_code == NONE
    CLIENT.create_topic(broker.bootstrap, f"{topic}-a", partitions=2)
    CLIENT.create_topic(broker.bootstrap, f"{topic}-a-not", partitions=2)

    def owns(count):
        assert member.beat().error_code == NONE
        return len(member.partitions) == count

    wait_until(lambda: owns(2), 30, "the partitions of the first topic")
    for future in admin.create_partitions([NewPartitions(f"{topic}-a", 3)]).values():
        future.result()
    wait_until(lambda: owns(3), 30, "the new partition")
    CLIENT.create_topic(broker.bootstrap, f"{topic}-b", partitions=4)
    wait_until(lambda: owns(7), 30, "the partitions of the second topic")
    assert describe(wire, group).members[0].subscribed_topic_regex == f"{topic}-(a|b)"


def test_a_groups_own_configs_rule_its_heartbeats(wire, group, topic):
    def alter(value, operation=0):
        change = {"name": "consumer.heartbeat.interval.ms", "config_operation": operation, "value": value}
        asked = {"resources": [{"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [change]}]}
        return wire.send(44, 1, asked).responses[0].error_code

    def described():
        asked = [{"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}]
        found = wire.send(32, 4, {"resources": asked}).results[0]
        assert found.error_code == NONE
        return {config.name: (config.value, config.config_source) for config in found.configs}

    member = Member(wire, group)
    usual = member.join([topic]).heartbeat_interval_ms
    assert described()["consumer.heartbeat.interval.ms"][0] == str(usual)
    assert alter("1234") == NONE
    assert described()["consumer.heartbeat.interval.ms"] == ("1234", 8)
    wait_until(lambda: member.beat().heartbeat_interval_ms == 1234, 10, "the group's own interval")
    listed = wire.send(74, 1, {"resource_types": [GROUP_RESOURCE]}).config_resources
    assert group in {resource.resource_name for resource in listed}
    assert alter("1") == INVALID_CONFIG, "below the broker's bound"
    assert alter(None, operation=1) == NONE
    wait_until(lambda: member.beat().heartbeat_interval_ms == usual, 10, "the broker's interval again")


@pytest.mark.weir_only
def test_the_feature_is_finalized(wire):
    answer = wire.send(18, 4, {"client_software_name": "wire", "client_software_version": "1"})
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    ranges = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
    assert (levels["group.version"], ranges["group.version"]) == (1, (0, 1))


# -- both protocols in one group ------------------------------------------------


class ClassicMember:
    """A consumer of the classic protocol, as a client of today that is being upgraded."""

    def __init__(self, wire: Wire, group: str, topic: str):
        self.wire, self.group, self.topic = wire, group, topic
        self.id, self.generation, self.owned = "", -1, []

    def subscription(self) -> bytes:
        def string(text):
            return len(text).to_bytes(2, "big") + text.encode()

        parts = b"".join(partition.to_bytes(4, "big") for partition in self.owned)
        owned = b"\0\0\0\1" + string(self.topic) + len(self.owned).to_bytes(4, "big") + parts
        return b"\0\1\0\0\0\1" + string(self.topic) + b"\xff\xff\xff\xff" + (owned if self.owned else b"\0\0\0\0")

    def join(self):
        asked = {"group_id": self.group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
        asked |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": self.subscription()}]}
        answer = self.wire.send(11, 7, asked | {"member_id": self.id})
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            answer = self.wire.send(11, 7, asked | {"member_id": self.id})
        if answer.error_code == NONE:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignments: dict[str, list[int]] | None = None) -> int:
        asked = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        asked |= {"protocol_type": "consumer", "protocol_name": "range"}
        asked["assignments"] = [
            {"member_id": who, "assignment": self.assignment(what)} for who, what in (assignments or {}).items()
        ]
        answer = self.wire.send(14, 5, asked)
        if answer.error_code == NONE:
            self.owned = self.partitions_of(bytes(answer.assignment))
        return answer.error_code

    def assignment(self, partitions: list[int]) -> bytes:
        parts = b"".join(partition.to_bytes(4, "big") for partition in partitions)
        name = len(self.topic).to_bytes(2, "big") + self.topic.encode()
        return b"\0\1\0\0\0\1" + name + len(partitions).to_bytes(4, "big") + parts + b"\xff\xff\xff\xff"

    def partitions_of(self, assignment: bytes) -> list[int]:
        if int.from_bytes(assignment[2:6], "big") == 0:
            return []
        at = 8 + len(self.topic)
        count = int.from_bytes(assignment[at : at + 4], "big")
        return [int.from_bytes(assignment[at + 4 + 4 * i : at + 8 + 4 * i], "big") for i in range(count)]

    def heartbeat(self) -> int:
        asked = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        return self.wire.send(12, 4, asked).error_code

    def follow(self) -> None:
        """A heartbeat, and what a client does when it is told to rejoin."""
        if self.heartbeat() == REBALANCE_IN_PROGRESS:
            assert self.join().error_code == NONE
            self.sync()


def test_a_classic_group_goes_up_and_down_with_its_members_in_it(wire, group, topic):
    classic = ClassicMember(wire, group, topic)
    assert classic.join().error_code == NONE
    assert classic.sync({classic.id: [0, 1, 2, 3]}) == NONE
    assert (describe(wire, group).error_code, classic.heartbeat()) == (GROUP_ID_NOT_FOUND, NONE)

    member = Member(wire, group)
    assert member.join([topic]).error_code == NONE
    found = describe(wire, group)
    assert {item.member_id: item.member_type for item in found.members} == {classic.id: 0, member.id: 1}

    def shared():
        classic.follow()
        member.beat()
        return len(classic.owned) == len(member.partitions) == 2

    wait_until(shared, 10, "half the partitions for each")
    assert sorted(classic.owned + member.partitions) == [0, 1, 2, 3]
    assert describe(wire, group).group_state == "Stable"

    assert member.send(LEAVE).error_code == NONE
    assert describe(wire, group).error_code == GROUP_ID_NOT_FOUND, "it is a classic group again"
    found = wire.send(15, 6, {"groups": [group]}).groups[0]
    assert (found.error_code, [item.member_id for item in found.members]) == (NONE, [classic.id])
    assert classic.heartbeat() == REBALANCE_IN_PROGRESS
    answer = classic.join()
    assert (answer.error_code, answer.leader) == (NONE, classic.id)
    assert classic.sync({classic.id: [0, 1, 2, 3]}) == NONE and classic.owned == [0, 1, 2, 3]


def test_a_group_that_is_no_group_of_consumers_does_not_go_up(wire, group, topic):
    asked = {"group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": ""}
    asked |= {"protocol_type": "connect", "protocols": [{"name": "sessioned", "metadata": b"opaque"}]}
    answer = wire.send(11, 7, asked)
    answer = wire.send(11, 7, asked | {"member_id": answer.member_id})
    assert answer.error_code == NONE
    assert Member(wire, group).join([topic]).error_code == GROUP_ID_NOT_FOUND
    assert wire.send(15, 6, {"groups": [group]}).groups[0].protocol_type == "connect"


def test_an_empty_group_takes_either_protocol(wire, group, topic):
    member = Member(wire, group)
    member.join([topic])
    assert member.commit(topic, 7) == NONE
    member.send(LEAVE)
    classic = ClassicMember(wire, group, topic)
    assert classic.join().error_code == NONE
    assert wire.send(16, 5, {"types_filter": ["classic"], "states_filter": []}).error_code == NONE
    found = wire.send(9, 7, {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]})
    assert found.topics[0].partitions[0].committed_offset == 7, "offsets stay with the group"


# -- a hundred members ----------------------------------------------------------


def test_a_hundred_consumer_members_settle_quickly(broker, wire, group, topic):
    CLIENT.create_topic(broker.bootstrap, f"{topic}-wide", partitions=200)
    members = [Member(Wire(broker.kafka_port), group) for _ in range(100)]
    started = time.monotonic()
    for member in members:
        assert member.join([f"{topic}-wide"]).error_code == NONE
    rounds = 0
    while sum(len(member.partitions) for member in members) < 200 or describe(wire, group).group_state != "Stable":
        rounds += 1
        assert rounds <= 8
        for member in members:
            assert member.beat().error_code == NONE
    took = time.monotonic() - started
    print(f"100 consumer members: {took:.2f} s, {rounds} rounds of heartbeats")
    assert sorted(partition for member in members for partition in member.partitions) == list(range(200))
    assert took < 20
    for member in members:
        member.wire.close()


def test_a_hundred_classic_members_settle_quickly(broker, wire, group, topic):
    members = [ClassicMember(Wire(broker.kafka_port), group, topic) for _ in range(100)]
    done, failed = [], []

    def run(member):
        try:
            for _ in range(50):
                answer = member.join()
                if answer.error_code != NONE:
                    continue
                given = {item.member_id: [] for item in answer.members} if answer.leader == member.id else None
                if member.sync(given) != NONE:
                    continue
                settled.wait(0.05)
                if len(done) == 100 or member.heartbeat() == NONE:
                    done.append(member.id)
                    while not settled.is_set():
                        if member.heartbeat() == REBALANCE_IN_PROGRESS:
                            done.remove(member.id)
                            break
                        settled.wait(0.2)
                    else:
                        return
        except Exception as error:  # noqa: BLE001 - reported by the test
            failed.append(error)

    settled = threading.Event()
    started = time.monotonic()
    threads = [threading.Thread(target=run, args=(member,), daemon=True) for member in members]
    for thread in threads:
        thread.start()

    def everybody():
        assert not failed, failed
        found = wire.send(15, 5, {"groups": [group]}).groups[0]
        return found.group_state == "Stable" and len(found.members) == 100

    wait_until(everybody, 30, "a stable group of a hundred")
    took = time.monotonic() - started
    print(f"100 classic members: {took:.2f} s")
    settled.set()
    for thread in threads:
        thread.join(20)
    assert took < 20


# -- librdkafka -----------------------------------------------------------------


def consumer(
    bootstrap: str, group: str, *, protocol: str = "consumer", instance: str | None = None, **more
) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 1000,
        **more,
    }
    if protocol == "classic":
        settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        settings |= {"partition.assignment.strategy": "cooperative-sticky"}
    if instance:
        settings["group.instance.id"] = instance
    return Consumer(settings)


class Reader:
    """A consumer that is polled, and what it has read."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **how):
        self.consumer = consumer(bootstrap, group, **how)
        self.consumer.subscribe(topics)
        self.read: list[tuple[str, int, int]] = []

    def poll(self, seconds: float = 0.1) -> None:
        for message in self.consumer.consume(500, seconds):
            if message.error() is None:
                self.read.append((message.topic(), message.partition(), message.offset()))

    @property
    def assignment(self) -> set[tuple[str, int]]:
        return {(held.topic, held.partition) for held in self.consumer.assignment()}

    def close(self) -> None:
        self.consumer.close()


def until(readers: list[Reader], condition, what: str, deadline: float = 40) -> None:
    def holds():
        for reader in readers:
            reader.poll(0.05)
        return condition()

    wait_until(holds, deadline, what, pause=0.01)


def fill(bootstrap: str, topic: str, partitions: int, per_partition: int = 10) -> None:
    records = [
        Record(f"{partition}-{index}".encode(), partition=partition)
        for partition in range(partitions)
        for index in range(per_partition)
    ]
    CLIENT.produce(bootstrap, topic, records)


def shares(readers: list[Reader], partitions: int) -> bool:
    """Whether the readers have all partitions, each one once, and none is without."""
    held = [held for reader in readers for held in reader.assignment]
    return len(held) == len(set(held)) == partitions and all(reader.assignment for reader in readers)


@pytest.fixture
def data(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, partitions=4)
    fill(broker.bootstrap, topic, 4)
    return topic


def test_librdkafka_rebalances_commits_and_resumes(broker, data, group):
    first = Reader(broker.bootstrap, group, [data])
    until([first], lambda: len(first.read) == 40, "all records")
    first.consumer.commit(asynchronous=False)
    second = Reader(broker.bootstrap, group, [data])
    until([first, second], lambda: shares([first, second], 4), "two readers with two partitions each")
    fill(broker.bootstrap, data, 4)
    until([first, second], lambda: len(first.read) + len(second.read) == 80, "the new records, each once")
    assert len(set(first.read + second.read)) == 80 and second.read
    first.consumer.commit(asynchronous=False)
    second.consumer.commit(asynchronous=False)
    second.close()
    until([first], lambda: shares([first], 4), "one reader with everything")
    first.close()
    third = Reader(broker.bootstrap, group, [data])
    until([third], lambda: shares([third], 4), "a new reader with everything")
    fill(broker.bootstrap, data, 4, per_partition=1)
    until([third], lambda: len(third.read) == 4, "only what is new")
    third.close()


def test_librdkafka_static_members_keep_their_partitions(broker, data, group):
    readers = [Reader(broker.bootstrap, group, [data], instance=f"i{index}") for index in range(2)]
    until(readers, lambda: shares(readers, 4), "two partitions each")
    had = readers[0].assignment
    wire = Wire(broker.kafka_port)
    epoch = describe(wire, group).group_epoch
    readers[0].close()
    readers[0] = Reader(broker.bootstrap, group, [data], instance="i0")
    until(readers, lambda: shares(readers, 4), "both again")
    assert readers[0].assignment == had
    assert describe(wire, group).group_epoch == epoch, "no rebalance"
    for reader in readers:
        reader.close()


def test_librdkafka_subscribes_by_regular_expression(broker, data, group):
    reader = Reader(broker.bootstrap, group, [f"^{data}-[xy]$"])
    for name in ("x", "z"):
        CLIENT.create_topic(broker.bootstrap, f"{data}-{name}", partitions=2)
    until([reader], lambda: reader.assignment == {(f"{data}-x", 0), (f"{data}-x", 1)}, "the one that matches")
    CLIENT.create_topic(broker.bootstrap, f"{data}-y", partitions=1)
    until([reader], lambda: len(reader.assignment) == 3, "the one that came later")
    reader.close()


def test_librdkafka_migrates_up_and_down(broker, data, group):
    classic = Reader(broker.bootstrap, group, [data], protocol="classic")
    until([classic], lambda: len(classic.read) == 40, "all records")
    classic.consumer.commit(asynchronous=False)
    modern = Reader(broker.bootstrap, group, [data])
    both = [classic, modern]
    until(both, lambda: shares(both, 4), "both protocols in one group")
    wire = Wire(broker.kafka_port)
    assert sorted(member.member_type for member in describe(wire, group).members) == [0, 1]
    fill(broker.bootstrap, data, 4, per_partition=5)
    until(both, lambda: len(classic.read) + len(modern.read) == 60, "the new records")
    assert len(set(classic.read + modern.read)) == 60, "each once"
    for reader in both:
        reader.consumer.commit(asynchronous=False)
    modern.close()
    until([classic], lambda: shares([classic], 4), "the classic member alone, in a classic group")
    assert describe(wire, group).error_code == GROUP_ID_NOT_FOUND
    fill(broker.bootstrap, data, 4, per_partition=1)
    until([classic], lambda: len(classic.read) + len(modern.read) == 64, "still reading")
    classic.close()
    modern = Reader(broker.bootstrap, group, [data])
    until([modern], lambda: shares([modern], 4), "an upgrade of the empty group")
    modern.close()


def test_librdkafkas_admin_sees_the_group(broker, data, group):
    reader = Reader(broker.bootstrap, group, [data])
    until([reader], lambda: shares([reader], 4), "everything")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.list_consumer_groups().result()
    mine = next(item for item in found.valid if item.group_id == group)
    assert mine.state == ConsumerGroupState.STABLE and mine.type.name == "CONSUMER"
    reader.close()


# -- restarts ---------------------------------------------------------------------

FAST = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
}


def state_of(wire: Wire, group: str) -> dict:
    found = describe(wire, group)
    assert found.error_code == NONE
    members = {
        member.member_id: (
            member.member_epoch,
            member.instance_id,
            tuple(member.subscribed_topic_names),
            member.subscribed_topic_regex,
            tuple(
                sorted((held.topic_name, tuple(sorted(held.partitions))) for held in member.assignment.topic_partitions)
            ),
            tuple(
                sorted(
                    (held.topic_name, tuple(sorted(held.partitions)))
                    for held in member.target_assignment.topic_partitions
                )
            ),
        )
        for member in found.members
    }
    return {"state": found.group_state, "epochs": (found.group_epoch, found.assignment_epoch), "members": members}


@pytest.mark.weir_only
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_restart_finds_the_group_as_it_was(start_broker, topic, group, how):
    broker = start_broker({"group.consumer.session.timeout.ms": "60000"})
    CLIENT.create_topic(broker.bootstrap, topic, partitions=6)
    wire = Wire(broker.kafka_port)
    members = [Member(wire, group), Member(wire, group, instance="one"), Member(wire, group)]
    members[0].join([topic])
    members[1].join([topic])
    members[2].join(regex=f"{topic}.*")
    for _ in range(4):
        for member in members[:2]:
            member.beat()
    # The third one is on its way: it has to wait for what the others have to give up.
    before = state_of(wire, group)
    assert members[0].commit(topic, 3) == NONE
    if how == "kill":
        broker.kill()
    else:
        broker.stop()
    broker.start()
    wire = Wire(broker.kafka_port)
    assert state_of(wire, group) == before
    for member in members:
        member.wire = wire
    settle(*members)
    assert sorted(partition for member in members for partition in member.partitions) == list(range(6))
    assert members[0].fetch_offsets(topic, members[0].epoch).topics[0].partitions[0].committed_offset == 3


@pytest.mark.weir_only
def test_librdkafka_reads_on_through_kill_minus_nine(start_broker, topic, group):
    broker = start_broker(FAST)
    CLIENT.create_topic(broker.bootstrap, topic, partitions=4)
    fill(broker.bootstrap, topic, 4)
    readers = [Reader(broker.bootstrap, group, [topic]) for _ in range(2)]
    until(readers, lambda: sum(len(reader.read) for reader in readers) >= 40 and shares(readers, 4), "all records")
    for round_ in range(3):
        for reader in readers:
            reader.consumer.commit(asynchronous=False)
        broker.kill()
        broker.start()
        fill(broker.bootstrap, topic, 4, per_partition=5)
        wanted = 40 + 20 * (round_ + 1)
        until(
            readers,
            lambda wanted=wanted: len({*readers[0].read, *readers[1].read}) == wanted,
            f"the records of round {round_}",
            60,
        )
        until(readers, lambda: shares(readers, 4), "two partitions each")
    for reader in readers:
        reader.consumer.commit(asynchronous=False)
        reader.close()
    again = consumer(broker.bootstrap, group)
    committed = again.committed([TopicPartition(topic, partition) for partition in range(4)], timeout=10)
    assert [held.offset for held in committed] == [25] * 4
    again.close()
