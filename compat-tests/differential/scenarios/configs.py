"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs of every resource (S-65 to S-69)."""

from __future__ import annotations

from .. import batch
from ..scenario import scenario

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(
    t, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = False, documents: bool = False
) -> dict:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    answer = t.call(
        "DescribeConfigs", version, resources=[resource], include_synonyms=synonyms, include_documentation=documents
    )
    return answer["results"][0]


def configs(found: dict) -> dict[str, dict]:
    return {config["name"]: config for config in found["configs"]}


def alter(
    t, kind: int, name: str, *changes: tuple[int, str, str | None], version: int = 1, validate_only=False
) -> dict:
    rows = [{"name": key, "config_operation": operation, "value": value} for operation, key, value in changes]
    answer = t.call(
        "IncrementalAlterConfigs",
        version,
        resources=[{"resource_type": kind, "resource_name": name, "configs": rows}],
        validate_only=validate_only,
    )
    return answer["responses"][0]


def replace(t, kind: int, name: str, values: dict[str, str | None], version: int = 2, validate_only=False) -> dict:
    rows = [{"name": key, "value": value} for key, value in values.items()]
    answer = t.call(
        "AlterConfigs",
        version,
        resources=[{"resource_type": kind, "resource_name": name, "configs": rows}],
        validate_only=validate_only,
    )
    return answer["responses"][0]


def value(t, name: str, key: str, kind: int = TOPIC) -> str | None:
    return configs(describe(t, kind, name, key)).get(key, {}).get("value")


@scenario("S-66 S-67", bugs=(22, 30, 45))
def every_topic_config_and_its_default(t):
    found = configs(describe(t, TOPIC, t.topic().name))
    kafkas = {name: config["value"] for name, config in found.items() if not name.startswith("weir.")}
    t.see("configs", dict(sorted(kafkas.items())))


@scenario("S-67")
def type_source_and_flags_of_every_topic_config(t):
    found = configs(describe(t, TOPIC, t.topic().name))
    kafkas = {name: config for name, config in sorted(found.items()) if not name.startswith("weir.")}
    for key in ("config_type", "config_source", "read_only", "is_sensitive"):
        t.see(key, {name: config[key] for name, config in kafkas.items()})


@scenario("S-67")
def documentation_when_asked(t):
    topic = t.topic()
    t.see("asked", describe(t, TOPIC, topic.name, "cleanup.policy", "retention.ms", documents=True))
    t.see("not asked", describe(t, TOPIC, topic.name, "cleanup.policy"))


