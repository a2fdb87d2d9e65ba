"""Topics: create, delete, more partitions (S-64, S-65, S-70, S-71)."""

from __future__ import annotations

import uuid

from ..scenario import Topic, scenario

NO_ID = uuid.UUID(int=0)
# The configs that CreateTopics answers are compared by name and source; those only one side has are in `configs.*`.
SHOWN = ("cleanup.policy", "retention.ms", "max.message.bytes", "segment.bytes")


def create(t, *topics: dict, version: int = 7, validate_only: bool = False, timeout_ms: int = 10_000) -> list[dict]:
    filled = [{"num_partitions": 1, "replication_factor": 1, **topic} for topic in topics]
    answer = t.call("CreateTopics", version, topics=filled, validate_only=validate_only, timeout_ms=timeout_ms)
    for topic in answer["topics"]:
        topic["configs"] = [found for found in topic.get("configs") or [] if found["name"] in SHOWN] or None
    return answer["topics"]


def exists(t, name: str) -> bool:
    answer = t.call("Metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False)
    return answer["topics"][0]["error_code"] == 0


@scenario("S-64", bugs=(19,))
def create_at_every_version(t):
    for version in range(2, 8):
        name = t.name(f"t{version}")
        t.see(f"v{version}", create(t, {"name": name, "num_partitions": 2}, version=version))
        t.until("it", lambda name=name: exists(t, name))


@scenario("S-64 S-19", bugs=(19,))
def topic_can_be_used_at_once(t):
    for number in range(5):
        topic = t.topic(f"t{number}", partitions=3)
        t.see(f"{number}", [t.append(topic, b"a", partition=index) for index in range(3)])


@scenario("S-64", bugs=(20,))
def defaults_for_partitions_and_replicas(t):
    for version in (4, 5, 7):
        name = t.name(f"t{version}")
        t.see(f"v{version}", create(t, {"name": name, "num_partitions": -1, "replication_factor": -1}, version=version))


@scenario("S-64", bugs=(20,))
def bad_counts(t):
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (0, 0)):
        name = t.name(f"t{partitions}-{replicas}".replace("--", "-m"))
        t.see(
            f"{partitions} partitions, {replicas} replicas",
            create(t, {"name": name, "num_partitions": partitions, "replication_factor": replicas}),
        )


@scenario("S-64", bugs=(29,), brokers="changed")
def more_replicas_than_brokers(t):
    for replicas in (2, 3):
        t.see(f"{replicas}", create(t, {"name": t.name(f"t{replicas}"), "replication_factor": replicas}))


@scenario("S-64", bugs=(29,))
def more_replicas_than_brokers_by_default(t):
    for replicas in (2, 3):
        t.see(f"{replicas}", create(t, {"name": t.name(f"t{replicas}"), "replication_factor": replicas}))


@scenario("S-64", brokers="changed")
def explicit_assignments(t):
    def assign(*brokers: list[int], **more):
        parts = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(brokers)]
        return {
            "name": t.name(f"t{t.count}"),
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": parts,
            **more,
        }

    t.count = 0
    for label, brokers, more in (
        ("two partitions", ([0], [0]), {}),
        ("with counts too", ([0],), {"num_partitions": 1, "replication_factor": 1}),
        ("unknown broker", ([9],), {}),
        ("the same broker twice", ([0, 0],), {}),
        ("no brokers", ([],), {}),
    ):
        t.count += 1
        t.see(label, create(t, assign(*brokers, **more)))
    t.count += 1
    gap = assign([0])
    gap["assignments"][0]["partition_index"] = 3
    t.see("a gap", create(t, gap))


@scenario("S-64")
def same_name_twice_in_one_request(t):
    name, other = t.name("a"), t.name("b")
    t.see("answer", create(t, {"name": name}, {"name": name, "num_partitions": 3}, {"name": other}))
    t.until("the other", lambda: exists(t, other))
    t.see("made", exists(t, name))


@scenario("S-64")
def topic_that_exists(t):
    topic = t.topic()
    for version in (2, 5, 7):
        t.see(f"v{version}", create(t, {"name": topic.name}, version=version))
    t.see("only validated", create(t, {"name": topic.name}, validate_only=True))


@scenario("S-64")
def bad_names(t):
    for name in ("", ".", "..", "a b", "a/b", "ä", "a\x00b", "x" * 250):
        found = create(t, {"name": name})[0]
        t.see(repr(name[:8]), {key: found[key] for key in ("error_code", "error_message")})


