"""The classic group protocol, step by step on the wire: the same answers as Apache Kafka's (`--peer kafka`)."""

from __future__ import annotations

import threading
import time

import pytest

from harness.clients import BY_NAME
from harness.process import wait_until
from harness.wire import Wire

CLIENT = BY_NAME["confluent-kafka"]

NONE, OFFSET_METADATA_TOO_LARGE, ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, INVALID_GROUP_ID = 0, 12, 22, 23, 24
UNKNOWN_MEMBER, INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS = 25, 26, 27
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED, FENCED_INSTANCE = 68, 69, 79, 82
TOPIC_SUBSCRIBED = 86


class Member:
    """One member of a group, on a connection of its own: a join waits, and must not block the others."""

    def __init__(self, broker, group: str, session_timeout_ms: int = 10_000, instance: str | None = None):
        self.wire = Wire(broker.kafka_port)
        self.group, self.session_timeout_ms, self.instance = group, session_timeout_ms, instance
        self.id, self.generation = "", -1

    def join(self, protocols=("range",), protocol_type="consumer", metadata=b"\x00\x00"):
        asked = {"group_id": self.group, "session_timeout_ms": self.session_timeout_ms, "rebalance_timeout_ms": 10_000}
        asked |= {"protocol_type": protocol_type, "group_instance_id": self.instance}
        asked["protocols"] = [{"name": name, "metadata": metadata} for name in protocols]
        answer = self.wire.send(11, 7, asked | {"member_id": self.id})
        if answer.error_code == MEMBER_ID_REQUIRED:
            answer = self.wire.send(11, 7, asked | {"member_id": answer.member_id})
        if answer.error_code == NONE:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None):
        asked = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        asked |= {"protocol_type": "consumer", "protocol_name": "range", "group_instance_id": self.instance}
        asked["assignments"] = [{"member_id": who, "assignment": what} for who, what in (assignments or {}).items()]
        return self.wire.send(14, 5, asked)

    def heartbeat(self, generation: int | None = None) -> int:
        asked = {"group_id": self.group, "generation_id": self.generation if generation is None else generation}
        return self.wire.send(12, 4, asked | {"member_id": self.id, "group_instance_id": self.instance}).error_code

    def leave(self) -> int:
        member = {"member_id": self.id, "group_instance_id": self.instance}
        answer = self.wire.send(13, 4, {"group_id": self.group, "members": [member]})
        return answer.error_code or answer.members[0].error_code

    def commit(
        self, topic: str, offset: int, metadata: str = "", member: str | None = None, generation: int | None = None
    ) -> int:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}
        asked = {"group_id": self.group, "topics": [{"name": topic, "partitions": [partition]}]}
        asked["generation_id_or_member_epoch"] = self.generation if generation is None else generation
        asked["member_id"] = self.id if member is None else member
        return self.wire.send(8, 8, asked).topics[0].partitions[0].error_code

    def committed(self, topic: str):
        topics = [{"name": topic, "partition_indexes": [0]}]
        return self.wire.send(9, 7, {"group_id": self.group, "topics": topics}).topics[0].partitions[0]

    def describe(self, version: int = 5):
        return self.wire.send(15, version, {"groups": [self.group]}).groups[0]


def in_background(act):
    """Run `act` beside the test; the result is asked for later."""
    found = []
    thread = threading.Thread(target=lambda: found.append(act()), daemon=True)
    thread.start()

    def result():
        thread.join(20)
        assert found, "the request is still waiting after 20 s"
        return found[0]

    return result


@pytest.fixture
def group(broker, topic):
    """The name of a group whose coordinator is ready, and of a topic."""
    CLIENT.create_topic(broker.bootstrap, topic)
    probe = Member(broker, f"{topic}-probe")
    wait_until(lambda: probe.commit(topic, 0) == NONE, 20, "a coordinator that takes commits")
    return f"{topic}-group"


def alone(broker, group: str, **how) -> Member:
    """The only member of a stable group."""
    member = Member(broker, group, **how)
    assert member.join().error_code == NONE
    assert member.sync({member.id: b"all"}).error_code == NONE
    return member


def test_unknown_members_and_old_generations_are_told_so(broker, group):
    member = alone(broker, group)
    assert member.heartbeat() == NONE
    assert member.heartbeat(generation=member.generation + 1) == ILLEGAL_GENERATION
    stranger = Member(broker, group)
    stranger.id, stranger.generation = "stranger", member.generation
    assert stranger.heartbeat() == UNKNOWN_MEMBER
    assert stranger.sync().error_code == UNKNOWN_MEMBER
    assert stranger.leave() == UNKNOWN_MEMBER


