"""Classic groups: join, sync, heartbeat, leave, static members (S-74 to S-82, S-86, S-87)."""

from __future__ import annotations

import time

from ..connection import NoAnswer
from ..members import CHANGED, RANGE, SUBSCRIPTION, Member, described, pair
from ..scenario import scenario

ROUND_ROBIN = {"name": "roundrobin", "metadata": b"rr"}


def group(t) -> str:
    name = t.name("g")
    t.coordinator(name)
    return name


@scenario("S-74", bugs=(11,))
def find_coordinator_at_every_version(t):
    name = group(t)
    for version in range(7):
        values = {"key": name} if version < 4 else {"coordinator_keys": [name]}
        t.ask(f"v{version}", "FindCoordinator", version, **values)


@scenario("S-74")
def find_coordinator_of_odd_keys(t):
    group(t)
    t.ask("empty", "FindCoordinator", 4, coordinator_keys=[""])
    t.ask("several", "FindCoordinator", 4, coordinator_keys=[t.name("a"), t.name("b"), t.name("a")])
    t.ask("none", "FindCoordinator", 4, coordinator_keys=[])
    t.ask("unknown type", "FindCoordinator", 4, key_type=9, coordinator_keys=[t.name("a")])
    t.ask("unknown type, old", "FindCoordinator", 2, key_type=9, key=t.name("a"))
    t.ask("share below v6", "FindCoordinator", 5, key_type=2, coordinator_keys=[t.name("a")])


@scenario("S-74")
def coordinator_of_a_transactional_id(t):
    t.coordinator(t.name("tx"), 1)
    for version in (1, 3):
        t.ask(f"v{version}", "FindCoordinator", version, key_type=1, key=t.name("tx"))
    t.ask("v4", "FindCoordinator", 4, key_type=1, coordinator_keys=[t.name("tx")])


@scenario("S-74 S-21", bugs=(11, 42))
def coordinator_is_a_listed_broker(t):
    found = t.call("FindCoordinator", 3, key=group(t))
    brokers = t.call("Metadata", 9, topics=[])["brokers"]
    t.see(
        "listed",
        [found["node_id"], found["host"], found["port"]] in [[b["node_id"], b["host"], b["port"]] for b in brokers],
    )


@scenario("S-75")
def first_join_demands_a_member_id(t):
    name = group(t)
    for version in range(10):
        member = Member(t, f"{name}-{version}")
        t.see(f"v{version}", member.join(version=version))
        if version >= 4:
            t.see(f"v{version} again", member.join(version=version))


@scenario("S-75")
def member_id_begins_with_the_client_id(t):
    name = group(t)
    for client_id in ("my-client", "", "ä b"):
        member = Member(t, name + str(len(client_id)), client_id=client_id)
        answer = member.join()
        t.see(repr(client_id), [answer["member_id"][: len(client_id) + 1], len(answer["member_id"]) - len(client_id)])


@scenario("S-75 S-81")
def member_id_nobody_gave(t):
    t.see("join", Member(t, group(t)).join(member="invented"))


@scenario("S-75")
def pending_member_expires(t):
    name = group(t)
    member = Member(t, name)
    member.join(session=600)
    other = Member(t, name)
    other.settle()
    time.sleep(1.5)
    t.see("too late", member.join(session=600)["error_code"])


@scenario("S-76", bugs=(32,))
def session_timeout_out_of_range(t):
    name = group(t)
    for session in (499, 500, 1_800_000, 1_800_001, 0, -1):
        t.see(f"{session} ms", Member(t, f"{name}-{session}").join(version=3, session=session)["error_code"])


@scenario("S-76", bugs=(32,))
def rebalance_timeout_of_minus_one(t):
    name = group(t)
    member = Member(t, name)
    t.see("join", member.enter(version=5, rebalance=-1))


@scenario("S-74")
def empty_group_id(t):
    group(t)
    t.see("join", Member(t, "").join(version=5))
    t.see("sync", Member(t, "").sync())
    t.see("heartbeat", Member(t, "").heartbeat())
    t.see("leave", Member(t, "").leave())
    t.see("describe", described(t, ""))


@scenario("S-78")
def inconsistent_protocols(t):
    name = group(t)
    Member(t, name).settle()
    t.see("other type", Member(t, name).join(version=3, kind="connect"))
    t.see("other names", Member(t, name).join(version=3, protocols=[ROUND_ROBIN]))
    t.see("no protocols", Member(t, name).join(version=3, protocols=[]))
    t.see("empty type", Member(t, name).join(version=3, kind=""))
    t.see("new group, no protocols", Member(t, name + "2").join(version=3, protocols=[]))
    t.see("new group, empty type", Member(t, name + "3").join(version=3, kind=""))