@scenario("S-64")
def names_that_collide(t):
    t.topic("a.b")
    t.see("underscore", create(t, {"name": t.name("a_b")}))
    t.see("dot", create(t, {"name": t.name("a.b")}))


@scenario("S-64")
def names_that_collide_in_one_request(t):
    t.see("answer", create(t, {"name": t.name("a.b")}, {"name": t.name("a_b")}))


@scenario("S-64")
def validate_only_makes_nothing(t):
    name = t.name("t")
    t.see("answer", create(t, {"name": name, "num_partitions": 4}, validate_only=True))
    t.see("bad config", create(t, {"name": name, "configs": [{"name": "nothing", "value": "1"}]}, validate_only=True))
    t.see("made", exists(t, name))


@scenario("S-65", bugs=(21,))
def bad_configs(t):
    for number, (name, value) in enumerate(
        (
            ("no.such.config", "1"),
            ("retention.ms", "abc"),
            ("retention.ms", "-5"),
            ("retention.ms", None),
            ("cleanup.policy", "shred"),
            ("cleanup.policy", ""),
            ("segment.bytes", "1"),
            ("segment.bytes", "1048576"),
            ("max.message.bytes", "-1"),
            ("compression.type", "brotli"),
            ("message.timestamp.type", "MyTime"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("min.insync.replicas", "0"),
            ("unclean.leader.election.enable", "maybe"),
            ("message.format.version", "3.0"),
            ("", "1"),
        )
    ):
        config = [{"name": name, "value": value}]
        found = create(t, {"name": t.name(f"t{number}"), "configs": config})[0]
        t.see(f"{name}={value}", found["error_code"] and {key: found[key] for key in ("error_code", "error_message")})


@scenario("S-65", bugs=(21,))
def message_of_a_bad_config_names_it(t):
    for name, value in (("no.such.config", "1"), ("retention.ms", "abc"), ("cleanup.policy", "shred")):
        found = create(t, {"name": t.name("t"), "configs": [{"name": name, "value": value}]})[0]
        t.see(name, name in (found["error_message"] or ""))


@scenario("S-65")
def same_config_twice(t):
    configs = [{"name": "retention.ms", "value": "1000"}, {"name": "retention.ms", "value": "2000"}]
    t.see("answer", create(t, {"name": t.name("t"), "configs": configs}))


@scenario("S-64")
def configs_that_contradict_each_other(t):
    configs = [
        {"name": "min.compaction.lag.ms", "value": "2000"},
        {"name": "max.compaction.lag.ms", "value": "1000"},
    ]
    t.see("lags", create(t, {"name": t.name("t"), "configs": configs})[0]["error_code"])


@scenario("S-66", bugs=(30, 45))
def topics_as_connect_streams_and_debezium_make_them(t):
    for label, partitions, configs in (
        ("connect offsets", 25, {"cleanup.policy": "compact"}),
        (
            "streams repartition",
            2,
            {
                "cleanup.policy": "delete",
                "segment.bytes": "52428800",
                "retention.ms": "-1",
                "message.timestamp.type": "CreateTime",
            },
        ),
        ("streams changelog", 2, {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}),
        ("debezium history", 1, {"cleanup.policy": "delete", "retention.ms": str(2**63 - 1), "retention.bytes": "-1"}),
        ("schema registry", 1, {"cleanup.policy": "compact"}),
    ):
        rows = [{"name": key, "value": value} for key, value in configs.items()]
        t.see(
            label, create(t, {"name": t.name(label.replace(" ", "-")), "num_partitions": partitions, "configs": rows})
        )


@scenario("S-64")
def many_partitions(t):
    t.see("answer", create(t, {"name": t.name("t"), "num_partitions": 200}))
    t.see("listed", len(t.call("Metadata", 9, topics=[{"name": t.name("t")}])["topics"][0]["partitions"]) in (0, 200))


@scenario("S-64")
def request_without_topics(t):
    t.ask("create", "CreateTopics", 7, topics=[], timeout_ms=1000)
    t.ask("delete", "DeleteTopics", 6, topics=[], timeout_ms=1000)


# -- delete -----------------------------------------------------------------------


@scenario("S-70 S-71")
def delete_at_every_version(t):
    for version in range(1, 7):
        topic = t.topic(f"t{version}")
        names = {"topic_names": [topic.name]} if version < 6 else {"topics": [{"name": topic.name}]}
        t.ask(f"v{version}", "DeleteTopics", version, timeout_ms=5000, **names)
        t.until("it gone", lambda topic=topic: not exists(t, topic.name))


@scenario("S-70")
def delete_by_id(t):
    topic = t.topic()
    t.ask("by id", "DeleteTopics", 6, topics=[{"name": None, "topic_id": topic.id}], timeout_ms=5000)
    t.until("it gone", lambda: not exists(t, topic.name))
    t.ask("again", "DeleteTopics", 6, topics=[{"name": None, "topic_id": topic.id}], timeout_ms=5000)


@scenario("S-70")
def delete_that_is_wrong(t):
    topic = t.topic()
    for label, wanted in (
        ("unknown name", [{"name": t.name("nowhere")}]),
        ("unknown id", [{"name": None, "topic_id": uuid.UUID(int=0xABC)}]),
        ("name and id", [{"name": topic.name, "topic_id": topic.id}]),
        ("neither", [{"name": None, "topic_id": NO_ID}]),
        ("twice", [{"name": topic.name}, {"name": topic.name}]),
    ):
        t.ask(label, "DeleteTopics", 6, topics=wanted, timeout_ms=5000)
    t.see("still there", exists(t, topic.name))


@scenario("S-70")
def deleted_topic_is_unknown_everywhere(t):
    topic = t.topic()
    t.append(topic, b"a")
    t.call("DeleteTopics", 5, topic_names=[topic.name], timeout_ms=5000)
    t.until("it gone", lambda: not exists(t, topic.name))
    from .. import batch

    t.see("produce", t.produce(topic, batch.make(b"b")))
    t.see("produce by id", t.produce(topic, batch.make(b"b"), version=13))
    t.see("fetch", t.fetch(topic))
    t.see("fetch by id", t.fetch(topic, version=13))
    parts = [{"partition_index": 0, "timestamp": -1}]
    t.ask("list offsets", "ListOffsets", 7, topics=[{"name": topic.name, "partitions": parts}])


@scenario("S-70 S-22")
def topic_made_again_begins_at_zero(t):
    topic = t.topic()
    t.append(topic, b"a", b"b")
    t.call("DeleteTopics", 5, topic_names=[topic.name], timeout_ms=5000)
    t.until("it gone", lambda: not exists(t, topic.name))
    again = t.topic()
    t.see("offsets", t.offsets(again))
    t.see("first", t.append(again, b"c"))


# -- partitions -------------------------------------------------------------------


def grow(t, *topics: dict, version: int = 3, validate_only: bool = False) -> list[dict]:
    filled = [{"assignments": None, **topic} for topic in topics]
    return t.call("CreatePartitions", version, topics=filled, timeout_ms=5000, validate_only=validate_only)["results"]


def count(t, topic: Topic) -> int:
    return len(t.call("Metadata", 9, topics=[{"name": topic.name}])["topics"][0]["partitions"])


@scenario("S-70", bugs=(50,))
def more_partitions_at_every_version(t):
    topic = t.topic()
    for version in range(4):
        t.see(f"v{version}", grow(t, {"name": topic.name, "count": version + 2}, version=version))
    t.until("five", lambda: count(t, topic) == 5)
    t.until("the last", lambda: t.offsets(topic, 4) == (0, 0))
    t.see("the last can be written", t.append(topic, b"a", partition=4))


@scenario("S-70")
def partition_counts_that_do_not_grow(t):
    topic = t.topic(partitions=3)
    for number in (3, 2, 0, -1):
        t.see(f"{number}", grow(t, {"name": topic.name, "count": number}))
    t.see("unknown", grow(t, {"name": t.name("nowhere"), "count": 5}))
    t.see("twice", grow(t, {"name": topic.name, "count": 4}, {"name": topic.name, "count": 5}))
    t.see("count", count(t, topic))


@scenario("S-70", bugs=(50,))
def more_partitions_only_validated_or_none(t):
    topic = t.topic()
    t.see("validated", grow(t, {"name": topic.name, "count": 4}, validate_only=True))
    t.see("count", count(t, topic))
    t.see("no topics", grow(t))


@scenario("S-70", brokers="changed")
def more_partitions_with_assignments(t):
    topic = t.topic()
    for label, number, brokers in (
        ("right", 2, [[0]]),
        ("too few", 5, [[0]]),
        ("too many", 3, [[0], [0]]),
        ("unknown broker", 3, [[9]]),
        ("two brokers", 3, [[0, 1]]),
    ):
        assignments = [{"broker_ids": ids} for ids in brokers]
        t.see(label, grow(t, {"name": topic.name, "count": number, "assignments": assignments}))
