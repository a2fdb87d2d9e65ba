"""KIP-848 groups: heartbeats, reconciliation, assignors, regular expressions, migration (S-88 to S-93)."""

from __future__ import annotations

import time

from ..members import SUBSCRIPTION, Member, commit, committed
from ..scenario import scenario


class Consumer:
    """Keeps epoch and assignment, and says only what is given."""

    def __init__(self, t, group: str, member: str = "m1", instance: str | None = None):
        t.need("ConsumerGroupHeartbeat", 1)
        self.t, self.group, self.id, self.instance = t, group, member, instance
        self.conn = t.connect()
        self.epoch = 0
        self.assigned: list[dict] = []

    def beat(self, epoch: int | None = None, version: int = 1, **more) -> dict:
        answer = self.t.call(
            "ConsumerGroupHeartbeat",
            version,
            self.conn,
            **{
                "group_id": self.group,
                "member_id": self.id,
                "member_epoch": self.epoch if epoch is None else epoch,
                "instance_id": self.instance,
                **more,
            },
        )
        if answer["error_code"] == 0:
            self.epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.assigned = answer["assignment"]["topic_partitions"]
        return answer

    def join(self, *topics, **more) -> dict:
        names = [topic.name for topic in topics]
        return self.beat(
            0, **{"subscribed_topic_names": names, "topic_partitions": [], "rebalance_timeout_ms": 10_000, **more}
        )

    def owned(self) -> dict:
        return {"topic_partitions": self.assigned}

    def settle(self) -> Consumer:
        """Heartbeats that acknowledge whatever is assigned until nothing changes."""
        for _ in range(100):
            before = (self.epoch, self.assigned)
            self.beat(**self.owned())
            if before == (self.epoch, self.assigned):
                return self
            time.sleep(0.02)
        raise TimeoutError("the assignment never settles")

    def count(self) -> int:
        return sum(len(topic["partitions"]) for topic in self.assigned)


def group(t) -> str:
    name = t.name("g")
    t.coordinator(name)
    return name


def described(t, name: str, version: int = 1) -> dict:
    return t.call("ConsumerGroupDescribe", version, group_ids=[name])["groups"][0]


@scenario("S-88 S-90")
def first_member_gets_everything(t):
    topic, name = t.topic(partitions=3), group(t)
    member = Consumer(t, name)
    t.see("join", member.join(topic))
    t.see("owning", member.beat(**member.owned()))
    t.see("nothing new", member.beat())
    t.see("in full", member.beat(subscribed_topic_names=[topic.name], rebalance_timeout_ms=10_000, **member.owned()))


@scenario("S-88")
def member_id_by_version(t):
    topic, name = t.topic(), group(t)
    member = Consumer(t, name, "")
    t.see("v0, none", member.join(topic, version=0))
    t.see("v1, none", Consumer(t, name + "2", "").join(topic))
    t.see("v0, given", Consumer(t, name + "3", "mine").join(topic, version=0))


@scenario("S-88 S-89")
def requests_that_are_invalid(t):
    topic, name = t.topic(), group(t)
    for label, epoch, more in (
        ("empty group", 0, {"group_id": ""}),
        ("blank group", 0, {"group_id": "  "}),
        ("no rebalance timeout", 0, {"rebalance_timeout_ms": -1}),
        ("owned is null", 0, {"topic_partitions": None}),
        ("owns something", 0, {"topic_partitions": [{"topic_id": topic.id, "partitions": [0]}]}),
        ("no subscription", 0, {"subscribed_topic_names": None}),
        ("empty instance", 0, {"instance_id": ""}),
        ("empty rack", 0, {"rack_id": ""}),
        ("unknown assignor", 0, {"server_assignor": "best"}),
        ("empty assignor", 0, {"server_assignor": ""}),
        ("epoch -3", -3, {}),
        ("-2 without an instance", -2, {}),
    ):
        member = Consumer(t, name)
        fields = {
            "subscribed_topic_names": [topic.name],
            "topic_partitions": [],
            "rebalance_timeout_ms": 10_000,
            **more,
        }
        t.see(label, member.beat(epoch, **fields))


@scenario("S-88")
def subscription_may_be_empty(t):
    name = group(t)
    member = Consumer(t, name)
    t.see("no topics", member.join())
    other = Consumer(t, name, "m2")
    t.see("empty expression", other.join(subscribed_topic_names=None, subscribed_topic_regex=""))


