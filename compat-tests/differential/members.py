"""A classic group's member, step by step, on a connection of its own."""

from __future__ import annotations

from .scenario import Stage

# ConsumerProtocolSubscription v0 of one topic, and the same with other user data.
SUBSCRIPTION = bytes.fromhex("000000000001000474657374ffffffff")
CHANGED = bytes.fromhex("00000000000100047465737400000001aa")
RANGE = ({"name": "range", "metadata": SUBSCRIPTION},)


class Member:
    def __init__(self, t: Stage, group: str, instance: str | None = None, client_id: str = "diff"):
        self.t, self.group, self.instance = t, group, instance
        self.conn = t.connect(client_id)
        self.id, self.generation = "", -1

    def ask_join(
        self,
        version: int = 9,
        session: int = 10_000,
        rebalance: int = 10_000,
        kind: str = "consumer",
        protocols=RANGE,
        member: str | None = None,
        **more,
    ) -> None:
        """Send the request and leave the answer for `joined`."""
        self.t.need("JoinGroup", version)
        self.version = version
        self.conn.send(
            "JoinGroup",
            version,
            group_id=self.group,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            member_id=self.id if member is None else member,
            group_instance_id=self.instance,
            protocol_type=kind,
            protocols=list(protocols),
            **more,
        )

    def joined(self, patience: float = 20) -> dict:
        answer = self.conn.receive("JoinGroup", self.version, patience)
        if answer["error_code"] in (0, 79):
            self.id = answer["member_id"]
            self.t.normaliser.plain(self.id, "member_id")  # members are numbered as they join
        if answer["error_code"] == 0:
            self.generation = answer["generation_id"]
        return answer

    def join(self, **how) -> dict:
        self.ask_join(**how)
        return self.joined()

    def enter(self, **how) -> dict:
        """Join as clients do: with the id that the first answer demands."""
        answer = self.join(**how)
        return self.join(**how) if answer["error_code"] == 79 else answer

    def ask_sync(self, assignments: dict[str, bytes] | None = None, version: int = 5, **more) -> None:
        self.t.need("SyncGroup", version)
        self.sync_version = version
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": name, "assignment": data} for name, data in (assignments or {}).items()],
        }
        self.conn.send("SyncGroup", version, **{**fields, **more})

    def synced(self) -> dict:
        return self.conn.receive("SyncGroup", self.sync_version)

    def sync(self, assignments: dict[str, bytes] | None = None, **more) -> dict:
        self.ask_sync(assignments, **more)
        return self.synced()

    def heartbeat(self, version: int = 4, **more) -> int:
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
        }
        return self.t.call("Heartbeat", version, self.conn, **{**fields, **more})["error_code"]

    def leave(self, version: int = 5) -> dict:
        members = [{"member_id": self.id, "group_instance_id": self.instance}]
        return self.t.call("LeaveGroup", version, self.conn, group_id=self.group, member_id=self.id, members=members)

    def settle(self, **how) -> dict:
        """Alone in the group: enter and sync."""
        answer = self.enter(**how)
        self.sync({self.id: b"mine"}, protocol_type=how.get("kind", "consumer"), protocol_name=answer["protocol_name"])
        return answer


def pair(t: Stage, group: str, **how) -> tuple[Member, Member]:
    """A leader and a follower, both joined in one generation and not yet synced."""
    leader, follower = Member(t, group), Member(t, group)
    leader.settle(**how)
    follower.join(**how)
    follower.ask_join(**how)
    t.until("the rebalance", lambda: leader.heartbeat() == 27)
    leader.ask_join(**how)
    leader.joined()
    follower.joined()
    return leader, follower


def commit(t: Stage, group: str, topic, offset: int, version: int = 7, on=None, metadata: str = "", **more) -> int:
    """The partition's error."""
    part = {"partition_index": more.pop("partition", 0), "committed_offset": offset, "committed_metadata": metadata}
    part |= {key: more.pop(key) for key in ("committed_leader_epoch",) if key in more}
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    topics = [{"name": topic.name, "topic_id": topic.id, "partitions": [part]}]
    answer = t.call("OffsetCommit", version, on, **{**fields, **more}, topics=topics)
    return answer["topics"][0]["partitions"][0]["error_code"]


def committed(t: Stage, group: str, topic, version: int = 7, stable: bool = False, partitions=(0,), **more) -> dict:
    """The whole answer."""
    topics = [{"name": topic.name, "partition_indexes": list(partitions)}] if topic else None
    if version >= 8:
        if topic:
            topics[0]["topic_id"] = topic.id
        groups = [{"group_id": group, "topics": topics, "member_epoch": -1, **more}]
        return t.call("OffsetFetch", version, groups=groups, require_stable=stable)
    return t.call("OffsetFetch", version, group_id=group, topics=topics, require_stable=stable)


def described(t: Stage, group: str, version: int = 5) -> dict:
    return t.call("DescribeGroups", version, groups=[group])["groups"][0]