@scenario("S-78")
def leader_alone_gets_the_members(t):
    leader, follower = Member(t, group(t)), Member(t, t.name("g"))
    leader.settle()
    follower.join()
    follower.ask_join()
    t.until("the rebalance", lambda: leader.heartbeat() == 27)
    leader.ask_join()
    t.see("leader", leader.joined())
    t.see("follower", follower.joined())


@scenario("S-78")
def protocol_is_chosen_by_votes(t):
    name = group(t)
    rr, rg = {"name": "roundrobin", "metadata": b""}, RANGE[0]
    for label, votes in (
        ("both prefer roundrobin", ([rr, rg], [rr, rg])),
        ("only one in common", ([rr, rg], [rg])),
        ("a tie", ([rr, rg], [rg, rr])),
    ):
        first, second = Member(t, f"{name}-{label.replace(' ', '')}"), Member(t, f"{name}-{label.replace(' ', '')}")
        first.settle(protocols=votes[0])
        second.join(protocols=votes[1])
        second.ask_join(protocols=votes[1])
        t.until("the rebalance", lambda first=first: first.heartbeat() == 27)
        first.ask_join(protocols=votes[0])
        names = [first.joined()["protocol_name"], second.joined()["protocol_name"]]
        t.see(label, names[0] if label != "a tie" else names[0] == names[1])


@scenario("S-77 S-80")
def member_that_does_not_rejoin_is_removed(t):
    name = group(t)
    lazy, other = Member(t, name), Member(t, name)
    lazy.settle(session=10_000, rebalance=1_000)
    other.join(rebalance=1_000)
    begun = time.monotonic()
    other.ask_join(rebalance=1_000)
    answer = other.joined()
    t.see("joined", answer)
    t.see("after the rebalance timeout", 0.8 <= time.monotonic() - begun <= 6)
    t.see("the lazy one", lazy.heartbeat())


@scenario("S-79")
def leader_that_rejoins_forces_a_rebalance(t):
    name = group(t)
    leader = Member(t, name)
    first = leader.settle()
    again = leader.join()
    t.see("generations", [first["generation_id"], again["generation_id"]])
    t.see("state", described(t, name)["group_state"])


@scenario("S-79")
def follower_that_rejoins_unchanged_gets_the_generation(t):
    leader, follower = pair(t, group(t))
    leader.ask_sync({leader.id: b"l", follower.id: b"f"})
    follower.ask_sync()
    leader.synced(), follower.synced()
    t.see("follower", follower.join())
    t.see("leader's heartbeat", leader.heartbeat())


@scenario("S-79")
def follower_that_changed_its_metadata_forces_a_rebalance(t):
    leader, follower = pair(t, group(t))
    leader.ask_sync({leader.id: b"l", follower.id: b"f"})
    follower.ask_sync()
    leader.synced(), follower.synced()
    follower.ask_join(protocols=[{"name": "range", "metadata": CHANGED}])
    t.until("the rebalance", lambda: leader.heartbeat() == 27)
    t.see("leader's heartbeat", leader.heartbeat())
    leader.ask_join()
    t.see("leader", leader.joined())
    t.see("follower", follower.joined())


@scenario("S-79")
def rejoin_while_completing_gets_the_same_generation(t):
    leader, follower = pair(t, group(t))
    t.see("state", described(t, leader.group)["group_state"])
    t.see("leader", leader.join())
    t.see("follower", follower.join())


@scenario("S-79")
def rejoin_of_an_empty_group(t):
    name = group(t)
    member = Member(t, name)
    member.settle()
    member.leave()
    t.see("state", described(t, name)["group_state"])
    t.see("rejoin with the old id", member.join())


@scenario("S-80")
def sync_at_every_version(t):
    name = group(t)
    for version in range(6):
        member = Member(t, f"{name}-{version}")
        member.enter(version=min(version, 9))
        t.see(f"v{version}", member.sync({member.id: b"\0\1mine"}, version=version))
        t.see(f"v{version} again", member.sync(version=version))