@scenario("S-89")
def members_and_epochs_that_are_wrong(t):
    topic, name = t.topic(), group(t)
    member = Consumer(t, name)
    t.see("unknown group", member.beat(3))
    t.see("leaving an unknown group", member.beat(-1))
    member.join(topic)
    member.settle()
    t.see("unknown member", Consumer(t, name, "m2").beat(3))
    t.see("epoch ahead", member.beat(member.epoch + 5))
    t.see("epoch behind", member.beat(member.epoch - 1, topic_partitions=[]) if member.epoch > 1 else None)


@scenario("S-89")
def epoch_before_is_accepted_with_what_is_owned(t):
    topic, name = t.topic(partitions=2), group(t)
    first = Consumer(t, name)
    first.join(topic)
    first.settle()
    before = first.epoch
    second = Consumer(t, name, "m2")
    second.join(topic)
    first.settle()
    t.see("moved", first.epoch > before)
    t.see("before, with what it owns", first.beat(before, **first.owned()))
    foreign = [{"topic_id": topic.id, "partitions": [0, 1]}]
    t.see("before, with more", first.beat(before, topic_partitions=foreign))
    t.see("older still", first.beat(0 if before < 2 else before - 1, **first.owned()) if before > 1 else None)


@scenario("S-88 S-90")
def member_that_joins_again(t):
    topic, name = t.topic(partitions=2), group(t)
    member = Consumer(t, name)
    t.see("first", member.join(topic))
    t.see("again", member.join(topic))


@scenario("S-90", bugs=(50,))
def partitions_move_only_when_given_up(t):
    topic, name = t.topic(partitions=4), group(t)
    first, second = Consumer(t, name), Consumer(t, name, "m2")
    first.join(topic)
    first.settle()
    t.see("second joins", second.join(topic))
    t.see("first must give up", first.beat(**{"topic_partitions": first.assigned}))
    t.see("second waits", second.beat())
    t.see("first gave up", first.beat(**first.owned()))
    second.settle(), first.settle()
    t.see("counts", [first.count(), second.count()])
    t.see("epochs agree", first.epoch == second.epoch)


@scenario("S-90")
def member_that_does_not_give_up_is_fenced(t):
    topic, name = t.topic(partitions=2), group(t)
    first, second = Consumer(t, name), Consumer(t, name, "m2")
    first.join(topic, rebalance_timeout_ms=800)
    first.settle()
    owned = first.owned()
    second.join(topic)
    first.beat(**owned)

    def got_all():
        second.beat(**second.owned())
        return second.count() == 2

    t.until("all partitions for the second", got_all)
    t.see("first", first.beat(**owned))
    t.see("second", second.count())


@scenario("S-88 S-90")
def member_leaves(t):
    topic, name = t.topic(partitions=2), group(t)
    first, second = Consumer(t, name), Consumer(t, name, "m2")
    first.join(topic)
    first.settle()
    second.join(topic)
    first.settle(), second.settle(), first.settle()
    t.see("leave", second.beat(-1))
    t.see("leave again", second.beat(-1))
    first.settle()
    t.see("all", first.count())
    first.beat(-1)
    t.see("state", described(t, name))


@scenario("S-88 S-89 S-82", bugs=(10,))
def static_member_goes_and_comes_back(t):
    topic, name = t.topic(partitions=2), group(t)
    old = Consumer(t, name, "m1", "i1")
    t.see("join", old.join(topic))
    old.settle()
    t.see("taken", Consumer(t, name, "m2", "i1").join(topic))
    t.see("leaves for a while", old.beat(-2))
    new = Consumer(t, name, "m3", "i1")
    t.see("back", new.join(topic))
    t.see("old one", old.beat(1))


@scenario("S-90")
def session_that_ends(t):
    topic, name = t.topic(), group(t)
    t.need("IncrementalAlterConfigs", 1)
    rows = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "1100"}]
    resource = {"resource_type": 32, "resource_name": name, "configs": rows}
    t.see("config", t.call("IncrementalAlterConfigs", 1, resources=[resource])["responses"][0]["error_code"])
    wanted = {"resource_type": 32, "resource_name": name, "configuration_keys": ["consumer.session.timeout.ms"]}
    t.until(
        "the config",
        lambda: t.call("DescribeConfigs", 4, resources=[wanted])["results"][0]["configs"][0]["value"] == "1100",
    )
    member = Consumer(t, name)
    member.join(topic)
    t.until("the member gone", lambda: not described(t, name)["members"])
    t.see("heartbeat", member.beat())


