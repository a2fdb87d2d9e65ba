"""OffsetCommit, OffsetFetch, OffsetDelete, and offsets that end (S-83 to S-85, S-92)."""

from __future__ import annotations

import time
import uuid

from ..members import Member, commit, committed, described
from ..scenario import scenario


def group(t) -> str:
    name = t.name("g")
    t.coordinator(name)
    return name


@scenario("S-83 S-84", bugs=(26, 43, 50))
def commit_and_fetch_at_every_version(t):
    name, topic = group(t), t.topic()
    for version in range(2, 10):
        code = commit(t, name, topic, version, version, metadata=f"m{version}", committed_leader_epoch=3)
        t.see_error(f"commit v{version}", code)
    for version in range(1, 10):
        t.see(f"fetch v{version}", committed(t, name, topic, version))


@scenario("S-83 S-84 S-56")
def topic_ids_of_version_10(t):
    name, topics = group(t), [t.topic("a"), t.topic("b", partitions=2)]
    nowhere = type(topics[0])(t.name("nowhere"), uuid.UUID(int=0xABC))
    for number, topic in enumerate(topics):
        t.see_error(f"commit {number}", commit(t, name, topic, number, 10, metadata="m"))
    t.see_error("unknown id", commit(t, name, nowhere, 1, version=10))
    t.see("fetch", committed(t, name, topics[0], 10))
    t.see("fetch all", committed(t, name, None, 10))
    t.see("fetch an unknown id", committed(t, name, nowhere, 10))


@scenario("S-83")
def simple_consumer_commits_without_members(t):
    name, topic = group(t), t.topic()
    t.see_error("generation -1", commit(t, name, topic, 5))
    t.see_error("generation 0", commit(t, name, topic, 6, generation_id_or_member_epoch=0))
    t.see_error("with a member id", commit(t, name, topic, 6, member_id="x"))
    t.see("kept", committed(t, name, topic))
    t.see("described", described(t, name))


@scenario("S-83 S-50", bugs=(50,))
def commit_of_a_group_with_members(t):
    name, topic = group(t), t.topic()
    member = Member(t, name)
    member.enter()
    mine = {"member_id": member.id, "generation_id_or_member_epoch": member.generation}
    t.see_error("completing", commit(t, name, topic, 1, **mine))
    member.sync({member.id: b"x"})
    t.see_error("stable", commit(t, name, topic, 1, **mine))
    t.see_error("no member", commit(t, name, topic, 2))
    t.see_error("unknown member", commit(t, name, topic, 2, **{**mine, "member_id": "nobody"}))
    t.see_error("old generation", commit(t, name, topic, 2, **{**mine, "generation_id_or_member_epoch": 0}))
    t.see_error("later generation", commit(t, name, topic, 2, **{**mine, "generation_id_or_member_epoch": 9}))
    t.see_error("unknown instance", commit(t, name, topic, 2, **mine, group_instance_id="nobody"))
    t.see("kept", committed(t, name, topic))


@scenario("S-83")
def commit_while_preparing_a_rebalance(t):
    name, topic = group(t), t.topic()
    member, other = Member(t, name), Member(t, name)
    member.settle()
    other.join()
    other.ask_join()
    t.until("the rebalance", lambda: member.heartbeat() == 27)
    mine = {"member_id": member.id, "generation_id_or_member_epoch": member.generation}
    t.see_error("current generation", commit(t, name, topic, 7, **mine))
    t.see("kept", committed(t, name, topic))


@scenario("S-83", bugs=(50,))
def metadata_has_a_limit(t):
    name, topic = group(t), t.topic()
    for size in (4096, 4097):
        t.see_error(f"{size} bytes", commit(t, name, topic, size, metadata="x" * size))
    t.see_error("null", commit(t, name, topic, 1, metadata=None))
    t.see("kept", committed(t, name, topic))


@scenario("S-83")
def commit_to_the_unknown(t):
    name, topic = group(t), t.topic()
    nowhere = type(topic)(t.name("nowhere"), uuid.UUID(int=0xABC))
    t.see_error("partition", commit(t, name, topic, 1, partition=8))
    t.see_error("topic", commit(t, name, nowhere, 1))
    t.see_error("negative offset", commit(t, name, topic, -1))
    t.see_error("beyond the log", commit(t, name, topic, 1 << 40))
    t.see_error("empty group", commit(t, "", topic, 1))
    t.see("kept", committed(t, name, topic))


@scenario("S-84", bugs=(43,))
def fetch_of_what_was_never_committed(t):
    name, topic = group(t), t.topic(partitions=2)
    for version in (1, 2, 5, 7, 8, 9):
        t.see(f"unknown group v{version}", committed(t, name, topic, version))
    commit(t, name, topic, 1)
    t.see("other partitions", committed(t, name, topic, partitions=(0, 1, 9)))
    nowhere = type(topic)(t.name("nowhere"), uuid.UUID(int=0xABC))
    t.see("unknown topic", committed(t, name, nowhere))


@scenario("S-84", bugs=(43,))
def null_topics_mean_all(t):
    name, topics = group(t), [t.topic("a"), t.topic("b", partitions=2)]
    for number, topic in enumerate(topics):
        commit(t, name, topic, number + 1)
    for version in (2, 5, 7, 8, 9):
        t.see(f"v{version}", committed(t, name, None, version))
    t.see("empty list", t.call("OffsetFetch", 7, group_id=name, topics=[]))


@scenario("S-84")
def many_groups_in_one_request(t):
    name, topic = group(t), t.topic()
    commit(t, name, topic, 1)
    commit(t, name + "2", topic, 2)
    topics = [{"name": topic.name, "partition_indexes": [0]}]
    groups = [
        {"group_id": name, "topics": topics},
        {"group_id": name + "2", "topics": None},
        {"group_id": t.name("nobody"), "topics": topics},
    ]
    t.ask("answer", "OffsetFetch", 8, groups=groups)
    t.ask("none", "OffsetFetch", 8, groups=[])