@scenario("S-80")
def sync_that_is_wrong(t):
    name = group(t)
    member = Member(t, name)
    member.enter()
    t.see("unknown member", member.sync(member_id="nobody"))
    t.see("generation", member.sync(generation_id=7))
    t.see("protocol type", member.sync(protocol_type="connect"))
    t.see("protocol name", member.sync(protocol_name="sticky"))
    t.see("null names", member.sync({member.id: b"x"}, protocol_type=None, protocol_name=None))
    t.see("unknown group", Member(t, name + "2").sync(member_id="nobody"))


@scenario("S-80")
def follower_waits_for_the_leader(t):
    leader, follower = pair(t, group(t))
    follower.ask_sync()
    t.see("waits", follower.conn.state(0.4) == "open")
    leader.ask_sync({leader.id: b"l", follower.id: b"f"})
    t.see("leader", leader.synced())
    t.see("follower", follower.synced())


@scenario("S-80")
def member_without_an_assignment_gets_empty_bytes(t):
    leader, follower = pair(t, group(t))
    leader.ask_sync({leader.id: b"l"})
    follower.ask_sync()
    t.see("leader", leader.synced())
    t.see("follower", follower.synced())


@scenario("S-80")
def sync_while_preparing(t):
    leader, follower = pair(t, group(t))
    leader.ask_sync({leader.id: b"l", follower.id: b"f"})
    follower.ask_sync()
    leader.synced(), follower.synced()
    leader.ask_join()
    t.until("the rebalance", lambda: follower.heartbeat() == 27)
    t.see("follower's sync", follower.sync())
    follower.ask_join()
    t.see("errors", [leader.joined()["error_code"], follower.joined()["error_code"]])


@scenario("S-80")
def join_interrupts_a_waiting_sync(t):
    leader, follower = pair(t, group(t))
    follower.ask_sync()
    t.see("waits", follower.conn.state(0.3) == "open")
    third = Member(t, leader.group)
    third.join()
    third.ask_join()
    t.see("follower's sync", follower.synced())


@scenario("S-80")
def leader_that_never_syncs_is_removed(t):
    name = group(t)
    leader, follower = pair(t, name, rebalance=1_000)
    follower.ask_sync()
    t.see("follower's sync", follower.synced()["error_code"])
    follower.ask_join(rebalance=1_000)
    t.see("follower", follower.joined()["error_code"])
    t.see("old leader", leader.heartbeat())


@scenario("S-81")
def heartbeat_errors(t):
    name = group(t)
    member = Member(t, name)
    t.see("unknown group", member.heartbeat(member_id="nobody"))
    member.enter()
    t.see("completing", member.heartbeat())
    member.sync({member.id: b"x"})
    for version in range(5):
        t.see(f"stable v{version}", member.heartbeat(version))
    t.see("generation", member.heartbeat(generation_id=9))
    t.see("member", member.heartbeat(member_id="nobody"))
    t.see("empty member", member.heartbeat(member_id=""))


@scenario("S-81")
def member_without_heartbeats_is_removed(t):
    name = group(t)
    member = Member(t, name)
    member.settle(session=600)
    t.until("it removed", lambda: described(t, name)["group_state"] == "Empty")
    t.see("heartbeat", member.heartbeat())


@scenario("S-81")
def parked_join_is_not_expired_by_the_session(t):
    name = group(t)
    first, second = Member(t, name), Member(t, name)
    first.settle(session=10_000, rebalance=2_000)
    second.join(session=600, rebalance=2_000)
    second.ask_join(session=600, rebalance=2_000)
    t.see("joined", second.joined()["error_code"])
    t.see("heartbeat", second.heartbeat())


@scenario("S-81 S-12", bugs=(9, 50))
def lost_connection_in_a_parked_join_does_not_wedge_the_group(t):
    name = group(t)
    first, lost = Member(t, name), Member(t, name)
    first.settle(rebalance=1_500)
    lost.join(session=600, rebalance=1_500)
    lost.ask_join(session=600, rebalance=1_500)
    t.until("the rebalance", lambda: first.heartbeat() == 27)
    lost.conn.close()
    first.ask_join(rebalance=1_500)
    t.see("joined", first.joined()["error_code"])
    first.ask_sync({first.id: b"x"})
    first.synced()
    t.until("alone and stable", lambda: _alone(t, first))
    t.see("members", len(described(t, name)["members"]))


def _alone(t, member) -> bool:
    code = member.heartbeat()
    if code == 27:
        member.join()
        member.sync({member.id: b"x"})
    found = described(t, member.group)
    return found["group_state"] == "Stable" and len(found["members"]) == 1


