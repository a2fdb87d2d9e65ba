"""Topic and broker configs as admin tools see and turn them, on Weir and (`--peer kafka`) on Apache Kafka."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from conftest import SHARED_SETTINGS, start_server

from harness.wire import Wire

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5
INVALID_CONFIG, INVALID_REQUEST = 40, 42

# What Kafka 4.2 answers for a new topic: name, value, type, and the broker config that its default comes from.
TOPIC_CONFIGS = [
    ("cleanup.policy", "delete", LIST, "log.cleanup.policy"),
    ("compression.gzip.level", "-1", INT, "compression.gzip.level"),
    ("compression.lz4.level", "9", INT, "compression.lz4.level"),
    ("compression.type", "producer", STRING, "compression.type"),
    ("compression.zstd.level", "3", INT, "compression.zstd.level"),
    ("delete.retention.ms", "86400000", LONG, "log.cleaner.delete.retention.ms"),
    ("file.delete.delay.ms", "60000", LONG, "log.segment.delete.delay.ms"),
    ("flush.messages", "9223372036854775807", LONG, "log.flush.interval.messages"),
    ("flush.ms", "9223372036854775807", LONG, None),
    ("follower.replication.throttled.replicas", "", LIST, None),
    ("index.interval.bytes", "4096", INT, "log.index.interval.bytes"),
    ("leader.replication.throttled.replicas", "", LIST, None),
    ("local.retention.bytes", "-2", LONG, "log.local.retention.bytes"),
    ("local.retention.ms", "-2", LONG, "log.local.retention.ms"),
    ("max.compaction.lag.ms", "9223372036854775807", LONG, "log.cleaner.max.compaction.lag.ms"),
    ("max.message.bytes", "1048588", INT, "message.max.bytes"),
    ("message.timestamp.after.max.ms", "3600000", LONG, "log.message.timestamp.after.max.ms"),
    ("message.timestamp.before.max.ms", "9223372036854775807", LONG, "log.message.timestamp.before.max.ms"),
    ("message.timestamp.type", "CreateTime", STRING, "log.message.timestamp.type"),
    ("min.cleanable.dirty.ratio", "0.5", DOUBLE, "log.cleaner.min.cleanable.ratio"),
    ("min.compaction.lag.ms", "0", LONG, "log.cleaner.min.compaction.lag.ms"),
    ("preallocate", "false", BOOLEAN, "log.preallocate"),
    ("remote.log.copy.disable", "false", BOOLEAN, None),
    ("remote.log.delete.on.disable", "false", BOOLEAN, None),
    ("remote.storage.enable", "false", BOOLEAN, None),
    ("retention.bytes", "-1", LONG, "log.retention.bytes"),
    ("retention.ms", "604800000", LONG, None),
    ("segment.bytes", "1073741824", INT, "log.segment.bytes"),
    ("segment.index.bytes", "10485760", INT, "log.index.size.max.bytes"),
    ("segment.jitter.ms", "0", LONG, None),
    ("segment.ms", "604800000", LONG, None),
    ("unclean.leader.election.enable", "false", BOOLEAN, "unclean.leader.election.enable"),
]


class Configs:
    """The three requests at their newest versions, on a bare socket."""

    def __init__(self, server):
        self.wire = Wire(server.kafka_port)

    def describe(self, kind: int, name: str, keys: list[str] | None = None):
        """Error code and entries by name."""
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        request = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
        (result,) = self.wire.send(32, 4, request).results
        return result.error_code, {config.name: config for config in result.configs}

    def one(self, kind: int, name: str, key: str):
        code, entries = self.describe(kind, name, [key])
        assert code == 0 and list(entries) == [key]
        return entries[key]

    def alter(self, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only=False):
        """Error code and message."""
        configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        (result,) = self.wire.send(44, 1, {"resources": [resource], "validate_only": validate_only}).responses
        return result.error_code, result.error_message

    def replace(self, kind: int, name: str, *configs: tuple[str, str | None]):
        resource = {"resource_type": kind, "resource_name": name}
        resource["configs"] = [{"name": key, "value": value} for key, value in configs]
        (result,) = self.wire.send(33, 2, {"resources": [resource], "validate_only": False}).responses
        return result.error_code


SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@pytest.fixture(scope="module")
def configured(request, tmp_path_factory):
    """A broker of this module's own: its configs are turned."""
    settings = {**SHARED_SETTINGS, "log.retention.bytes": "987654321"}
    server = start_server(request.config, tmp_path_factory.mktemp("configured"), settings)
    yield server
    server.stop()