@scenario("S-84")
def require_stable_without_transactions(t):
    name, topic = group(t), t.topic()
    commit(t, name, topic, 4)
    t.see("v7", committed(t, name, topic, 7, stable=True))
    t.see("v8", committed(t, name, topic, 8, stable=True))


@scenario("S-92 S-84")
def fetch_with_a_member_of_a_classic_group(t):
    name, topic = group(t), t.topic()
    member = Member(t, name)
    member.settle()
    for label, more in (
        ("none", {"member_id": None, "member_epoch": -1}),
        ("the member", {"member_id": member.id, "member_epoch": member.generation}),
        ("another", {"member_id": "nobody", "member_epoch": 1}),
        ("another epoch", {"member_id": member.id, "member_epoch": 9}),
    ):
        t.see(label, committed(t, name, topic, 9, **more))


@scenario("S-85")
def offset_delete(t):
    name, topic = group(t), t.topic(partitions=2)
    commit(t, name, topic, 1)
    commit(t, name, topic, 2, partition=1)
    parts = [{"partition_index": 0}, {"partition_index": 7}]
    topics = [{"name": topic.name, "partitions": parts}, {"name": t.name("nowhere"), "partitions": parts[:1]}]
    t.ask("answer", "OffsetDelete", 0, group_id=name, topics=topics)
    t.see("left", committed(t, name, None))
    t.ask("unknown group", "OffsetDelete", 0, group_id=t.name("nobody"), topics=topics)
    t.ask("empty group", "OffsetDelete", 0, group_id="", topics=topics)


@scenario("S-85")
def offset_delete_of_a_group_with_members(t):
    name, topic, other = group(t), t.topic("a"), t.topic("b")
    member = Member(t, name)
    data = topic.name.encode()
    subscription = b"\0\0\0\0\0\1" + len(data).to_bytes(2, "big") + data + b"\xff\xff\xff\xff"
    member.settle(protocols=[{"name": "range", "metadata": subscription}])
    mine = {"member_id": member.id, "generation_id_or_member_epoch": member.generation}
    commit(t, name, topic, 1, **mine)
    commit(t, name, other, 1, **mine)
    topics = [{"name": one.name, "partitions": [{"partition_index": 0}]} for one in (topic, other)]
    t.ask("answer", "OffsetDelete", 0, group_id=name, topics=topics)
    t.see("left", committed(t, name, None))


@scenario("S-85")
def offset_delete_of_an_unreadable_subscription(t):
    name, topic = group(t), t.topic()
    member = Member(t, name)
    member.settle(protocols=[{"name": "range", "metadata": b"\xff"}])
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    t.ask("answer", "OffsetDelete", 0, group_id=name, topics=topics)


@scenario("S-85", brokers="changed")
def retention_time_of_a_commit_is_kept_to(t):
    name, topic = group(t), t.topic()
    commit(t, name, topic, 1, version=4, retention_time_ms=1)
    commit(t, name + "2", topic, 1, version=4, retention_time_ms=-1)
    t.until("it expired", lambda: _offset(t, name, topic) == -1)
    t.see("described", described(t, name)["group_state"])
    t.see("the other", _offset(t, name + "2", topic))


@scenario("S-85", brokers="changed")
def retention_time_and_a_group_with_members(t):
    name, topic = group(t), t.topic()
    member = Member(t, name)
    member.settle()
    mine = {"member_id": member.id, "generation_id_or_member_epoch": member.generation}
    commit(t, name, topic, 1, version=4, retention_time_ms=1, **mine)
    time.sleep(1.2)
    t.see("after two checks", _offset(t, name, topic))


def _offset(t, name: str, topic) -> int:
    return committed(t, name, topic)["topics"][0]["partitions"][0]["committed_offset"]


@scenario("S-70 S-85")
def deleting_a_topic_deletes_its_offsets(t):
    name, topic, other = group(t), t.topic("a"), t.topic("b")
    commit(t, name, topic, 1)
    commit(t, name, other, 2)
    t.call("DeleteTopics", 5, topic_names=[topic.name], timeout_ms=5000)
    t.until("the offset gone", lambda: len(committed(t, name, None)["topics"]) == 1)
    t.see("left", committed(t, name, None))


@scenario("S-83")
def several_partitions_in_one_commit(t):
    name, topic = group(t), t.topic(partitions=3)
    parts = [{"partition_index": index, "committed_offset": index * 10} for index in (0, 2, 9)]
    topics = [{"name": topic.name, "partitions": parts}, {"name": t.name("nowhere"), "partitions": parts[:1]}]
    t.ask("answer", "OffsetCommit", 7, group_id=name, generation_id_or_member_epoch=-1, topics=topics)
    t.see("kept", committed(t, name, None))
    t.ask("nothing", "OffsetCommit", 7, group_id=name, generation_id_or_member_epoch=-1, topics=[])


@scenario("S-83 S-85")
def offsets_outlive_the_members(t):
    name, topic = group(t), t.topic()
    member = Member(t, name)
    member.settle()
    commit(t, name, topic, 9, member_id=member.id, generation_id_or_member_epoch=member.generation)
    member.leave()
    t.see("kept", committed(t, name, topic))
    t.see_error(
        "commit of the one that left", commit(t, name, topic, 10, member_id=member.id, generation_id_or_member_epoch=1)
    )
    t.see_error("simple commit", commit(t, name, topic, 11))
    t.see("kept then", committed(t, name, topic))