@scenario("S-91")
def assignors(t):
    for assignor in ("uniform", "range"):
        a, b, name = t.topic(f"a-{assignor}", partitions=3), t.topic(f"b-{assignor}", partitions=3), group(t) + assignor
        first, second = Consumer(t, name), Consumer(t, name, "m2")
        first.join(a, b, server_assignor=assignor)
        first.settle()
        second.join(a, b, server_assignor=assignor)
        for _ in range(4):
            first.settle(), second.settle()
        t.see(assignor, [sorted(len(topic["partitions"]) for topic in one.assigned) for one in (first, second)])
        t.see(f"{assignor} described", described(t, name)["assignor_name"])


@scenario("S-91")
def subscription_changes(t):
    a, b, name = t.topic("a"), t.topic("b", partitions=2), group(t)
    member = Consumer(t, name)
    member.join(a)
    member.settle()
    before = member.epoch
    member.beat(subscribed_topic_names=[a.name, b.name])
    member.settle()
    t.see("epoch moved", member.epoch > before)
    t.see("count", member.count())
    member.beat(subscribed_topic_names=[b.name])
    member.settle()
    t.see("only the other", member.assigned)


@scenario("S-91")
def new_partitions_and_topics_are_noticed(t):
    topic, name = t.topic("a"), group(t)
    member = Consumer(t, name)
    member.beat(
        0,
        subscribed_topic_names=[topic.name, t.name("later")],
        topic_partitions=[],
        rebalance_timeout_ms=10_000,
    )
    member.settle()
    t.see("before", member.count())
    t.call("CreatePartitions", 3, topics=[{"name": topic.name, "count": 3, "assignments": None}], timeout_ms=5000)
    t.topic("later", partitions=2)

    def five():
        member.beat(**member.owned())
        return member.count() == 5

    t.until("five partitions", five)


@scenario("S-89 S-91")
def subscription_by_regular_expression(t):
    topic, name = t.topic("re-a", partitions=2), group(t)
    t.topic("other")
    member = Consumer(t, name)
    t.see("bad", member.join(subscribed_topic_names=None, subscribed_topic_regex="(["))
    t.see("join", member.join(subscribed_topic_names=None, subscribed_topic_regex=f"{t.unique}re-.*")["error_code"])

    def has(count: int):
        member.beat(**member.owned())
        return member.count() == count

    t.until("the topic", lambda: has(2))
    t.see("assigned", [found["topic_id"] == topic.id for found in member.assigned])
    t.topic("re-b")
    member.beat(subscribed_topic_regex=f"{t.unique}re-[ab]$")
    t.until("both", lambda: has(3))


@scenario("S-92", bugs=(17,))
def offsets_carry_the_member_epoch(t):
    topic, name = t.topic(), group(t)
    member = Consumer(t, name)
    member.join(topic)
    member.settle()
    mine = {"member_id": member.id, "generation_id_or_member_epoch": member.epoch}
    for version in (8, 9, 10):
        t.see_error(f"commit v{version}", commit(t, name, topic, version, version, **mine))
    later = {**mine, "generation_id_or_member_epoch": member.epoch + 3}
    for version in (8, 9):
        t.see_error(f"stale v{version}", commit(t, name, topic, 1, version, **later))
    t.see_error("unknown member", commit(t, name, topic, 1, 9, **{**mine, "member_id": "nobody"}))
    t.see_error("no member", commit(t, name, topic, 1, 9))
    t.see("fetch", committed(t, name, topic, 9, member_id=member.id, member_epoch=member.epoch))
    t.see("fetch, stale", committed(t, name, topic, 9, member_id=member.id, member_epoch=member.epoch + 3))
    t.see("fetch, unknown member", committed(t, name, topic, 9, member_id="nobody", member_epoch=1))
    t.see("fetch by id", committed(t, name, topic, 10, member_id=member.id, member_epoch=member.epoch))


@scenario("S-93 S-86")
def consumer_group_as_admins_see_it(t):
    topic, name = t.topic(partitions=2), group(t)
    member = Consumer(t, name)
    member.join(topic, rack_id="r1")
    member.settle()
    for version in (0, 1):
        t.see(f"v{version}", described(t, name, version))
    t.see("unknown", described(t, t.name("nobody")))
    t.see("classic describe", t.call("DescribeGroups", 6, groups=[name])["groups"][0])
    for version in (4, 5):
        answer = t.call("ListGroups", version)
        t.see(f"listed v{version}", [found for found in answer["groups"] if found["group_id"] == name])
    answer = t.call("ListGroups", 5, types_filter=["Consumer"], states_filter=["stable"])
    t.see("listed by type", name in {found["group_id"] for found in answer["groups"]})


