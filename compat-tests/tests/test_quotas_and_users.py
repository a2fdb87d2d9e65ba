"""Client quotas, and users' SCRAM credentials. The same on Apache Kafka, but for what the marks say."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from harness.clients import BY_NAME
from harness.process import wait_until
from harness.record import Record
from harness.wire import Wire, record_batch

CLIENT = BY_NAME["confluent-kafka"]
PRODUCE, FETCH, DESCRIBE_QUOTAS, ALTER_QUOTAS = 0, 1, 48, 49
NONE, INVALID_REQUEST = 0, 42
EXACTLY, DEFAULT, ANY = 0, 1, 2


def alter(wire: Wire, entity: dict[str, str | None], **values: float | None):
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    answer = wire.send(ALTER_QUOTAS, 1, {"entries": [{"entity": parts, "ops": ops}], "validate_only": False})
    return answer.entries[0]


def described(wire: Wire, *components: tuple[str, int, str | None], strict=False) -> dict:
    asked = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    answer = wire.send(DESCRIBE_QUOTAS, 1, {"components": asked, "strict": strict})
    assert answer.error_code == NONE
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def wait_described(wire: Wire, component: tuple[str, int, str | None], expected: dict) -> None:
    """Kafka's broker learns of a change a moment after it was accepted."""
    wait_until(lambda: described(wire, component, strict=True) == expected, 10, f"the quotas {expected}")


def test_a_producer_over_its_rate_is_throttled_and_one_within_it_is_not(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"ready")])
    name = f"{topic}-slow"
    slow, other = Wire(broker.kafka_port, client_id=name), Wire(broker.kafka_port, client_id=f"{topic}-free")
    rate, size = 50_000.0, 100_000
    assert alter(slow, {"client-id": name}, producer_byte_rate=rate).error_code == NONE
    expected = {(("client-id", name),): {"producer_byte_rate": rate}}
    wait_described(slow, ("client-id", EXACTLY, name), expected)

    def produce(wire) -> int:
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": record_batch(b"x" * size)}]}]
        answer = wire.send(PRODUCE, 9, {"acks": -1, "timeout_ms": 5000, "topic_data": topics})
        assert answer.responses[0].partition_responses[0].error_code == NONE
        return answer.throttle_time_ms

    # Kafka averages over its window of eleven seconds, so it lets a burst of that many seconds through; Weir one second.
    started, throttled = time.monotonic(), []
    while len(throttled) < 60 and not (len(throttled) >= 4 and max(throttled) > 0):
        throttled.append(produce(slow))
        assert produce(other) == 0
    elapsed = time.monotonic() - started
    assert max(throttled) > 0, "nothing was throttled"
    if broker.peer == "weir":
        # The fourth batch was read when the first three were paid for, less the burst.
        assert len(throttled) == 4 and elapsed >= (3 * size - rate) / rate, f"{elapsed:.1f} s: not held back"

    assert alter(slow, {"client-id": name}, producer_byte_rate=None).error_code == NONE
    wait_described(slow, ("client-id", EXACTLY, name), {})
    assert produce(slow) == 0


def test_a_consumer_over_its_rate_is_throttled(broker, topic):
    CLIENT.create_topic(broker.bootstrap, topic, 1)
    CLIENT.produce(broker.bootstrap, topic, [Record(b"y" * 100_000) for _ in range(40)])
    name = f"{topic}-reader"
    wire = Wire(broker.kafka_port, client_id=name)
    assert alter(wire, {"client-id": name}, consumer_byte_rate=100_000.0).error_code == NONE
    wait_described(wire, ("client-id", EXACTLY, name), {(("client-id", name),): {"consumer_byte_rate": 100_000.0}})
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 300_000, "current_leader_epoch": -1}
    asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    asked |= {"topics": [{"topic": topic, "partitions": [partition]}]}
    assert any(wire.send(FETCH, 12, asked).throttle_time_ms > 0 for _ in range(20))
    assert alter(wire, {"client-id": name}, consumer_byte_rate=None).error_code == NONE