@pytest.fixture
def configs(configured):
    return Configs(configured)


def make(server, topic: str, settings: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings or {})])[topic].result(20)


def test_a_new_topic_shows_every_config_of_kafka_with_type_source_and_synonyms(broker, topic):
    make(broker, topic)
    code, entries = Configs(broker).describe(TOPIC, topic)
    assert code == 0
    for name, value, kind, synonym in TOPIC_CONFIGS:
        entry = entries[name]
        seen = (entry.value, entry.config_type, entry.config_source, entry.read_only, entry.is_sensitive)
        assert seen == (value, kind, DEFAULT, False, False), name
        assert [(one.name, one.value, one.source) for one in entry.synonyms] == (
            [(synonym, value, DEFAULT)] if synonym else []
        ), name
        assert entry.documentation, name


@pytest.mark.parametrize(
    ("name", "kind", "value", "read_only"),
    [
        ("background.threads", INT, "10", False),
        ("compression.type", STRING, "producer", False),
        ("log.cleaner.backoff.ms", LONG, "15000", False),
        ("log.cleaner.dedupe.buffer.size", LONG, "134217728", False),
        ("log.cleaner.enable", BOOLEAN, "true", True),
        ("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", False),
        ("log.cleaner.threads", INT, "1", False),
        ("log.retention.hours", INT, "168", True),
        ("log.retention.minutes", INT, None, True),
        ("log.retention.ms", LONG, None, False),
        ("log.roll.ms", LONG, None, False),
        ("log.segment.bytes", INT, "1073741824", False),
        ("message.max.bytes", INT, "1048588", False),
        ("num.partitions", INT, "1", True),
        ("auto.create.topics.enable", BOOLEAN, "true", True),
        ("delete.topic.enable", BOOLEAN, "true", True),
        ("offsets.retention.minutes", INT, "10080", True),
    ],
)
def test_broker_configs_are_described_as_kafka_does(broker, name, kind, value, read_only):
    entry = Configs(broker).one(BROKER, "0", name)
    assert (entry.config_type, entry.value, entry.read_only, entry.config_source) == (kind, value, read_only, DEFAULT)


def test_the_strongest_place_wins_and_all_are_listed(configured, configs, topic):
    make(configured, topic)

    def seen(kind, name, key):
        entry = configs.one(kind, name, key)
        return entry.value, entry.config_source, [(one.name, one.value, one.source) for one in entry.synonyms]

    name, key, at_start, default = "log.retention.bytes", "retention.bytes", "987654321", "-1"
    below = [(name, at_start, STATIC), (name, default, DEFAULT)]
    assert seen(TOPIC, topic, key) == (at_start, STATIC, below)
    assert configs.alter(BROKER, "", (name, SET, "1111111")) == (0, None)
    below.insert(0, (name, "1111111", DYNAMIC_DEFAULT))
    assert eventually(lambda: seen(TOPIC, topic, key)) == ("1111111", DYNAMIC_DEFAULT, below)
    assert configs.alter(BROKER, "0", (name, SET, "2222222")) == (0, None)
    below.insert(0, (name, "2222222", DYNAMIC_BROKER))
    assert eventually(lambda: seen(BROKER, "0", name)) == ("2222222", DYNAMIC_BROKER, below)
    assert eventually(lambda: seen(TOPIC, topic, key)) == ("2222222", DYNAMIC_BROKER, below)
    assert configs.alter(TOPIC, topic, (key, SET, "3333333")) == (0, None)
    topmost = [(key, "3333333", DYNAMIC_TOPIC), *below]
    assert eventually(lambda: seen(TOPIC, topic, key)) == ("3333333", DYNAMIC_TOPIC, topmost)
    code, cluster = configs.describe(BROKER, "")
    assert code == 0 and cluster[name].value == "1111111"
    for change in ((TOPIC, topic, key), (BROKER, "0", name), (BROKER, "", name)):
        assert configs.alter(*change[:2], (change[2], DELETE, None)) == (0, None)
    assert eventually(lambda: seen(TOPIC, topic, key)) == (at_start, STATIC, below[2:])


def eventually(look, pause: float = 0.7):
    """Kafka applies a change when its metadata gets round to it."""
    time.sleep(pause)
    return look()