@scenario("S-82")
def leave_at_every_version(t):
    name = group(t)
    for version in range(6):
        member = Member(t, f"{name}-{version}")
        member.settle()
        t.see(f"v{version}", member.leave(version))
        t.see(f"v{version} again", member.leave(version))
        t.see(f"v{version} state", described(t, member.group)["group_state"])


@scenario("S-82")
def leave_of_the_unknown(t):
    name = group(t)
    t.see("unknown group", t.call("LeaveGroup", 2, group_id=name, member_id="nobody"))
    t.see("unknown group v3", t.call("LeaveGroup", 3, group_id=name, members=[{"member_id": "nobody"}]))
    Member(t, name).settle()
    members = [{"member_id": "nobody"}, {"member_id": "", "group_instance_id": "nothing"}]
    t.see("unknown members", t.call("LeaveGroup", 4, group_id=name, members=members))
    t.see("no members", t.call("LeaveGroup", 4, group_id=name, members=[]))


@scenario("S-77")
def member_that_leaves_starts_a_rebalance(t):
    leader, follower = pair(t, group(t))
    leader.ask_sync({leader.id: b"l", follower.id: b"f"})
    follower.ask_sync()
    leader.synced(), follower.synced()
    follower.leave()
    t.see("leader's heartbeat", leader.heartbeat())
    answer = leader.join()
    t.see("leader", answer)


# -- static members ---------------------------------------------------------------


@scenario("S-82", bugs=(10,))
def static_member_needs_no_second_join(t):
    member = Member(t, group(t), instance="i1")
    t.see("join", member.join())
    t.see("sync", member.sync({member.id: b"mine"}))
    t.see("described", described(t, member.group)["members"])


@scenario("S-82", bugs=(10,))
def static_member_that_comes_back_keeps_its_assignment(t):
    name = group(t)
    for version in (5, 8, 9):
        old = Member(t, f"{name}-{version}", instance="i1")
        old.join(version=version)
        old.sync({old.id: b"mine"})
        new = Member(t, f"{name}-{version}", instance="i1")
        t.see(f"v{version} join", new.join(version=version))
        t.see(f"v{version} sync", new.sync())
        t.see(f"v{version} old heartbeat", old.heartbeat())
        t.see(f"v{version} new heartbeat", new.heartbeat())


@scenario("S-82", bugs=(10,))
def fenced_static_member(t):
    name = group(t)
    old = Member(t, name, instance="i1")
    old.join()
    old.sync({old.id: b"mine"})
    Member(t, name, instance="i1").join()
    t.see("heartbeat", old.heartbeat())
    t.see("sync", old.sync())
    t.see("join", old.join())
    t.see("leave", old.leave())


@scenario("S-82")
def unknown_instance_id(t):
    name = group(t)
    Member(t, name).settle()
    other = Member(t, name, instance="nobody")
    other.generation = 1
    t.see("heartbeat", other.heartbeat(member_id="x"))
    t.see("sync", other.sync(member_id="x"))
    t.see("join with an id", other.join(member="x"))


@scenario("S-82")
def static_member_leaves_by_its_instance(t):
    name = group(t)
    member = Member(t, name, instance="i1")
    member.join()
    member.sync({member.id: b"mine"})
    wrong = [{"member_id": "x", "group_instance_id": "i1"}]
    t.see("wrong member id", t.call("LeaveGroup", 4, group_id=name, members=wrong))
    by_instance = [{"member_id": "", "group_instance_id": "i1"}]
    t.see("by instance", t.call("LeaveGroup", 4, group_id=name, members=by_instance))
    t.see("state", described(t, name)["group_state"])


@scenario("S-82")
def static_member_stays_until_its_session_ends(t):
    name = group(t)
    member = Member(t, name, instance="i1")
    member.join(session=900)
    member.sync({member.id: b"mine"})
    member.conn.close()
    t.see("just after", described(t, name)["group_state"])
    t.until("it removed", lambda: described(t, name)["group_state"] == "Empty")


@scenario("S-82")
def static_follower_that_changed_its_metadata(t):
    name = group(t)
    leader = Member(t, name, instance="i1")
    leader.join()
    leader.sync({leader.id: b"mine"})
    again = Member(t, name, instance="i1")
    answer = again.join(protocols=[{"name": "range", "metadata": CHANGED}])
    t.see("join", answer)
    t.see("state", described(t, name)["group_state"])


# -- described --------------------------------------------------------------------


