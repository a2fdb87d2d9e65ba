"""What admin tools ask of the cluster: log directories, quorum, elections, ACLs, quotas, users (S-72, S-102 to S-106)."""

from __future__ import annotations

from ..connection import Closed
from ..scenario import scenario

PLACE = ("log_dir",)


def log_dirs(t, version: int, topics: list[dict] | None) -> dict:
    answer = t.call("DescribeLogDirs", version, topics=topics)
    for found in answer["results"]:
        found["log_dir"] = "its directory"
        for key in ("total_bytes", "usable_bytes"):
            if key in found:
                found[key] = "more than 0" if found[key] > 0 else found[key]
    return answer


@scenario("S-72", bugs=(23,))
def log_dirs_at_every_version(t):
    topic = t.topic(partitions=2)
    for version in range(1, 5):
        t.see(f"v{version}", log_dirs(t, version, [{"topic": topic.name, "partitions": [0, 1]}]))


@scenario("S-72", bugs=(23,))
def log_dirs_of_the_unknown_and_of_all(t):
    topic = t.topic()
    wanted = [{"topic": topic.name, "partitions": [0, 7]}, {"topic": t.name("nowhere"), "partitions": [0]}]
    t.see("unknown", log_dirs(t, 4, wanted))
    t.see("none", log_dirs(t, 4, []))
    names = {found["name"] for place in log_dirs(t, 4, None)["results"] for found in place["topics"]}
    t.see("all", topic.name in names)


@scenario("S-72")
def log_dirs_have_sizes_that_grow(t):
    topic = t.topic()

    def size() -> int:
        answer = log_dirs(t, 4, [{"topic": topic.name, "partitions": [0]}])
        return answer["results"][0]["topics"][0]["partitions"][0]["partition_size"]

    before = size()
    t.append(topic, b"x" * 10_000)
    t.see("sizes", [before, 10_000 <= size() <= 20_000])


@scenario("S-106")
def reassignments_that_are_none(t):
    topic = t.topic()
    for wanted in (
        None,
        [],
        [{"name": topic.name, "partition_indexes": [0]}],
        [{"name": t.name("nowhere"), "partition_indexes": [0]}],
    ):
        label = (
            "all"
            if wanted is None
            else f"{len(wanted)} {'known' if wanted and wanted[0]['name'] == topic.name else ''}"
        )
        t.ask(label, "ListPartitionReassignments", 0, timeout_ms=1000, topics=wanted)


@scenario("S-106")
def reassignment_to_the_broker_that_has_it(t):
    topic = t.topic()
    for version in (0, 1):
        for label, partition, replicas in (
            ("same", 0, [0]),
            ("unknown broker", 0, [7]),
            ("unknown partition", 5, [0]),
            ("no replicas", 0, []),
            ("twice the same", 0, [0, 0]),
            ("cancelled", 0, None),
        ):
            parts = [{"partition_index": partition, "replicas": replicas}]
            t.ask(
                f"v{version} {label}",
                "AlterPartitionReassignments",
                version,
                timeout_ms=1000,
                topics=[{"name": topic.name, "partitions": parts}],
            )


@scenario("S-104")
def elections(t):
    topic = t.topic()
    for version, kind in ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1)):
        t.ask(
            f"v{version} type {kind}",
            "ElectLeaders",
            version,
            election_type=kind,
            timeout_ms=1000,
            topic_partitions=[{"topic": topic.name, "partitions": [0]}],
        )
    wanted = [{"topic": topic.name, "partitions": [9]}, {"topic": t.name("nowhere"), "partitions": [0]}]
    t.ask("unknown", "ElectLeaders", 2, election_type=0, timeout_ms=1000, topic_partitions=wanted)
    t.ask("none", "ElectLeaders", 2, election_type=0, timeout_ms=1000, topic_partitions=[])


@scenario("S-104")
def unknown_election_type(t):
    topic = t.topic()
    conn = t.connect()
    parts = [{"topic": topic.name, "partitions": [0]}]
    conn.send("ElectLeaders", 2, election_type=5, timeout_ms=1000, topic_partitions=parts)
    try:
        t.see("answer", conn.receive("ElectLeaders", 2))
    except Closed:
        t.see("answer", "closed")


ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@scenario("S-102", bugs=(48,))
def acls_without_an_authorizer(t):
    for version in range(1, 4):
        t.ask(f"describe v{version}", "DescribeAcls", version, **ANY)
        t.ask(f"create v{version}", "CreateAcls", version, creations=[ACL, ACL])
        t.ask(f"delete v{version}", "DeleteAcls", version, filters=[ANY])


@scenario("S-102")
def acl_requests_with_nothing_in_them(t):
    t.ask("create", "CreateAcls", 3, creations=[])
    t.ask("delete", "DeleteAcls", 3, filters=[])


