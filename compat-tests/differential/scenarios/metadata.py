"""Metadata, automatic creation, names, and what a client learns about the cluster (S-17 to S-25)."""

from __future__ import annotations

import uuid

from ..scenario import scenario

ONE_ID = uuid.UUID(int=1)


def one(t, name: str, version: int = 12, create: bool = False) -> dict:
    answer = t.call("Metadata", version, topics=[{"name": name}], allow_auto_topic_creation=create)
    return answer["topics"][0]


@scenario("S-17 S-22 S-23 S-24", bugs=(42, 59))
def topic_at_every_version(t):
    topic = t.topic(partitions=3)
    for version in range(14):
        answer = t.call("Metadata", version, topics=[{"name": topic.name}], allow_auto_topic_creation=False)
        t.see(f"v{version}", {name: value for name, value in answer.items() if name != "topics"})
        t.see(f"v{version} topics", answer["topics"])


@scenario("S-17")
def empty_list_means_all_in_version_0_and_none_later(t):
    topic = t.topic()
    for version in (0, 1, 8, 9, 12):
        names = [found["name"] for found in t.call("Metadata", version, topics=[])["topics"]]
        t.see(f"v{version}", [topic.name in names, not names])


@scenario("S-17")
def null_list_means_all(t):
    topics = [t.topic("a"), t.topic("b", partitions=2)]
    for version in (1, 4, 9, 12):
        answer = t.call("Metadata", version, topics=None)
        mine = [found for found in answer["topics"] if found["name"] in {topic.name for topic in topics}]
        t.see(f"v{version}", mine)


@scenario("S-18 S-22")
def lookup_by_id(t):
    topic = t.topic()
    answer = t.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": None}])
    t.see("known", answer["topics"])
    t.see("created and described ids agree", answer["topics"][0]["topic_id"] == topic.id)
    t.ask("unknown", "Metadata", 12, topics=[{"topic_id": uuid.UUID(int=0xABCDEF), "name": None}])