def test_a_config_that_is_fixed_at_the_start_is_refused_in_kafkas_words(configs):
    for name in ("num.partitions", "auto.create.topics.enable", "log.cleaner.enable", "log.retention.hours"):
        for resource in ("0", ""):
            code, message = configs.alter(BROKER, resource, (name, SET, "true" if "enable" in name else "7"))
            assert code == INVALID_REQUEST and f"Cannot update these configs dynamically: Set({name})" in message


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("log.retention.ms", SET, "abc"), INVALID_REQUEST),
        (("log.segment.bytes", SET, "100"), INVALID_REQUEST),
        (("compression.type", SET, "lzo"), INVALID_REQUEST),
        (("background.threads", SET, "0"), INVALID_REQUEST),
        (("background.threads", SET, "100"), INVALID_REQUEST),
        (("log.cleaner.threads", SET, "9"), INVALID_REQUEST),
        (("log.cleaner.dedupe.buffer.size", SET, "100"), INVALID_REQUEST),
        (("message.max.bytes", SET, None), INVALID_REQUEST),
        (("message.max.bytes", APPEND, "5"), INVALID_CONFIG),
    ],
)
def test_a_bad_value_for_a_broker_is_refused(configs, change, code):
    refused, message = configs.alter(BROKER, "0", change)
    assert refused == code and message


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", SET, "abc"), INVALID_CONFIG),
        (("no.such.config", SET, "1"), INVALID_CONFIG),
        (("cleanup.policy", SET, "shred"), INVALID_CONFIG),
        (("min.cleanable.dirty.ratio", SET, "2"), INVALID_CONFIG),
        (("retention.ms", SET, None), INVALID_REQUEST),
        (("retention.ms", APPEND, "5"), INVALID_CONFIG),
        (("compression.gzip.level", SET, "0"), INVALID_CONFIG),
        (("compression.gzip.level", SET, "10"), INVALID_CONFIG),
        (("compression.lz4.level", SET, "18"), INVALID_CONFIG),
        (("compression.zstd.level", SET, "23"), INVALID_CONFIG),
        (("max.compaction.lag.ms", SET, "0"), INVALID_CONFIG),
        (("segment.bytes", SET, "1000"), INVALID_CONFIG),
        (("segment.ms", SET, "0"), INVALID_CONFIG),
        (("remote.storage.enable", SET, "true"), INVALID_CONFIG),
        (("follower.replication.throttled.replicas", SET, "x"), INVALID_CONFIG),
        (("compression.type", SET, "lzo"), INVALID_CONFIG),
    ],
)
def test_a_bad_value_for_a_topic_is_refused(configured, configs, topic, change, code):
    make(configured, topic)
    refused, message = configs.alter(TOPIC, topic, change)
    assert refused == code and message
    assert configs.one(TOPIC, topic, "retention.ms").value == "604800000"


def test_lists_are_added_to_and_taken_from(configured, configs, topic):
    make(configured, topic)
    for operation, value, expected in [
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
        (SET, "delete", "delete"),
    ]:
        assert configs.alter(TOPIC, topic, ("cleanup.policy", operation, value)) == (0, None)
        seen = eventually(lambda: configs.one(TOPIC, topic, "cleanup.policy").value, 0.3)
        assert sorted(seen.split(",")) == sorted(expected.split(","))