@scenario("S-103 S-11")
def quotas_that_are_none(t):
    for version in (0, 1):
        component = [{"entity_type": "user", "match_type": 0, "match": t.name("u")}]
        t.ask(f"v{version}", "DescribeClientQuotas", version, components=component, strict=False)
    odd = [{"entity_type": "nothing", "match_type": 0, "match": "x"}]
    t.ask("unknown entity type", "DescribeClientQuotas", 1, components=odd, strict=False)
    odd = [{"entity_type": "user", "match_type": 9, "match": "x"}]
    t.ask("unknown match type", "DescribeClientQuotas", 1, components=odd, strict=False)


@scenario("S-103 S-11")
def quota_is_set_and_described(t):
    user = t.name("u")
    entity = [{"entity_type": "user", "entity_name": user}]
    component = [{"entity_type": "user", "match_type": 0, "match": user}]

    def change(value: float, remove: bool = False, key: str = "producer_byte_rate", validate: bool = False):
        ops = [{"key": key, "value": value, "remove": remove}]
        return t.call("AlterClientQuotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=validate)

    t.see("validated", change(1e6, validate=True))
    t.see("set", change(1e6))
    t.until("it", lambda: t.call("DescribeClientQuotas", 1, components=component, strict=True)["entries"])
    t.see("described", t.call("DescribeClientQuotas", 1, components=component, strict=True))
    t.see("unknown key", change(1.0, key="nothing"))
    t.see("negative", change(-1.0))
    t.see("removed", change(0.0, remove=True))


@scenario("S-103 S-14")
def scram_users_that_are_none(t):
    t.ask("named", "DescribeUserScramCredentials", 0, users=[{"name": t.name("u")}])
    t.ask("twice", "DescribeUserScramCredentials", 0, users=[{"name": t.name("u")}, {"name": t.name("u")}])
    t.ask("empty name", "DescribeUserScramCredentials", 0, users=[{"name": ""}])


@scenario("S-103 S-14")
def scram_user_is_made_and_deleted(t):
    user = t.name("u")

    def change(deletions=(), iterations: int | None = 4096, mechanism: int = 1, name: str = user):
        upsertions = [
            {
                "name": name,
                "mechanism": mechanism,
                "iterations": iterations,
                "salt": b"salt",
                "salted_password": b"password",
            }
        ]
        return t.call(
            "AlterUserScramCredentials",
            0,
            deletions=[{"name": name, "mechanism": found} for found in deletions],
            upsertions=[] if deletions else upsertions,
        )

    t.see("too few iterations", change(iterations=4095))
    t.see("too many iterations", change(iterations=16385))
    t.see("unknown mechanism", change(mechanism=9))
    t.see("empty name", change(name=""))
    t.see("made", change())
    t.until(
        "it",
        lambda: t.call("DescribeUserScramCredentials", 0, users=[{"name": user}])["results"][0]["credential_infos"],
    )
    t.see("described", t.call("DescribeUserScramCredentials", 0, users=[{"name": user}]))
    t.see("other mechanism deleted", change(deletions=(2,)))
    t.see("deleted", change(deletions=(1,)))


@scenario("S-103")
def delegation_tokens_without_security(t):
    answer = t.call("ApiVersions", 0)
    t.see("advertised", 38 in {key["api_key"] for key in answer["api_keys"]})


@scenario("S-25")
def quorum_of_one(t):
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    for version in range(3):
        answer = t.call("DescribeQuorum", version, topics=topics)
        part = answer["topics"][0]["partitions"][0]
        t.see(
            f"v{version}",
            {
                "error_code": part["error_code"],
                "leader": part["leader_id"],
                "voters": [voter["replica_id"] for voter in part["current_voters"]],
                "observers": [observer["replica_id"] for observer in part["observers"]],
                "nodes": [node["node_id"] for node in answer.get("nodes", [])],
            },
        )


@scenario("S-25")
def quorum_of_another_topic(t):
    topics = [{"topic_name": t.name("x"), "partitions": [{"partition_index": 0}]}]
    t.ask("answer", "DescribeQuorum", 2, topics=topics)


@scenario("S-7")
def features_cannot_be_changed_to_what_is_not_supported(t):
    update = [{"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}]
    t.ask("unknown", "UpdateFeatures", 1, timeout_ms=2000, feature_updates=update, validate_only=True)


@scenario("S-72")
def moving_replicas_between_directories(t):
    topic = t.topic()
    dirs = [{"path": "/nowhere/at/all", "topics": [{"name": topic.name, "partitions": [0]}]}]
    t.ask("answer", "AlterReplicaLogDirs", 2, dirs=dirs)


@scenario("S-99")
def producers_of_a_partition(t):
    topic = t.topic()
    wanted = [{"name": topic.name, "partition_indexes": [0, 4]}, {"name": t.name("nowhere"), "partition_indexes": [0]}]
    t.ask("none", "DescribeProducers", 0, topics=wanted)
    pid = t.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)["producer_id"]
    t.append(topic, b"a", b"b", producer=(pid, 0, 0))
    t.ask("one", "DescribeProducers", 0, topics=wanted[:1])