@scenario("S-18")
def name_and_id_together(t):
    topic = t.topic()
    t.see("both", t.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": topic.name}]))


@scenario("S-18")
def neither_name_nor_id(t):
    t.see("v12", t.call("Metadata", 12, topics=[{"name": None}]))


@scenario("S-18")
def ids_or_null_names_in_versions_10_and_11(t):
    topic = t.topic()
    for version in (10, 11):
        t.see(f"v{version} null name", t.call("Metadata", version, topics=[{"name": None}]))
        t.see(f"v{version} id", t.call("Metadata", version, topics=[{"topic_id": topic.id, "name": None}]))
        t.see(
            f"v{version} id and name", t.call("Metadata", version, topics=[{"topic_id": topic.id, "name": topic.name}])
        )


@scenario("S-19")
def unknown_topic_without_creation(t):
    for version in (4, 5, 8, 9, 12, 13):
        t.see(f"v{version}", one(t, t.name("nowhere"), version))
    t.see("still not there", one(t, t.name("nowhere")))


@scenario("S-19", bugs=(18,))
def first_answer_of_automatic_creation(t):
    name = t.name("auto")
    first = one(t, name, create=True)
    t.see("first error", {"error_code": first["error_code"]})
    t.until("the topic", lambda: one(t, name)["error_code"] == 0)
    t.see("then", one(t, name))


@scenario("S-17 S-19", bugs=(18,))
def versions_below_4_create(t):
    for version in (0, 1, 3):
        name = t.name(f"auto-{version}")
        t.call("Metadata", version, topics=[{"name": name}])
        t.until("the topic", lambda name=name: one(t, name)["error_code"] == 0)
        t.see(f"v{version}", one(t, name))


@scenario("S-19 S-64", bugs=(18,))
def automatic_creation_of_bad_names(t):
    for name in ("", ".", "..", "a b", "a/b", "a:b", "ü", "x" * 250, "x" * 249):
        found = one(t, name, create=len(name) != 249)
        t.see(repr(name[:10]), {"error_code": found["error_code"], "name": found["name"][:10]})


@scenario("S-19 S-35")
def internal_topics_are_marked(t):
    t.coordinator(t.name("g"))
    part = {"partition_index": 0, "committed_offset": 1}
    topic = t.topic()
    t.call(
        "OffsetCommit",
        7,
        group_id=t.name("g"),
        generation_id_or_member_epoch=-1,
        topics=[{"name": topic.name, "partitions": [part]}],
    )
    found = one(t, "__consumer_offsets")
    t.see("internal", [found["error_code"], found["is_internal"]])
    t.see("ordinary", one(t, topic.name)["is_internal"])


@scenario("S-21 S-22", bugs=(42,))
def brokers_and_controller_agree(t):
    answer = t.call("Metadata", 9, topics=[])
    nodes = [broker["node_id"] for broker in answer["brokers"]]
    t.see("brokers", answer["brokers"])
    t.see("controller is listed", answer["controller_id"] in nodes)
    cluster = t.call("DescribeCluster", 0)
    t.see("same cluster id", cluster["cluster_id"] == answer["cluster_id"])
    t.see("length of the cluster id", len(answer["cluster_id"]))
    t.see("same brokers", [broker["broker_id"] for broker in cluster["brokers"]] == nodes)


@scenario("S-22")
def topic_made_again_has_a_new_id(t):
    topic = t.topic("again")
    t.ask("delete", "DeleteTopics", 6, topics=[{"name": topic.name, "topic_id": uuid.UUID(int=0)}], timeout_ms=5000)
    t.until("it gone", lambda: one(t, topic.name)["error_code"] == 3)
    again = t.topic("again")
    t.see("same id", again.id == topic.id)
    t.see("zero or one", again.id in (uuid.UUID(int=0), ONE_ID))
    t.see("old id", t.call("Metadata", 12, topics=[{"topic_id": topic.id, "name": None}])["topics"])


@scenario("S-24")
def authorized_operations_when_asked(t):
    topic = t.topic()
    for version in (8, 9, 10, 12):
        answer = t.call(
            "Metadata",
            version,
            topics=[{"name": topic.name}],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        t.see(
            f"v{version}",
            [answer.get("cluster_authorized_operations"), answer["topics"][0]["topic_authorized_operations"]],
        )
    answer = t.call("DescribeCluster", 0, include_cluster_authorized_operations=True)
    t.see("DescribeCluster", answer["cluster_authorized_operations"])


@scenario("S-17")
def same_topic_twice_in_one_request(t):
    topic = t.topic()
    answer = t.call("Metadata", 12, topics=[{"name": topic.name}, {"name": topic.name}])
    t.see("topics", len(answer["topics"]))


@scenario("S-25")
def describe_cluster_at_every_version(t):
    for version in (0, 1, 2):
        t.ask(f"v{version}", "DescribeCluster", version)


@scenario("S-25")
def describe_cluster_of_other_endpoint_types(t):
    for kind in (1, 2, 0, 3):
        answer = t.call("DescribeCluster", 1, endpoint_type=kind)
        t.see(f"type {kind}", {"error_code": answer["error_code"], "error_message": answer["error_message"]})


@scenario("S-25")
def describe_topic_partitions_sorts_and_names_the_unknown(t):
    names = [t.topic("b", partitions=2).name, t.topic("a").name, t.name("nowhere")]
    answer = t.call(
        "DescribeTopicPartitions", 0, topics=[{"name": name} for name in names], response_partition_limit=100
    )
    t.see("order", [topic["name"] for topic in answer["topics"]])
    t.see("answer", answer)


@scenario("S-25")
def describe_topic_partitions_goes_on_from_its_cursor(t):
    names = [t.topic("a", partitions=3).name, t.topic("b", partitions=3).name]
    cursor, seen = None, []
    for _ in range(6):
        answer = t.call(
            "DescribeTopicPartitions",
            0,
            topics=[{"name": name} for name in names],
            response_partition_limit=2,
            cursor=cursor,
        )
        seen.append(
            [[topic["name"], [part["partition_index"] for part in topic["partitions"]]] for topic in answer["topics"]]
        )
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    t.see("pages", seen)
    t.see("last cursor", cursor)


@scenario("S-25")
def describe_topic_partitions_of_all_topics(t):
    names = [t.topic("a").name, t.topic("b").name]
    answer = t.call("DescribeTopicPartitions", 0, topics=[], response_partition_limit=2000)
    t.see("mine", [topic["name"] for topic in answer["topics"] if topic["name"] in names])
    t.see("cursor", answer["next_cursor"])


@scenario("S-25")
def describe_topic_partitions_with_a_cursor_that_is_wrong(t):
    topic = t.topic("m")
    for label, cursor in (
        ("negative partition", {"topic_name": topic.name, "partition_index": -1}),
        ("beyond the last partition", {"topic_name": topic.name, "partition_index": 7}),
        ("after every topic", {"topic_name": t.name("z"), "partition_index": 0}),
    ):
        conn = t.connect()
        conn.send(
            "DescribeTopicPartitions", 0, topics=[{"name": topic.name}], response_partition_limit=10, cursor=cursor
        )
        state = conn.state(2)
        t.see(label, state)


@scenario("S-19")
def partition_count_of_automatic_creation_is_the_default(t):
    name = t.name("auto")
    one(t, name, create=True)
    t.until("the topic", lambda: one(t, name)["error_code"] == 0)
    t.see("partitions", len(one(t, name)["partitions"]))