def test_quotas_are_found_by_every_kind_of_filter(broker, topic):
    wire = Wire(broker.kafka_port)
    user, client = f"user-{topic}", f"client-{topic}"
    assert alter(wire, {"user": user}, producer_byte_rate=1000.0).error_code == NONE
    assert alter(wire, {"user": user, "client-id": client}, consumer_byte_rate=2000.0).error_code == NONE
    mine, both = (("user", user),), (("client-id", client), ("user", user))
    wait_described(wire, ("user", EXACTLY, user), {mine: {"producer_byte_rate": 1000.0}})
    found = described(wire, ("user", EXACTLY, user))
    assert found == {mine: {"producer_byte_rate": 1000.0}, both: {"consumer_byte_rate": 2000.0}}
    assert both in described(wire, ("user", ANY, None), ("client-id", ANY, None), strict=True)
    assert mine not in described(wire, ("user", DEFAULT, None))
    for entity in ({"user": user}, {"user": user, "client-id": client}):
        assert alter(wire, entity, producer_byte_rate=None, consumer_byte_rate=None).error_code == NONE


def test_what_is_no_quota_is_refused(broker, topic):
    wire = Wire(broker.kafka_port)
    assert alter(wire, {"client-id": topic}, producer_bytes=1.0).error_code == INVALID_REQUEST
    assert alter(wire, {"planet": topic}, producer_byte_rate=1.0).error_code == INVALID_REQUEST
    assert alter(wire, {"client-id": topic}, producer_byte_rate=-5.0).error_code == INVALID_REQUEST


@pytest.mark.weir_only
def test_a_quota_that_would_not_be_enforced_is_refused_by_name(broker, topic):
    refused = alter(Wire(broker.kafka_port), {"client-id": topic}, request_percentage=10.0)
    assert refused.error_code == INVALID_REQUEST and "request_percentage" in refused.error_message


@pytest.mark.weir_only
def test_quotas_and_users_are_there_after_a_kill(start_broker, topic):
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for done in admin.alter_user_scram_credentials([UserScramCredentialUpsertion(topic, info, b"secret")]).values():
        done.result(10)
    assert alter(Wire(broker.kafka_port), {"client-id": topic}, producer_byte_rate=5.0).error_code == NONE
    broker.kill_and_restart()
    assert described(Wire(broker.kafka_port)) == {(("client-id", topic),): {"producer_byte_rate": 5.0}}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.describe_user_scram_credentials([topic])[topic].result(10).scram_credential_infos[0].iterations == 4096


def test_scram_credentials_are_set_described_and_removed(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def change(*changes):
        for done in admin.alter_user_scram_credentials(list(changes)).values():
            done.result(10)

    def infos():
        found = admin.describe_user_scram_credentials([topic])[topic].result(10).scram_credential_infos
        return {(info.mechanism, info.iterations) for info in found}

    sha256, sha512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    change(UserScramCredentialUpsertion(topic, ScramCredentialInfo(sha256, 4096), b"secret"))
    change(UserScramCredentialUpsertion(topic, ScramCredentialInfo(sha512, 8192), b"secret"))
    # Kafka's broker learns of a change a moment after it was accepted.
    wait_until(lambda: infos() == {(sha256, 4096), (sha512, 8192)}, 10, "both credentials")
    change(UserScramCredentialDeletion(topic, sha256))
    wait_until(lambda: infos() == {(sha512, 8192)}, 10, "one credential")
    with pytest.raises(KafkaException, match="UNACCEPTABLE_CREDENTIAL|iterations"):
        change(UserScramCredentialUpsertion(topic, ScramCredentialInfo(sha256, 100), b"secret"))
    change(UserScramCredentialDeletion(topic, sha512))

    def is_gone():
        try:
            return infos() is None
        except KafkaException as error:
            return "does not exist" in str(error)

    wait_until(is_gone, 10, "no credentials")