@scenario("S-67")
def synonyms_when_asked(t):
    topic = t.topic(retention__ms=1000)
    for key in ("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "compression.type"):
        t.see(key, describe(t, TOPIC, topic.name, key, synonyms=True)["configs"])


@scenario("S-67", bugs=(22, 48))
def describe_at_every_version(t):
    topic = t.topic(cleanup__policy="compact")
    for version in range(1, 5):
        t.see(f"v{version}", describe(t, TOPIC, topic.name, "cleanup.policy", "retention.ms", version=version))


@scenario("S-67", bugs=(50,))
def keys_filter_and_unknown_keys_are_ignored(t):
    topic = t.topic()
    t.see("unknown", describe(t, TOPIC, topic.name, "no.such", "retention.ms"))
    resource = {"resource_type": TOPIC, "resource_name": topic.name, "configuration_keys": []}
    answer = t.call("DescribeConfigs", 4, resources=[resource])["results"][0]
    t.see("empty list", [answer["error_code"], len(answer["configs"]) > 0])


@scenario("S-67")
def describe_of_the_unknown(t):
    for label, kind, name in (
        ("topic", TOPIC, t.name("nowhere")),
        ("bad topic name", TOPIC, "a b"),
        ("empty topic name", TOPIC, ""),
        ("broker", BROKER, "77"),
        ("broker that is no number", BROKER, "abc"),
        ("logger of another", LOGGER, "77"),
        ("type 0", 0, "x"),
        ("type 1", 1, "x"),
        ("type 99", 99, "x"),
    ):
        t.see(label, describe(t, kind, name))


@scenario("S-67")
def same_resource_twice(t):
    topic = t.topic()
    resource = {"resource_type": TOPIC, "resource_name": topic.name, "configuration_keys": ["retention.ms"]}
    t.ask("answer", "DescribeConfigs", 4, resources=[resource, resource])


@scenario("S-68", bugs=(31,))
def broker_configs_that_tools_read(t):
    found = configs(describe(t, BROKER, "0"))
    for key in (
        "num.partitions",
        "default.replication.factor",
        "auto.create.topics.enable",
        "delete.topic.enable",
        "message.max.bytes",
        "min.insync.replicas",
        "log.retention.hours",
        "log.retention.bytes",
        "log.cleanup.policy",
        "offsets.retention.minutes",
        "group.initial.rebalance.delay.ms",
        "group.min.session.timeout.ms",
        "group.max.session.timeout.ms",
        "transaction.max.timeout.ms",
        "compression.type",
        "log.message.timestamp.type",
        "log.segment.bytes",
        "unclean.leader.election.enable",
        "fetch.max.bytes",
        "socket.request.max.bytes",
        "connections.max.idle.ms",
        "num.io.threads",
        "background.threads",
        "log.flush.interval.messages",
    ):
        t.see(key, found[key]["value"] if key in found else "no such config")


@scenario("S-68 S-67")
def type_source_and_flags_of_broker_configs(t):
    found = describe(
        t, BROKER, "0", "num.partitions", "group.initial.rebalance.delay.ms", "log.dirs", "node.id", "message.max.bytes"
    )
    for config in found["configs"]:
        if config["name"] in ("log.dirs", "node.id"):
            config["value"] = "its own"
    t.see("answer", found)


@scenario("S-68 S-67")
def synonyms_of_broker_configs(t):
    for key in ("num.partitions", "message.max.bytes", "log.retention.ms", "group.initial.rebalance.delay.ms"):
        t.see(key, describe(t, BROKER, "0", key, synonyms=True)["configs"])


@scenario("S-67 S-69")
def default_broker_without_dynamic_configs(t):
    t.see("answer", describe(t, BROKER, ""))


@scenario("S-67")
def broker_loggers(t):
    found = describe(t, LOGGER, "0")
    t.see("answer", {key: found[key] for key in ("error_code", "error_message", "resource_type", "resource_name")})


@scenario("S-67", bugs=(50,))
def group_configs(t):
    name = t.name("g")
    found = configs(describe(t, GROUP, name))
    t.see(
        "names and values",
        {key: config["value"] for key, config in sorted(found.items()) if key.startswith("consumer.")},
    )
    t.see("set", alter(t, GROUP, name, (SET, "consumer.session.timeout.ms", "46000")))
    t.until("it", lambda: value(t, name, "consumer.session.timeout.ms", GROUP) == "46000")
    t.see("described", describe(t, GROUP, name, "consumer.session.timeout.ms", synonyms=True))
    t.see("unknown", alter(t, GROUP, name, (SET, "no.such", "1")))
    t.see("out of range", alter(t, GROUP, name, (SET, "consumer.session.timeout.ms", "1")))
    t.see("empty name", alter(t, GROUP, "", (SET, "consumer.session.timeout.ms", "46000")))
    t.see("deleted", alter(t, GROUP, name, (DELETE, "consumer.session.timeout.ms", None)))


@scenario("S-67")
def client_metrics_configs(t):
    name = t.name("m")
    t.see("set", alter(t, CLIENT_METRICS, name, (SET, "interval.ms", "5000")))
    t.until("it", lambda: value(t, name, "interval.ms", CLIENT_METRICS) == "5000")
    t.see("described", describe(t, CLIENT_METRICS, name))
    t.see("unknown", alter(t, CLIENT_METRICS, name, (SET, "no.such", "1")))
    t.see("deleted", alter(t, CLIENT_METRICS, name, (DELETE, "interval.ms", None)))


@scenario("S-67")
def list_config_resources(t):
    topic = t.topic()

    def mine(version: int, **filters):
        answer = t.call("ListConfigResources", version, **filters)
        own = [found for found in answer["config_resources"] if topic.name in found["resource_name"]]
        kinds = sorted({found.get("resource_type", CLIENT_METRICS) for found in answer["config_resources"]})
        return [answer["error_code"], own, [kind for kind in kinds if kind in (TOPIC, BROKER)]]

    t.see("v0", mine(0)[:2])
    t.see("topics", mine(1, resource_types=[TOPIC]))
    t.see("brokers", mine(1, resource_types=[BROKER]))
    t.see("unknown", t.call("ListConfigResources", 1, resource_types=[99]))


# -- changes ----------------------------------------------------------------------


@scenario("S-69")
def set_and_delete(t):
    topic = t.topic()
    for version in (0, 1):
        t.see(
            f"set v{version}", alter(t, TOPIC, topic.name, (SET, "retention.ms", f"100{version}000"), version=version)
        )
        t.until("it", lambda version=version: value(t, topic.name, "retention.ms") == f"100{version}000")
    t.see("described", describe(t, TOPIC, topic.name, "retention.ms", synonyms=True))
    t.see("delete", alter(t, TOPIC, topic.name, (DELETE, "retention.ms", None)))
    t.until("the default", lambda: value(t, topic.name, "retention.ms") == "604800000")
    t.see("delete what is not set", alter(t, TOPIC, topic.name, (DELETE, "retention.ms", None)))


@scenario("S-69")
def append_and_subtract(t):
    topic = t.topic()
    t.see("append", alter(t, TOPIC, topic.name, (APPEND, "cleanup.policy", "compact")))
    t.until("both", lambda: value(t, topic.name, "cleanup.policy") == "delete,compact")
    t.see("append again", alter(t, TOPIC, topic.name, (APPEND, "cleanup.policy", "compact")))
    t.see("value", value(t, topic.name, "cleanup.policy"))
    t.see("subtract", alter(t, TOPIC, topic.name, (SUBTRACT, "cleanup.policy", "delete")))
    t.until("one", lambda: value(t, topic.name, "cleanup.policy") == "compact")
    t.see("subtract what is not there", alter(t, TOPIC, topic.name, (SUBTRACT, "cleanup.policy", "delete")))
    t.see("append to a number", alter(t, TOPIC, topic.name, (APPEND, "retention.ms", "1")))
    t.see("subtract from a number", alter(t, TOPIC, topic.name, (SUBTRACT, "retention.ms", "1")))


@scenario("S-69 S-65", bugs=(21,))
def changes_that_are_wrong(t):
    topic = t.topic()
    for label, changes in (
        ("unknown config", [(SET, "no.such", "1")]),
        ("bad value", [(SET, "retention.ms", "abc")]),
        ("out of range", [(SET, "min.cleanable.dirty.ratio", "2")]),
        ("null value", [(SET, "retention.ms", None)]),
        ("the same key twice", [(SET, "retention.ms", "1"), (SET, "retention.ms", "2")]),
        ("unknown operation", [(9, "retention.ms", "1")]),
        ("one good, one bad", [(SET, "retention.bytes", "5"), (SET, "no.such", "1")]),
        ("none", []),
    ):
        t.see(label, alter(t, TOPIC, topic.name, *changes))
    t.see("nothing changed", value(t, topic.name, "retention.bytes"))
    t.see("unknown topic", alter(t, TOPIC, t.name("nowhere"), (SET, "retention.ms", "1")))


@scenario("S-69")
def same_resource_twice_in_one_change(t):
    topic = t.topic()
    rows = [{"name": "retention.ms", "config_operation": SET, "value": "1000000"}]
    resource = {"resource_type": TOPIC, "resource_name": topic.name, "configs": rows}
    t.ask("answer", "IncrementalAlterConfigs", 1, resources=[resource, resource])


@scenario("S-69")
def validate_only_changes_nothing(t):
    topic = t.topic()
    t.see("incremental", alter(t, TOPIC, topic.name, (SET, "retention.ms", "5000000"), validate_only=True))
    t.see("replaced", replace(t, TOPIC, topic.name, {"retention.ms": "5000000"}, validate_only=True))
    t.see("bad", alter(t, TOPIC, topic.name, (SET, "retention.ms", "x"), validate_only=True))
    t.see("value", value(t, topic.name, "retention.ms"))


@scenario("S-69")
def alter_configs_replaces_the_whole_set(t):
    topic = t.topic(retention__ms=1000000, retention__bytes=5000000)
    for version in range(3):
        t.see(f"v{version}", replace(t, TOPIC, topic.name, {"retention.ms": f"200000{version}"}, version=version))
        t.until("it", lambda version=version: value(t, topic.name, "retention.ms") == f"200000{version}")
    t.see("the other", value(t, topic.name, "retention.bytes"))
    t.see("null value", replace(t, TOPIC, topic.name, {"retention.ms": None}))
    t.see("unknown", replace(t, TOPIC, topic.name, {"no.such": "1"}))
    t.see("empty", replace(t, TOPIC, topic.name, {}))
    t.until("the default", lambda: value(t, topic.name, "retention.ms") == "604800000")
    t.see("unknown topic", replace(t, TOPIC, t.name("nowhere"), {"retention.ms": "1"}))


@scenario("S-69 S-28")
def change_takes_effect_without_a_restart(t):
    topic = t.topic()
    t.see("before", t.produce(topic, batch.make(b"x" * 2000))["error_code"])
    alter(t, TOPIC, topic.name, (SET, "max.message.bytes", "1000"))
    t.until("the limit", lambda: t.produce(topic, batch.make(b"x" * 2000))["error_code"] != 0)
    t.see_error("after", t.produce(topic, batch.make(b"x" * 2000))["error_code"])
    alter(t, TOPIC, topic.name, (SET, "message.timestamp.type", "LogAppendTime"))
    t.until("the type", lambda: t.produce(topic, batch.make(b"x"))["log_append_time_ms"] > 0)


@scenario("S-69")
def broker_config_that_may_not_change(t):
    for key, new in (("num.partitions", "4"), ("node.id", "4"), ("no.such.config", "1"), ("log.retention.ms", "abc")):
        t.see(key, alter(t, BROKER, "0", (SET, key, new), validate_only=True))


@scenario("S-69", alone=True)
def broker_config_that_changes(t):
    for name in ("0", ""):
        t.see(f"{name!r} set", alter(t, BROKER, name, (SET, "message.max.bytes", "2000000")))
        t.until("it", lambda: value(t, "0", "message.max.bytes", BROKER) == "2000000")
        t.see(f"{name!r} described", describe(t, BROKER, name, "message.max.bytes", synonyms=True))
        t.see(f"{name!r} deleted", alter(t, BROKER, name, (DELETE, "message.max.bytes", None)))
        t.until("the default", lambda: value(t, "0", "message.max.bytes", BROKER) == "1048588")


@scenario("S-69", alone=True)
def broker_default_reaches_the_topics(t):
    topic = t.topic()
    t.see("set", alter(t, BROKER, "", (SET, "log.retention.ms", "777000000")))
    t.until("it", lambda: value(t, topic.name, "retention.ms") == "777000000")
    t.see("topic", describe(t, TOPIC, topic.name, "retention.ms", synonyms=True))
    t.see("deleted", alter(t, BROKER, "", (DELETE, "log.retention.ms", None)))
    t.until("the default", lambda: value(t, topic.name, "retention.ms") == "604800000")


@scenario("S-69")
def loggers_change(t):
    t.see("unknown logger", alter(t, LOGGER, "0", (SET, "no.such.Logger", "DEBUG"), validate_only=True))
    t.see("unknown level", alter(t, LOGGER, "0", (SET, "root", "LOUD"), validate_only=True))


@scenario("S-69")
def resource_types_that_do_not_exist(t):
    for kind in (0, 1, 99):
        t.see(f"incremental {kind}", alter(t, kind, "x", (SET, "a", "1")))
        t.see(f"replaced {kind}", replace(t, kind, "x", {"a": "1"}))