def test_a_config_named_twice_and_lags_that_cross_are_refused(configured, configs, topic):
    make(configured, topic)
    twice = (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert configs.alter(TOPIC, topic, *twice)[0] == INVALID_REQUEST
    crossed = (
        ("min.compaction.lag.ms", SET, "10"),
        ("max.compaction.lag.ms", SET, "5"),
        ("cleanup.policy", SET, "compact"),
    )
    assert configs.alter(TOPIC, topic, *crossed)[0] == INVALID_CONFIG


def test_the_old_request_replaces_all_that_was_set(configured, configs, topic):
    make(configured, topic, {"retention.ms": "5000", "max.message.bytes": "2000"})
    assert configs.replace(TOPIC, topic, ("segment.ms", "7000")) == 0
    values = eventually(lambda: {name: entry.value for name, entry in configs.describe(TOPIC, topic)[1].items()})
    assert (values["retention.ms"], values["max.message.bytes"], values["segment.ms"]) == (
        "604800000",
        "1048588",
        "7000",
    )
    assert configs.replace(BROKER, "0", ("log.flush.interval.messages", "77")) == 0
    assert eventually(lambda: configs.one(BROKER, "0", "log.flush.interval.messages").value) == "77"
    assert configs.replace(BROKER, "0") == 0
    assert eventually(lambda: configs.one(BROKER, "0", "log.flush.interval.messages").config_source) == DEFAULT


def test_other_brokers_and_unknown_topics_are_refused(configs):
    assert configs.describe(BROKER, "7")[0] == INVALID_REQUEST
    assert configs.describe(BROKER, "x")[0] == INVALID_REQUEST
    assert configs.alter(BROKER, "7", ("log.retention.ms", SET, "1"))[0] == INVALID_REQUEST
    assert configs.alter(TOPIC, "there-is-none", ("retention.ms", SET, "1"))[0] == 3
    assert configs.describe(TOPIC, "there-is-none")[0] == 3


def sends(server, topic: str, size: int) -> bool:
    errors = []
    sender = Producer({"bootstrap.servers": server.bootstrap, "message.max.bytes": 10_000_000})
    sender.produce(topic, value=bytes(size), partition=0, on_delivery=lambda error, _: errors.append(error))
    sender.flush(20)
    return [error is None for error in errors] == [True]


def test_a_broker_default_takes_effect_at_once_and_survives_a_restart(configured, configs, topic):
    make(configured, topic)
    assert not sends(configured, topic, 2_000_000)
    assert configs.alter(BROKER, "", ("message.max.bytes", SET, "3000000"), validate_only=True)[0] == 0
    assert not sends(configured, topic, 2_000_000)
    assert configs.alter(BROKER, "", ("message.max.bytes", SET, "3000000")) == (0, None)
    assert eventually(lambda: sends(configured, topic, 2_000_000))
    configured.stop()
    configured.start()
    again = Configs(configured)
    entry = again.one(BROKER, "0", "message.max.bytes")
    assert (entry.value, entry.config_source) == ("3000000", DYNAMIC_DEFAULT)
    assert sends(configured, topic, 2_500_000)
    assert again.alter(BROKER, "", ("message.max.bytes", DELETE, None)) == (0, None)
    assert not eventually(lambda: sends(configured, topic, 2_000_000))


CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("stored", CODECS)
@pytest.mark.parametrize("sent", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_with_the_topics_codec(broker, topic, stored, sent):
    make(broker, topic, {"compression.type": stored})
    sender = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": sent, "linger.ms": 100})
    values = [b"the same text over and over, %d" % (number % 3) for number in range(300)]
    for value in values:
        sender.produce(topic, value=value, partition=0)
    sender.flush(20)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000_000}
    request = {"replica_id": -1, "max_wait_ms": 100, "min_bytes": 1, "max_bytes": 10_000_000, "isolation_level": 0}
    request |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    request["topics"] = [{"topic": topic, "partitions": [partition]}]
    answer = Wire(broker.kafka_port).send(1, 11, request)
    records = bytes(answer.responses[0].partitions[0].records)
    codecs = set()
    while records:
        codecs.add(int.from_bytes(records[21:23], "big") & 7)
        records = records[12 + int.from_bytes(records[8:12], "big") :]
    assert codecs == {CODECS[stored]}
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = []
    deadline = time.monotonic() + 20
    while len(read) < len(values) and time.monotonic() < deadline:
        read += [message.value() for message in consumer.consume(300, 1)]
    consumer.close()
    assert read == values


def test_the_admin_client_reads_and_turns_broker_configs(configured):
    admin = AdminClient({"bootstrap.servers": configured.bootstrap})
    change = ConfigEntry("log.flush.interval.messages", "55", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[change])
    list(admin.incremental_alter_configs([resource]).values())[0].result(20)

    def entry():
        asked = ConfigResource(ResourceType.BROKER, "0")
        return list(admin.describe_configs([asked]).values())[0].result(20)["log.flush.interval.messages"]

    seen = eventually(entry)
    assert (seen.value, seen.source) == ("55", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    back = ConfigEntry("log.flush.interval.messages", None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[back])
    list(admin.incremental_alter_configs([resource]).values())[0].result(20)
    assert eventually(entry).is_default
    with pytest.raises(KafkaException):
        fixed = ConfigEntry("num.partitions", "3", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[fixed])
        list(admin.incremental_alter_configs([resource]).values())[0].result(20)
