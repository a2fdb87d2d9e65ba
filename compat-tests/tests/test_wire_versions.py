"""Every advertised version of every advertised API is spoken: asked with foreign schemas, answered in the exact layout.

This is invariant PRO-2: an API that is advertised and has no scenario here fails the test.
"""

from __future__ import annotations

import itertools

import pytest

from harness.clients import BY_NAME
from harness.process import wait_until
from harness.record import Record
from harness.txn import WireProducer
from harness.wire import REQUESTS, Wire, record_batch

CLIENT = BY_NAME["confluent-kafka"]
NONE, INVALID_REQUEST, SECURITY_DISABLED, MEMBER_ID_REQUIRED = 0, 42, 54, 79
ELECTION_NOT_NEEDED, NO_REASSIGNMENT_IN_PROGRESS, RESOURCE_NOT_FOUND, TRANSACTIONAL_ID_NOT_FOUND = 84, 85, 91, 105
TRANSACTION_ABORTABLE = 120
SUBSCRIPTION = bytes.fromhex("000000000001000474657374ffffffff")  # ConsumerProtocol v0: topic "test", no user data
PROTOCOLS = [{"name": "range", "metadata": SUBSCRIPTION}]

_numbers = itertools.count()


class Scenario:
    """A topic, a connection, and one method per API that asks for something real at a version."""

    def __init__(self, broker, topic: str):
        self.broker, self.topic = broker, topic
        self.wire = Wire(broker.kafka_port)
        self.topic_id = self.wire.send(3, 12, {"topics": [{"name": topic}]}).topics[0].topic_id
        # A broker that has just started may still be making its coordinators; clients wait for them, so do we.
        for ask in (self.find_coordinator, self.offset_commit, self.init_producer_id):
            wait_until(lambda ask=ask: self.answers(ask), 20, f"{ask.__name__} without an error")

    @staticmethod
    def answers(ask) -> bool:
        try:
            ask(3)
            return True
        except AssertionError:
            return False

    @staticmethod
    def name(kind: str) -> str:
        return f"wire-{kind}-{next(_numbers)}"

    def produce(self, version):
        partitions = [{"index": 0, "records": record_batch(b"one", b"two")}]
        topic = {"name": self.topic, "topic_id": self.topic_id, "partition_data": partitions}
        answer = self.wire.send(0, version, {"acks": -1, "timeout_ms": 5000, "topic_data": [topic]})
        found = answer.responses[0].partition_responses[0]
        assert (found.index, found.error_code) == (0, NONE)
        assert found.base_offset >= 0

    def fetch(self, version):
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        topic = {"topic": self.topic, "topic_id": self.topic_id, "partitions": [partition]}
        asked = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": [topic]}
        answer = self.wire.send(1, version, asked)
        found = answer.responses[0].partitions[0]
        assert (found.partition_index, found.error_code) == (0, NONE)
        assert found.high_watermark >= 3 and b"first" in bytes(found.records)

    def list_offsets(self, version):
        partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        asked = {"replica_id": -1, "topics": [{"name": self.topic, "partitions": [partition]}]}
        found = self.wire.send(2, version, asked).topics[0].partitions[0]
        assert found.error_code == NONE and found.offset >= 3

    def metadata(self, version):
        answer = self.wire.send(3, version, {"topics": [{"name": self.topic}], "allow_auto_topic_creation": False})
        assert answer.topics[0].error_code == NONE and answer.topics[0].name == self.topic
        assert answer.topics[0].partitions[0].leader_id == answer.brokers[0].node_id

    def offset_commit(self, version):
        partition = {"partition_index": 0, "committed_offset": 2, "committed_metadata": "m"}
        topic = {"name": self.topic, "topic_id": self.topic_id, "partitions": [partition]}
        answer = self.wire.send(8, version, {"group_id": "wire-simple", "topics": [topic]})
        assert answer.topics[0].partitions[0].error_code == NONE

    def offset_fetch(self, version):
        self.offset_commit(8)
        topic = {"name": self.topic, "partition_indexes": [0]}
        group = {"group_id": "wire-simple", "topics": [topic | {"topic_id": self.topic_id}]}
        asked = {"group_id": "wire-simple", "topics": [topic], "groups": [group]}
        answer = self.wire.send(9, version, asked)
        found = (answer.groups[0] if version >= 8 else answer).topics[0].partitions[0]
        assert (found.error_code, found.committed_offset, found.metadata) == (NONE, 2, "m")

    def find_coordinator(self, version):
        answer = self.wire.send(10, version, {"key": "wire-simple", "key_type": 0, "coordinator_keys": ["wire-simple"]})
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code == NONE and found.port > 0

    def join_group(self, version):
        self.join(version, self.name("join"))

    def join(self, version: int, group: str) -> tuple[str, int]:
        """The member id and generation of the only member of a new group."""
        asked = {"group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": ""}
        asked |= {"protocol_type": "consumer", "protocols": PROTOCOLS}
        answer = self.wire.send(11, version, asked)
        if answer.error_code == MEMBER_ID_REQUIRED:
            assert version >= 4
            answer = self.wire.send(11, version, asked | {"member_id": answer.member_id})
        assert answer.error_code == NONE
        assert answer.leader == answer.member_id and answer.protocol_name == "range"
        assert [member.member_id for member in answer.members] == [answer.member_id]
        return answer.member_id, answer.generation_id

    def sync(self, version: int, group: str) -> tuple[str, int]:
        member, generation = self.join(5, group)
        asked = {"group_id": group, "generation_id": generation, "member_id": member, "protocol_type": "consumer"}
        asked |= {"protocol_name": "range", "assignments": [{"member_id": member, "assignment": b"mine"}]}
        answer = self.wire.send(14, version, asked)
        assert (answer.error_code, bytes(answer.assignment)) == (NONE, b"mine")
        return member, generation

    def sync_group(self, version):
        self.sync(version, self.name("sync"))

    def heartbeat(self, version):
        group = self.name("heartbeat")
        member, generation = self.sync(3, group)
        asked = {"group_id": group, "generation_id": generation, "member_id": member}
        assert self.wire.send(12, version, asked).error_code == NONE

    def leave_group(self, version):
        group = self.name("leave")
        member, _generation = self.sync(3, group)
        asked = {"group_id": group, "member_id": member, "members": [{"member_id": member}]}
        assert self.wire.send(13, version, asked).error_code == NONE

    def describe_groups(self, version):
        group = self.name("describe")
        member, _generation = self.sync(3, group)
        found = self.wire.send(15, version, {"groups": [group]}).groups[0]
        assert (found.error_code, found.group_state, found.members[0].member_id) == (NONE, "Stable", member)

    def list_groups(self, version):
        group = self.name("list")
        self.sync(3, group)
        answer = self.wire.send(16, version, {"states_filter": [], "types_filter": []})
        assert answer.error_code == NONE and group in {found.group_id for found in answer.groups}

    def delete_groups(self, version):
        group = self.name("delete")
        partition = {"partition_index": 0, "committed_offset": 1}
        self.wire.send(8, 5, {"group_id": group, "topics": [{"name": self.topic, "partitions": [partition]}]})
        assert self.wire.send(42, version, {"groups_names": [group]}).results[0].error_code == NONE

    def api_versions(self, version):
        answer = self.wire.send(18, version, {"client_software_name": "wire", "client_software_version": "1"})
        assert answer.error_code == NONE and len(answer.api_keys) > 5

    def create_topics(self, version):
        wanted = {"name": self.name("create"), "num_partitions": 2, "replication_factor": 1}
        answer = self.wire.send(19, version, {"topics": [wanted], "timeout_ms": 10_000})
        assert (answer.topics[0].error_code, answer.topics[0].name) == (NONE, wanted["name"])

    def delete_topics(self, version):
        name = self.name("delete-topic")
        self.wire.send(
            19, 4, {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 10_000}
        )
        wait_until(lambda: self.wire.send(3, 5, {"topics": [{"name": name}]}).topics[0].error_code == NONE, 10, name)
        asked = {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": 10_000}
        assert self.wire.send(20, version, asked).responses[0].error_code == NONE

    def init_producer_id(self, version):
        asked = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = self.wire.send(22, version, asked)
        assert (answer.error_code, answer.producer_epoch) == (NONE, 0) and answer.producer_id >= 0
        self.init_transactional(version)

    def transactional(self, version: int = 0) -> WireProducer:
        """A transactional producer that speaks the second version of transactions when told so."""
        producer = WireProducer(self.broker.kafka_port, self.name("txn"), second=version >= 5)
        assert producer.init().error_code == NONE
        return producer

    def init_transactional(self, version):
        producer = WireProducer(self.broker.kafka_port, self.name("txn"))
        assert producer.init(version=version).error_code == NONE
        first = producer.who
        assert producer.init(version=version).error_code == NONE
        assert producer.who == (first.id, first.epoch + 1)

    def add_partitions_to_txn(self, version):
        producer = self.transactional()
        if version < 4:
            assert producer.add(self.topic, version=version) == NONE
            return
        transaction = {"transactional_id": producer.id, "producer_id": producer.who.id}
        transaction |= {"producer_epoch": producer.who.epoch, "topics": [{"name": self.topic, "partitions": [0]}]}
        for verify_only, expected in ((True, TRANSACTION_ABORTABLE), (False, NONE), (True, NONE)):
            asked = {"transactions": [transaction | {"verify_only": verify_only}]}
            answer = producer.wire.send(24, version, asked)
            found = answer.results_by_transaction[0].topic_results[0].results_by_partition[0]
            assert (answer.error_code, found.partition_error_code) == (NONE, expected)

    def add_offsets_to_txn(self, version):
        assert self.transactional().add_offsets("wire-txn", version=version) == NONE

    def end_txn(self, version):
        producer = self.transactional(version)
        assert producer.add(self.topic) == NONE
        first = producer.who
        assert producer.end(True, version=version).error_code == NONE
        assert producer.who == (first.id, first.epoch + (version >= 5))
        producer.wait_for("CompleteCommit")

    def write_txn_markers(self, version):
        producer = self.transactional()
        assert producer.add(self.topic) == NONE
        assert producer.produce(self.topic, b"x") == NONE
        marker = {"producer_id": producer.who.id, "producer_epoch": producer.who.epoch, "transaction_result": False}
        marker |= {"coordinator_epoch": 0, "topics": [{"name": self.topic, "partition_indexes": [0]}]}
        answer = self.wire.send(27, version, {"markers": [marker]})
        assert answer.markers[0].topics[0].partitions[0].error_code == NONE
        assert producer.end(False).error_code == NONE

    def txn_offset_commit(self, version):
        producer, group = self.transactional(version), self.name("txn-group")
        if version < 5:
            assert producer.add_offsets(group) == NONE
        assert producer.commit_offset(group, self.topic, 1, version=version) == NONE
        assert producer.end(True).error_code == NONE

    def describe_configs(self, version):
        asked = {"resources": [{"resource_type": 2, "resource_name": self.topic, "configuration_keys": None}]}
        found = self.wire.send(32, version, asked | {"include_synonyms": True, "include_documentation": True}).results[
            0
        ]
        assert found.error_code == NONE and "retention.ms" in {config.name for config in found.configs}

    def incremental_alter_configs(self, version):
        change = {"name": "retention.ms", "config_operation": 0, "value": "1000000000"}
        asked = {"resources": [{"resource_type": 2, "resource_name": self.topic, "configs": [change]}]}
        assert self.wire.send(44, version, asked).responses[0].error_code == NONE

    def alter_configs(self, version):
        config = {"name": "retention.ms", "value": "900000000"}
        asked = {"resources": [{"resource_type": 2, "resource_name": self.topic, "configs": [config]}]}
        assert self.wire.send(33, version, asked).responses[0].error_code == NONE

    def create_partitions(self, version):
        count = 1 + len(self.wire.send(3, 9, {"topics": [{"name": self.topic}]}).topics[0].partitions)
        asked = {"topics": [{"name": self.topic, "count": count, "assignments": None}], "timeout_ms": 10_000}
        assert self.wire.send(37, version, asked).results[0].error_code == NONE

    def delete_records(self, version):
        topic = {"name": self.topic, "partitions": [{"partition_index": 0, "offset": 1}]}
        answer = self.wire.send(21, version, {"topics": [topic], "timeout_ms": 10_000})
        found = answer.topics[0].partitions[0]
        assert (found.error_code, found.low_watermark) == (NONE, 1)

    def describe_cluster(self, version):
        answer = self.wire.send(60, version, {"include_cluster_authorized_operations": False, "endpoint_type": 1})
        assert answer.error_code == NONE and answer.cluster_id and len(answer.brokers) == 1

    def describe_log_dirs(self, version):
        answer = self.wire.send(35, version, {"topics": [{"topic": self.topic, "partitions": [0]}]})
        found = answer.results[0]
        assert (found.error_code, found.topics[0].name) == (NONE, self.topic)

    def offset_delete(self, version):
        self.offset_commit(8)
        topic = {"name": self.topic, "partitions": [{"partition_index": 0}]}
        answer = self.wire.send(47, version, {"group_id": "wire-simple", "topics": [topic]})
        assert answer.error_code == NONE and answer.topics[0].partitions[0].error_code == NONE

    def offset_for_leader_epoch(self, version):
        partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
        asked = {"replica_id": -1, "topics": [{"topic": self.topic, "partitions": [partition]}]}
        found = self.wire.send(23, version, asked).topics[0].partitions[0]
        assert (found.error_code, found.leader_epoch) == (NONE, 0) and found.end_offset >= 3

    def describe_acls(self, version):
        asked = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
        asked |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
        assert self.wire.send(29, version, asked).error_code == SECURITY_DISABLED

    def create_acls(self, version):
        acl = {"resource_type": 2, "resource_name": self.topic, "resource_pattern_type": 3, "principal": "User:a"}
        acl |= {"host": "*", "operation": 3, "permission_type": 3}
        assert self.wire.send(30, version, {"creations": [acl]}).results[0].error_code == SECURITY_DISABLED

    def delete_acls(self, version):
        acl = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
        acl |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
        assert self.wire.send(31, version, {"filters": [acl]}).filter_results[0].error_code == SECURITY_DISABLED

    def elect_leaders(self, version):
        topics = [{"topic": self.topic, "partitions": [0]}]
        answer = self.wire.send(43, version, {"election_type": 0, "topic_partitions": topics, "timeout_ms": 10_000})
        assert answer.replica_election_results[0].partition_result[0].error_code == ELECTION_NOT_NEEDED

    def alter_partition_reassignments(self, version):
        partition = {"partition_index": 0, "replicas": None}
        asked = {"timeout_ms": 10_000, "topics": [{"name": self.topic, "partitions": [partition]}]}
        found = self.wire.send(45, version, asked).responses[0].partitions[0]
        assert found.error_code == NO_REASSIGNMENT_IN_PROGRESS

    def list_partition_reassignments(self, version):
        answer = self.wire.send(46, version, {"timeout_ms": 10_000, "topics": None})
        assert answer.error_code == NONE and not answer.topics

    def describe_client_quotas(self, version):
        answer = self.wire.send(48, version, {"components": [], "strict": False})
        assert answer.error_code == NONE and answer.entries == []

    def alter_client_quotas(self, version):
        # Refused either way: by Kafka because it does not know the quota.
        entity, change = {"entity_type": "user", "entity_name": "a"}, {"key": "no_such_quota", "value": 1.0}
        asked = {"entries": [{"entity": [entity], "ops": [change | {"remove": False}]}], "validate_only": True}
        assert self.wire.send(49, version, asked).entries[0].error_code == INVALID_REQUEST

    def describe_user_scram_credentials(self, version):
        found = self.wire.send(50, version, {"users": [{"name": "nobody"}]}).results[0]
        assert (found.user, found.error_code) == ("nobody", RESOURCE_NOT_FOUND)

    def alter_user_scram_credentials(self, version):
        asked = {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}
        found = self.wire.send(51, version, asked).results[0]
        assert (found.user, found.error_code) == ("nobody", RESOURCE_NOT_FOUND)

    def describe_quorum(self, version):
        topic = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
        answer = self.wire.send(55, version, {"topics": [topic]})
        found = answer.topics[0].partitions[0]
        assert (answer.error_code, found.error_code) == (NONE, NONE)
        assert [voter.replica_id for voter in found.current_voters] == [found.leader_id]

    def describe_producers(self, version):
        asked = {"topics": [{"name": self.topic, "partition_indexes": [0]}]}
        found = self.wire.send(61, version, asked).topics[0].partitions[0]
        assert (found.partition_index, found.error_code) == (0, NONE)

    def describe_transactions(self, version):
        found = self.wire.send(65, version, {"transactional_ids": ["nobody"]}).transaction_states[0]
        assert (found.transactional_id, found.error_code) == ("nobody", TRANSACTIONAL_ID_NOT_FOUND)

    def list_transactions(self, version):
        asked = {"state_filters": ["Ongoing", "Sleeping"], "producer_id_filters": [], "duration_filter": -1}
        answer = self.wire.send(66, version, asked | {"transactional_id_pattern": None})
        assert (answer.error_code, list(answer.unknown_state_filters)) == (NONE, ["Sleeping"])

    def consumer_group(self, version: int) -> tuple[str, object]:
        """A consumer group with one member, and the answer to its join."""
        group = self.name("consumer")
        asked = {"group_id": group, "member_id": "" if version == 0 else f"{group}-member", "member_epoch": 0}
        asked |= {"rebalance_timeout_ms": 10_000, "topic_partitions": [], "subscribed_topic_names": [self.topic]}
        answer = self.wire.send(68, version, asked)
        assert (answer.error_code, answer.member_epoch, bool(answer.member_id)) == (NONE, 1, True)
        assert [held.topic_id for held in answer.assignment.topic_partitions] == [self.topic_id]
        return group, answer

    def consumer_group_heartbeat(self, version):
        group, joined = self.consumer_group(version)
        beat = {"group_id": group, "member_id": joined.member_id, "member_epoch": 1}
        answer = self.wire.send(68, version, beat)
        assert (answer.error_code, answer.assignment) == (NONE, None)

    def consumer_group_describe(self, version):
        group, joined = self.consumer_group(1)
        found = self.wire.send(69, version, {"group_ids": [group], "include_authorized_operations": True}).groups[0]
        assert (found.error_code, found.group_state, found.members[0].member_id) == (NONE, "Stable", joined.member_id)

    def list_config_resources(self, version):
        answer = self.wire.send(74, version, {"resource_types": [2]})
        names = {resource.resource_name for resource in answer.config_resources}
        assert answer.error_code == NONE and (self.topic in names) == (version >= 1)

    def describe_topic_partitions(self, version):
        asked = {"topics": [{"name": self.topic}], "response_partition_limit": 2000, "cursor": None}
        found = self.wire.send(75, version, asked).topics[0]
        assert (found.error_code, found.name, found.partitions[0].partition_index) == (NONE, self.topic, 0)
        cursor = {"topic_name": self.topic, "partition_index": 0}
        again = self.wire.send(75, version, asked | {"cursor": cursor})
        assert again.topics[0].topic_id == found.topic_id and again.next_cursor is None


# Key -> the method that asks for it.
SCENARIOS = {
    0: Scenario.produce,
    1: Scenario.fetch,
    2: Scenario.list_offsets,
    3: Scenario.metadata,
    8: Scenario.offset_commit,
    9: Scenario.offset_fetch,
    10: Scenario.find_coordinator,
    11: Scenario.join_group,
    12: Scenario.heartbeat,
    13: Scenario.leave_group,
    14: Scenario.sync_group,
    15: Scenario.describe_groups,
    16: Scenario.list_groups,
    18: Scenario.api_versions,
    19: Scenario.create_topics,
    20: Scenario.delete_topics,
    21: Scenario.delete_records,
    22: Scenario.init_producer_id,
    23: Scenario.offset_for_leader_epoch,
    24: Scenario.add_partitions_to_txn,
    25: Scenario.add_offsets_to_txn,
    26: Scenario.end_txn,
    27: Scenario.write_txn_markers,
    28: Scenario.txn_offset_commit,
    29: Scenario.describe_acls,
    30: Scenario.create_acls,
    31: Scenario.delete_acls,
    32: Scenario.describe_configs,
    33: Scenario.alter_configs,
    35: Scenario.describe_log_dirs,
    37: Scenario.create_partitions,
    42: Scenario.delete_groups,
    43: Scenario.elect_leaders,
    44: Scenario.incremental_alter_configs,
    45: Scenario.alter_partition_reassignments,
    46: Scenario.list_partition_reassignments,
    47: Scenario.offset_delete,
    48: Scenario.describe_client_quotas,
    49: Scenario.alter_client_quotas,
    50: Scenario.describe_user_scram_credentials,
    51: Scenario.alter_user_scram_credentials,
    55: Scenario.describe_quorum,
    60: Scenario.describe_cluster,
    61: Scenario.describe_producers,
    65: Scenario.describe_transactions,
    66: Scenario.list_transactions,
    68: Scenario.consumer_group_heartbeat,
    69: Scenario.consumer_group_describe,
    74: Scenario.list_config_resources,
    75: Scenario.describe_topic_partitions,
}
# Advertised, and closed or refused as Kafka does: nothing to answer in their layout.
NOT_SPOKEN = {0: range(0, 3)}


@pytest.fixture(scope="module")
def advertised(broker) -> dict[int, tuple[int, int]]:
    keys = (
        Wire(broker.kafka_port).send(18, 3, {"client_software_name": "wire", "client_software_version": "1"}).api_keys
    )
    return {key.api_key: (key.min_version, key.max_version) for key in keys}


@pytest.mark.parametrize("key", SCENARIOS, ids=lambda key: REQUESTS[key].__name__.removesuffix("Request"))
def test_every_advertised_version_is_answered_in_its_own_layout(key, broker, advertised, topic):
    assert key in advertised, "there is a scenario for this API, so it should be served"
    CLIENT.create_topic(broker.bootstrap, topic)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"first"), Record(b"second"), Record(b"third")])
    low, high = advertised[key]
    known = REQUESTS[key].valid_versions
    scenario = Scenario(broker, topic)
    for version in range(max(low, known[0]), min(high, known[1]) + 1):
        if version not in NOT_SPOKEN.get(key, ()):
            try:
                SCENARIOS[key](scenario, version)
            except Exception as error:
                raise AssertionError(f"version {version} of {low} to {high}: {error}") from error


@pytest.mark.weir_only
def test_nothing_is_advertised_without_a_scenario(advertised):
    assert set(advertised) <= set(SCENARIOS)


@pytest.mark.weir_only
def test_no_version_is_advertised_that_the_scenarios_cannot_speak(advertised):
    for key, (low, high) in advertised.items():
        known_low, known_high = REQUESTS[key].valid_versions
        spoken = set(range(known_low, known_high + 1)) | set(NOT_SPOKEN.get(key, ()))
        assert set(range(low, high + 1)) <= spoken, f"{REQUESTS[key].__name__} {low}-{high}"