@scenario("S-86")
def describe_at_every_version(t):
    name = group(t)
    member = Member(t, name, instance="i1")
    member.join()
    member.sync({member.id: b"mine"})
    for version in range(7):
        t.see(f"v{version}", described(t, name, version))


@scenario("S-86")
def describe_of_the_unknown(t):
    name = group(t)
    for version in (0, 5, 6):
        t.see(f"v{version}", described(t, name, version))


@scenario("S-86")
def describe_in_every_state(t):
    name = group(t)
    member = Member(t, name)
    member.enter()
    t.see("completing", described(t, name))
    member.sync({member.id: b"x"})
    t.see("stable", described(t, name))
    other = Member(t, name)
    other.join()
    other.ask_join()
    t.until("preparing", lambda: described(t, name)["group_state"] == "PreparingRebalance")
    t.see("preparing", described(t, name))
    member.join()
    other.joined()
    member.leave()
    other.leave()
    t.see("empty", described(t, name))


@scenario("S-86")
def list_groups_and_its_filters(t):
    name = group(t)
    stable, empty = Member(t, name + "-stable"), Member(t, name + "-empty")
    stable.settle(), empty.settle()
    empty.leave()

    def mine(version: int, **filters):
        answer = t.call("ListGroups", version, **filters)
        return [found for found in answer["groups"] if found["group_id"].startswith(name)]

    for version in range(6):
        t.see(f"v{version}", mine(version))
    t.see("stable", mine(5, states_filter=["Stable"]))
    t.see("any case", mine(5, states_filter=["sTABLE", "empty"]))
    t.see("unknown state", mine(5, states_filter=["Nowhere"]))
    t.see("classic", mine(5, types_filter=["Classic"]))
    t.see("consumer", mine(5, types_filter=["consumer"]))
    t.see("both", mine(5, types_filter=["classic"], states_filter=["Empty"]))


@scenario("S-86")
def list_groups_with_an_unknown_type(t):
    group(t)
    answer = t.call("ListGroups", 5, types_filter=["nothing"])
    t.see("answer", answer)


@scenario("S-87", bugs=(45,))
def other_protocol_types_work(t):
    name = group(t)
    for kind in ("connect", "sr", "x"):
        member = Member(t, f"{name}-{kind}")
        protocols = [{"name": "sessioned", "metadata": b"\0\1opaque"}]
        t.see(f"{kind} join", member.enter(kind=kind, protocols=protocols))
        t.see(f"{kind} sync", member.sync({member.id: b"\xff"}, protocol_type=kind, protocol_name="sessioned"))
        t.see(f"{kind} described", described(t, member.group))


@scenario("S-87")
def metadata_that_is_no_subscription(t):
    name = group(t)
    member = Member(t, name)
    t.see("join", member.enter(protocols=[{"name": "range", "metadata": b"\xff\xff"}]))
    t.see("sync", member.sync({member.id: b""}))


@scenario("S-85")
def delete_groups(t):
    name = group(t)
    member = Member(t, name)
    member.settle()
    for version in (0, 1, 2):
        t.ask(f"v{version}", "DeleteGroups", version, groups_names=[name, t.name("nobody")])
    member.leave()
    t.ask("empty", "DeleteGroups", 2, groups_names=[name])
    t.see("then", described(t, name)["group_state"])
    t.ask("no name", "DeleteGroups", 2, groups_names=[""])


@scenario("S-78 S-79")
def duplicate_protocol_names(t):
    member = Member(t, group(t))
    protocols = [{"name": "range", "metadata": SUBSCRIPTION}, {"name": "range", "metadata": CHANGED}]
    member.join(protocols=protocols)
    member.ask_join(protocols=protocols)
    try:
        t.see_error("join", member.joined(patience=1.5)["error_code"])
    except NoAnswer:
        t.see("join", "no answer")


@scenario("S-77")
def three_members_settle_in_one_generation(t):
    name = group(t)
    first, *others = [Member(t, name) for _ in range(3)]
    first.settle()
    for other in others:
        other.join()
        other.ask_join()
    t.until("the rebalance", lambda: first.heartbeat() == 27)
    t.until("all waiting", lambda: len(described(t, name)["members"]) == 3)
    first.ask_join()
    answers = [first.joined(), *(other.joined() for other in others)]
    t.see("generations", sorted({answer["generation_id"] for answer in answers}))
    t.see("one leader", len({answer["leader"] for answer in answers}))