@scenario("S-93")
def classic_group_is_no_consumer_group_to_admins(t):
    name = group(t)
    Member(t, name).settle()
    t.need("ConsumerGroupDescribe", 1)
    t.see("described", described(t, name))


@scenario("S-89 S-92")
def group_types_meet(t):
    topic, name = t.topic(), group(t)
    classic = Member(t, name)
    classic.settle(kind="connect", protocols=[{"name": "sessioned", "metadata": b""}])
    t.see("consumer into connect", Consumer(t, name).join(topic))
    member = Consumer(t, name + "2")
    member.join(topic)
    t.see("connect into consumer", Member(t, name + "2").join(kind="connect", version=3))
    t.see(
        "no subscription into consumer",
        Member(t, name + "2").join(version=3, protocols=[{"name": "range", "metadata": b""}]),
    )


@scenario("S-92")
def classic_member_joins_a_consumer_group(t):
    topic, name = t.topic(partitions=2), group(t)
    member = Consumer(t, name)
    member.join(topic)
    member.settle()
    data = topic.name.encode()
    subscription = b"\0\1\0\0\0\1" + len(data).to_bytes(2, "big") + data + b"\xff\xff\xff\xff" + bytes(4)
    classic = Member(t, name)
    answer = classic.enter(protocols=[{"name": "range", "metadata": subscription}], version=9)
    t.see("join", answer["error_code"])

    def has_one():
        member.beat(**member.owned())
        return member.count() == 1

    t.until("one partition given up", has_one)
    t.see("sync", classic.sync()["error_code"])
    t.see("described", [described(t, name)["group_state"], len(described(t, name)["members"])])


@scenario("S-92")
def classic_group_becomes_a_consumer_group(t):
    topic, name = t.topic(partitions=2), group(t)
    data = topic.name.encode()
    subscription = b"\0\1\0\0\0\1" + len(data).to_bytes(2, "big") + data + b"\xff\xff\xff\xff" + bytes(4)
    assignment = b"\0\1\0\0\0\1" + len(data).to_bytes(2, "big") + data + b"\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
    classic = Member(t, name)
    classic.enter(protocols=[{"name": "range", "metadata": subscription}], session=20_000)
    classic.sync({classic.id: assignment})
    member = Consumer(t, name)
    t.see("join", member.join(topic)["error_code"])
    t.see("classic heartbeat", classic.heartbeat())
    found = described(t, name)
    t.see("described", [found["group_state"], sorted(one["member_type"] for one in found["members"])])


@scenario("S-92")
def empty_classic_group_becomes_a_consumer_group(t):
    topic, name = t.topic(), group(t)
    commit(t, name, topic, 5)
    member = Consumer(t, name)
    t.see("join", member.join(topic))
    t.see("offset is kept", committed(t, name, topic, 9, member_id=member.id, member_epoch=member.epoch))


@scenario("S-92")
def empty_consumer_group_becomes_a_classic_group(t):
    topic, name = t.topic(), group(t)
    member = Consumer(t, name)
    member.join(topic)
    member.beat(-1)
    classic = Member(t, name)
    t.see("join", classic.enter(protocols=[{"name": "range", "metadata": SUBSCRIPTION}])["error_code"])


@scenario("S-85")
def consumer_group_is_deleted(t):
    topic, name = t.topic(), group(t)
    member = Consumer(t, name)
    member.join(topic)
    t.ask("with a member", "DeleteGroups", 2, groups_names=[name])
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    t.ask("offsets of a subscribed topic", "OffsetDelete", 0, group_id=name, topics=topics)
    member.beat(-1)
    t.ask("empty", "DeleteGroups", 2, groups_names=[name])
    t.see("then", described(t, name)["error_code"])


@scenario("S-90")
def heartbeat_interval_is_the_brokers(t):
    topic, name = t.topic(), group(t)
    t.see("interval", Consumer(t, name).join(topic)["heartbeat_interval_ms"])


@scenario("S-88 S-30")
def topics_that_are_not_there(t):
    name = group(t)
    member = Consumer(t, name)
    t.see("join", member.join(subscribed_topic_names=[t.name("nowhere")]))
    t.see("bad name", Consumer(t, name + "2").join(subscribed_topic_names=["a b"]))