def test_a_second_member_makes_the_first_rejoin_and_both_get_their_part(broker, group):
    first, second = alone(broker, group), Member(broker, group)
    joining = in_background(second.join)
    wait_until(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS, 10, "the first member hears of the rebalance")
    again = first.join()
    assert joining().error_code == NONE and again.error_code == NONE
    assert again.leader == first.id and len(again.members) == 2
    assert first.generation == second.generation
    waiting = in_background(second.sync)
    assert first.sync({first.id: b"left", second.id: b"right"}).assignment == b"left"
    assert waiting().assignment == b"right"
    assert first.heartbeat() == second.heartbeat() == NONE
    assert first.describe().group_state == "Stable"


def test_a_member_that_leaves_makes_the_others_rejoin(broker, group):
    first, second = alone(broker, group), Member(broker, group)
    joining = in_background(second.join)
    wait_until(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS, 10, "a rebalance")
    first.join()
    joining()
    assert second.leave() == NONE
    wait_until(lambda: first.heartbeat() == REBALANCE_IN_PROGRESS, 10, "a rebalance after the leave")
    assert first.join().error_code == NONE


def test_a_silent_member_expires_after_its_session_timeout(broker, group):
    member = alone(broker, group, session_timeout_ms=6000)
    started = time.monotonic()
    wait_until(lambda: member.describe().group_state == "Empty", 15, "the group without its silent member")
    assert time.monotonic() - started > 4
    assert member.heartbeat() == UNKNOWN_MEMBER


def test_members_without_a_common_protocol_do_not_meet(broker, group):
    alone(broker, group)
    assert Member(broker, group).join(protocols=("roundrobin",)).error_code == INCONSISTENT_PROTOCOL
    assert Member(broker, group).join(protocol_type="connect").error_code == INCONSISTENT_PROTOCOL


def test_groups_of_other_protocol_types_work(broker, group):
    worker = Member(broker, group)
    answer = worker.join(protocols=("sessioned",), protocol_type="connect", metadata=b"opaque")
    assert (answer.error_code, bytes(answer.members[0].metadata)) == (NONE, b"opaque")
    assert answer.protocol_name == "sessioned"


def test_joins_with_bad_arguments_are_refused(broker, group):
    assert Member(broker, group, session_timeout_ms=10).join().error_code == INVALID_SESSION_TIMEOUT
    assert Member(broker, "").join().error_code == INVALID_GROUP_ID
    stranger = Member(broker, group)
    stranger.id = "stranger"
    assert stranger.join().error_code == UNKNOWN_MEMBER


def test_a_static_member_returns_to_its_assignment_and_its_old_self_is_fenced(broker, group):
    member = alone(broker, group, instance="instance-1")
    returned = Member(broker, group, instance="instance-1")
    answer = returned.join()
    assert (answer.error_code, answer.generation_id) == (NONE, member.generation)
    assert returned.sync().assignment == b"all"
    assert member.heartbeat() == FENCED_INSTANCE
    assert returned.heartbeat() == NONE


def test_commits_are_checked_against_membership(broker, group, topic):
    member = alone(broker, group)
    assert member.commit(topic, 5, "note") == NONE
    assert member.commit(topic, 6, generation=member.generation - 1 or 99) == ILLEGAL_GENERATION
    assert member.commit(topic, 6, member="stranger") == UNKNOWN_MEMBER
    assert member.commit(topic, 6, "x" * 5000) == OFFSET_METADATA_TOO_LARGE
    found = member.committed(topic)
    assert (found.error_code, found.committed_offset, found.metadata) == (NONE, 5, "note")


def test_what_was_never_committed_is_minus_one_without_an_error(broker, group, topic):
    found = Member(broker, group).committed(topic)
    assert (found.error_code, found.committed_offset, found.metadata) == (NONE, -1, "")


def test_all_offsets_of_a_group_are_asked_for_with_null(broker, group, topic):
    member = Member(broker, group)
    assert member.commit(topic, 3) == NONE
    answer = member.wire.send(9, 7, {"group_id": group, "topics": None})
    assert [(found.name, found.partitions[0].committed_offset) for found in answer.topics] == [(topic, 3)]


def test_a_group_is_deleted_only_when_empty(broker, group, topic):
    def delete():
        return member.wire.send(42, 2, {"groups_names": [group]}).results[0].error_code

    member = alone(broker, group)
    assert member.commit(topic, 3) == NONE
    assert delete() == NON_EMPTY_GROUP
    assert member.leave() == NONE
    assert delete() == NONE
    assert delete() == GROUP_ID_NOT_FOUND
    assert member.committed(topic).committed_offset == -1


def test_an_unknown_group_is_described_as_dead(broker, group):
    found = Member(broker, f"{group}-nobody").describe()
    assert (found.error_code, found.group_state) == (NONE, "Dead")
