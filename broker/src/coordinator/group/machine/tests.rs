use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::coordinator::group::event::{Join, LeavingMember, PersistToken, Sync};

const SETTINGS: GroupSettings = GroupSettings {
    initial_rebalance_delay_ms: 3_000,
    min_session_timeout_ms: 6_000,
    max_session_timeout_ms: 1_800_000,
    max_size: 100,
};
const SESSION: i64 = 10_000;
const REBALANCE: i64 = 60_000;

/// A group on a clock of its own; writes are durable at once unless held.
struct Bench {
    group: Group,
    now: i64,
    next_waiter: u64,
    hold_writes: bool,
    held: Vec<PersistToken>,
    seen: Vec<Effect>,
}

impl Bench {
    fn new() -> Self {
        Self::with(SETTINGS)
    }

    fn with(settings: GroupSettings) -> Self {
        Self {
            group: Group::new(settings),
            now: 0,
            next_waiter: 0,
            hold_writes: false,
            held: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn without_delay() -> Self {
        Self::with(GroupSettings { initial_rebalance_delay_ms: 0, ..SETTINGS })
    }

    fn happen(&mut self, event: Event) {
        let now = Now { elapsed_ms: self.now, wall_ms: 1_000_000 + self.now };
        for effect in self.group.apply(now, event) {
            match effect {
                Effect::Persist(token) if self.hold_writes => self.held.push(token),
                Effect::Persist(token) => {
                    self.seen.push(Effect::Persist(token.clone()));
                    self.happen(Event::Persisted { token, durable: true });
                }
                other => self.seen.push(other),
            }
        }
    }

    fn finish_writes(&mut self, durable: bool) {
        self.hold_writes = false;
        for token in std::mem::take(&mut self.held) {
            self.happen(Event::Persisted { token, durable });
        }
    }

    /// Lets time pass, firing each timer when it is due.
    fn pass(&mut self, ms: i64) {
        let until = self.now + ms;
        while let Some(due) = self.group.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.happen(Event::Tick);
        }
        self.now = until;
    }

    fn waiter(&mut self) -> WaiterId {
        self.next_waiter += 1;
        WaiterId(self.next_waiter)
    }

    fn join(&mut self, request: Join) -> WaiterId {
        let waiter = self.waiter();
        self.happen(Event::Join(waiter, request));
        waiter
    }

    fn sync(&mut self, request: Sync) -> WaiterId {
        let waiter = self.waiter();
        self.happen(Event::Sync(waiter, request));
        waiter
    }

    fn heartbeat(&mut self, member: &str, generation: i32) -> Option<GroupError> {
        self.heartbeat_as(member, None, generation)
    }

    fn heartbeat_as(&mut self, member: &str, instance: Option<&str>, generation: i32) -> Option<GroupError> {
        let waiter = self.waiter();
        let request = Heartbeat { member_id: member.into(), instance_id: instance.map(Arc::from), generation };
        self.happen(Event::Heartbeat(waiter, request));
        match self.seen.iter().rev().find(|effect| matches!(effect, Effect::AnswerHeartbeat(id, _) if *id == waiter)) {
            Some(Effect::AnswerHeartbeat(_, error)) => *error,
            _ => panic!("a heartbeat is answered at once"),
        }
    }

    fn leave(&mut self, member: &str, instance: Option<&str>) -> Option<GroupError> {
        let waiter = self.waiter();
        let leaving = LeavingMember { member_id: member.into(), instance_id: instance.map(Arc::from) };
        self.happen(Event::Leave(waiter, vec![leaving]));
        match self.seen.iter().rev().find(|effect| matches!(effect, Effect::AnswerLeave(id, _) if *id == waiter)) {
            Some(Effect::AnswerLeave(_, answers)) => answers[0].error,
            _ => panic!("a leave is answered at once"),
        }
    }

    fn commit(&mut self, member: &str, generation: i32) -> Result<(), GroupError> {
        let now = Now { elapsed_ms: self.now, wall_ms: 0 };
        self.group.check_commit(now, member, None, generation)
    }

    fn joined(&self, waiter: WaiterId) -> Option<&JoinAnswer> {
        self.seen.iter().find_map(|effect| match effect {
            Effect::AnswerJoin(id, answer) if *id == waiter => Some(answer),
            _ => None,
        })
    }

    fn synced(&self, waiter: WaiterId) -> Option<&SyncAnswer> {
        self.seen.iter().find_map(|effect| match effect {
            Effect::AnswerSync(id, answer) if *id == waiter => Some(answer),
            _ => None,
        })
    }

    fn join_error(&self, waiter: WaiterId) -> Option<GroupError> {
        self.joined(waiter).expect("the join is answered").error
    }

    /// Members `names` in a stable group; the first leads. Returns the generation.
    fn stable(&mut self, names: &[&str]) -> i32 {
        for name in names {
            self.join(new(name));
        }
        self.pass(SETTINGS.initial_rebalance_delay_ms * 2);
        for name in &names[1..] {
            self.sync(follower(name, self.group.generation()));
        }
        self.sync(leader(names[0], self.group.generation(), names));
        assert_eq!(self.group.state(), GroupState::Stable);
        self.group.generation()
    }
}

fn protocols(names: &[&str]) -> Vec<MemberProtocol> {
    let metadata = Bytes::from_static(b"meta");
    names.iter().map(|name| MemberProtocol { name: Arc::from(*name), metadata: metadata.clone() }).collect()
}

/// A join of a client that has no member id yet and will get `name`.
fn new(name: &str) -> Join {
    Join {
        member_id: Arc::from(""),
        generated_id: Arc::from(name),
        instance_id: None,
        client_id: Arc::from("client"),
        client_host: Arc::from("/127.0.0.1"),
        session_timeout_ms: SESSION,
        rebalance_timeout_ms: REBALANCE,
        protocol_type: Arc::from("consumer"),
        protocols: protocols(&["range", "roundrobin"]),
        require_known_member_id: false,
        can_skip_assignment: false,
    }
}

fn known(name: &str) -> Join {
    Join { member_id: Arc::from(name), ..new("unused") }
}

fn of_static(instance: &str, generated: &str) -> Join {
    Join { instance_id: Some(Arc::from(instance)), ..new(generated) }
}

fn follower(name: &str, generation: i32) -> Sync {
    Sync {
        member_id: Arc::from(name),
        instance_id: None,
        generation,
        protocol_type: None,
        protocol_name: None,
        assignments: Vec::new(),
    }
}

fn leader(name: &str, generation: i32, everyone: &[&str]) -> Sync {
    let assignments = everyone.iter().map(|to| (Arc::from(*to), Bytes::from(format!("for {to}")))).collect();
    Sync { assignments, ..follower(name, generation) }
}

#[test]
fn s75_a_dynamic_member_gets_its_id_first_and_joins_with_it() {
    let mut bench = Bench::new();
    let first = bench.join(Join { require_known_member_id: true, ..new("m1") });
    let answer = bench.joined(first).expect("answered at once");
    assert_eq!((answer.error, &*answer.member_id), (Some(GroupError::MemberIdRequired), "m1"));
    assert_eq!(bench.group.state(), GroupState::Empty);

    let second = bench.join(known("m1"));
    bench.pass(3_000);
    let answer = bench.joined(second).expect("answered after the initial delay");
    assert_eq!((answer.error, answer.generation, &*answer.leader), (None, 1, "m1"));
}

#[test]
fn s75_an_id_that_is_not_used_lapses_with_the_session_timeout() {
    let mut bench = Bench::new();
    bench.join(Join { require_known_member_id: true, ..new("m1") });
    bench.pass(SESSION);
    let late = bench.join(known("m1"));
    assert_eq!(bench.join_error(late), Some(GroupError::UnknownMember));
    assert!(bench.group.is_idle());
}

#[test]
fn s75_an_id_given_out_holds_the_rebalance_until_it_is_used_or_lapses() {
    let mut bench = Bench::without_delay();
    bench.stable(&["a"]);
    bench.join(Join { require_known_member_id: true, ..new("b") });
    let rejoin = bench.join(known("a"));
    assert_eq!(bench.joined(rejoin), None);
    bench.join(known("b"));
    assert_eq!(bench.joined(rejoin).expect("both are here").members.len(), 2);
    bench.sync(follower("b", 2));
    bench.sync(leader("a", 2, &["a", "b"]));

    bench.join(Join { require_known_member_id: true, ..new("c") });
    let rejoin_a = bench.join(known("a"));
    bench.join(known("b"));
    assert_eq!(bench.joined(rejoin_a), None);
    bench.pass(SESSION);
    assert!(bench.joined(rejoin_a).is_some());
}

#[test]
fn s76_session_timeouts_outside_the_bounds_are_refused() {
    for timeout in [5_999, 1_800_001, -1] {
        let mut bench = Bench::new();
        let waiter = bench.join(Join { session_timeout_ms: timeout, ..new("m") });
        assert_eq!(bench.join_error(waiter), Some(GroupError::InvalidSessionTimeout), "{timeout}");
    }
}

#[test]
fn s77_the_first_rebalance_waits_and_is_extended_by_new_joiners() {
    let mut bench = Bench::new();
    let a = bench.join(new("a"));
    bench.pass(2_999);
    let b = bench.join(new("b"));
    bench.pass(1);
    assert_eq!(bench.joined(a), None, "b came during the delay, so it starts again");
    bench.pass(2_999);
    assert_eq!(bench.joined(a), None);
    bench.pass(1);
    assert_eq!(bench.joined(a).expect("the delay is over").members.len(), 2);
    assert_eq!(bench.joined(b).expect("the delay is over").members.len(), 0, "only the leader sees the members");
}

#[test]
fn s77_the_initial_delay_ends_with_the_rebalance_timeout() {
    let mut bench = Bench::new();
    let first = bench.join(Join { rebalance_timeout_ms: 5_000, ..new("m0") });
    for step in 1..10 {
        bench.pass(1_000);
        if bench.joined(first).is_some() {
            assert_eq!(step, 5);
            return;
        }
        bench.join(Join { rebalance_timeout_ms: 5_000, ..new(&format!("m{step}")) });
    }
    panic!("the delay never ended");
}

#[test]
fn s77_members_that_do_not_rejoin_in_time_are_out() {
    let mut bench = Bench::without_delay();
    bench.join(Join { session_timeout_ms: 1_000_000, ..new("a") });
    bench.join(Join { session_timeout_ms: 1_000_000, ..new("b") });
    bench.pass(REBALANCE);
    bench.sync(leader("a", bench.group.generation(), &["a"]));
    let c = bench.join(new("c"));
    bench.pass(REBALANCE - 1);
    assert_eq!(bench.joined(c), None);
    bench.pass(1);
    assert_eq!(bench.joined(c).expect("the rebalance timed out").members.len(), 1);
    assert_eq!(bench.heartbeat("a", 3), Some(GroupError::UnknownMember));
}

#[test]
fn s78_the_first_joiner_leads_and_alone_gets_the_members() {
    let mut bench = Bench::new();
    let z = bench.join(new("z"));
    let a = bench.join(new("a"));
    bench.pass(6_000);
    let (of_z, of_a) = (bench.joined(z).expect("joined"), bench.joined(a).expect("joined"));
    assert_eq!((&*of_z.leader, &*of_a.leader), ("z", "z"));
    assert_eq!(of_z.members.iter().map(|member| &*member.member_id).collect::<Vec<_>>(), ["a", "z"]);
    assert_eq!(&of_z.members[0].metadata[..], b"meta");
    assert!(of_a.members.is_empty());
    assert_eq!(of_z.protocol_type.as_deref(), Some("consumer"));
}

#[test]
fn s78_the_protocol_with_most_votes_among_the_common_ones_wins() {
    let cases: &[(&[&[&str]], &str)] = &[
        (&[&["range", "sticky"], &["sticky", "range"], &["sticky", "range"]], "sticky"),
        (&[&["range", "sticky"], &["sticky"]], "sticky"),
        (&[&["b", "a"], &["a", "b"]], "a"),
    ];
    for (wants, chosen) in cases {
        let mut bench = Bench::new();
        let mut last = WaiterId(0);
        for (index, want) in wants.iter().enumerate() {
            last = bench.join(Join { protocols: protocols(want), ..new(&format!("m{index}")) });
        }
        bench.pass(60_000);
        assert_eq!(bench.joined(last).expect("joined").protocol_name.as_deref(), Some(*chosen));
    }
}

#[test]
fn s78_members_that_share_no_protocol_or_type_are_refused() {
    let mut bench = Bench::new();
    bench.stable(&["a"]);
    for request in [
        Join { protocols: protocols(&["cooperative"]), ..new("b") },
        Join { protocol_type: Arc::from("connect"), ..new("b") },
        Join { protocols: Vec::new(), ..new("b") },
        Join { protocol_type: Arc::from("connect"), ..known("a") },
    ] {
        let waiter = bench.join(request);
        assert_eq!(bench.join_error(waiter), Some(GroupError::InconsistentProtocol));
    }
    let mut empty = Bench::new();
    let waiter = empty.join(Join { protocol_type: Arc::from(""), ..new("a") });
    assert_eq!(empty.join_error(waiter), Some(GroupError::InconsistentProtocol));
}

#[test]
fn s79_a_follower_with_unchanged_metadata_causes_no_rebalance() {
    let mut bench = Bench::new();
    let generation = bench.stable(&["a", "b"]);
    let again = bench.join(known("b"));
    let answer = bench.joined(again).expect("at once");
    assert_eq!((answer.error, answer.generation, answer.members.len()), (None, generation, 0));
    assert_eq!(bench.group.state(), GroupState::Stable);
}

#[test]
fn s79_the_leader_or_changed_metadata_forces_a_rebalance() {
    for request in [known("a"), Join { protocols: protocols(&["range"]), ..known("b") }] {
        let mut bench = Bench::new();
        bench.stable(&["a", "b"]);
        let waiter = bench.join(request);
        assert_eq!(bench.joined(waiter), None);
        assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
    }
}

#[test]
fn s79_a_repeated_join_while_completing_gets_the_current_generation() {
    let mut bench = Bench::new();
    bench.join(new("a"));
    bench.join(new("b"));
    bench.pass(6_000);
    let (a, b) = (bench.join(known("a")), bench.join(known("b")));
    assert_eq!(bench.joined(a).map(|answer| (answer.generation, answer.members.len())), Some((1, 2)));
    assert_eq!(bench.joined(b).map(|answer| (answer.generation, answer.members.len())), Some((1, 0)));
    let changed = bench.join(Join { protocols: protocols(&["range"]), ..known("b") });
    assert_eq!(bench.joined(changed), None);
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn s79_an_id_that_an_empty_group_does_not_know_is_refused() {
    let mut bench = Bench::new();
    let waiter = bench.join(known("ghost"));
    assert_eq!(bench.join_error(waiter), Some(GroupError::UnknownMember));
}

#[test]
fn s80_sync_is_refused_for_the_wrong_member_generation_or_time() {
    let mut bench = Bench::new();
    let generation = bench.stable(&["a", "b"]);
    let cases = [
        (follower("ghost", generation), GroupError::UnknownMember),
        (follower("b", generation - 1), GroupError::IllegalGeneration),
        (
            Sync { protocol_type: Some(Arc::from("connect")), ..follower("b", generation) },
            GroupError::InconsistentProtocol,
        ),
        (
            Sync { protocol_name: Some(Arc::from("sticky")), ..follower("b", generation) },
            GroupError::InconsistentProtocol,
        ),
    ];
    for (request, error) in cases {
        let waiter = bench.sync(request);
        assert_eq!(bench.synced(waiter).expect("at once").error, Some(error));
    }
    bench.join(known("a"));
    let waiter = bench.sync(follower("b", generation));
    assert_eq!(bench.synced(waiter).expect("at once").error, Some(GroupError::RebalanceInProgress));
}

#[test]
fn s80_followers_wait_for_the_leader_and_a_missing_assignment_is_empty() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.join(new(name));
    }
    bench.pass(6_000);
    let b = bench.sync(follower("b", 1));
    assert_eq!(bench.synced(b), None);
    let a = bench.sync(leader("a", 1, &["a", "b"]));
    assert_eq!(&bench.synced(a).expect("given out").assignment[..], b"for a");
    assert_eq!(&bench.synced(b).expect("given out").assignment[..], b"for b");
    let c = bench.sync(follower("c", 1));
    let answer = bench.synced(c).expect("stable answers at once");
    assert_eq!((answer.error, answer.assignment.len()), (None, 0));
}

#[test]
fn s80_assignments_are_given_out_only_once_durable() {
    let mut bench = Bench::new();
    bench.join(new("a"));
    bench.pass(3_000);
    bench.hold_writes = true;
    let waiter = bench.sync(leader("a", 1, &["a"]));
    assert_eq!(bench.synced(waiter), None);
    assert_eq!(bench.group.state(), GroupState::CompletingRebalance);
    bench.finish_writes(true);
    assert_eq!(bench.synced(waiter).expect("durable").error, None);
}

#[test]
fn s80_an_assignment_that_cannot_be_written_starts_a_new_rebalance() {
    let mut bench = Bench::new();
    bench.join(new("a"));
    bench.pass(3_000);
    bench.hold_writes = true;
    let waiter = bench.sync(leader("a", 1, &["a"]));
    bench.finish_writes(false);
    assert_eq!(bench.synced(waiter).expect("told").error, Some(GroupError::CoordinatorNotAvailable));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn s80_an_assignment_of_a_past_generation_is_not_given_out() {
    let mut bench = Bench::new();
    bench.join(new("a"));
    bench.pass(3_000);
    bench.hold_writes = true;
    let sync = bench.sync(leader("a", 1, &["a"]));
    bench.join(new("b"));
    assert_eq!(bench.synced(sync).expect("told").error, Some(GroupError::RebalanceInProgress));
    let late = bench.held.clone();
    bench.finish_writes(true);
    assert_eq!(late.len(), 1);
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn s80_members_that_never_sync_are_removed_after_the_rebalance_timeout() {
    let mut bench = Bench::without_delay();
    let patient = |name: &str| Join { session_timeout_ms: 600_000, ..new(name) };
    bench.join(patient("a"));
    bench.join(patient("b"));
    bench.join(Join { session_timeout_ms: 600_000, ..known("a") });
    assert_eq!(bench.group.state(), GroupState::CompletingRebalance);
    bench.sync(leader("a", bench.group.generation(), &["a", "b"]));
    assert_eq!(bench.group.state(), GroupState::Stable);
    bench.pass(REBALANCE - 1);
    assert_eq!(bench.group.members().count(), 2);
    bench.pass(1);
    assert_eq!(bench.group.members().map(|member| &*member.id).collect::<Vec<_>>(), ["a"]);
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn s81_heartbeats_say_where_the_group_is() {
    let mut bench = Bench::new();
    assert_eq!(bench.heartbeat("a", 0), Some(GroupError::UnknownMember));
    bench.join(new("a"));
    bench.pass(3_000);
    assert_eq!(bench.heartbeat("a", 1), None, "completing a rebalance");
    bench.sync(leader("a", 1, &["a"]));
    assert_eq!(bench.heartbeat("a", 1), None);
    assert_eq!(bench.heartbeat("a", 2), Some(GroupError::IllegalGeneration));
    assert_eq!(bench.heartbeat("b", 1), Some(GroupError::UnknownMember));
    bench.join(new("b"));
    assert_eq!(bench.heartbeat("a", 1), Some(GroupError::RebalanceInProgress));
}

#[test]
fn s81_a_silent_member_is_removed_and_a_live_one_is_not() {
    let mut bench = Bench::new();
    let generation = bench.stable(&["a", "b"]);
    for _ in 0..3 {
        bench.pass(SESSION - 4_000);
        bench.heartbeat("a", generation);
    }
    assert_eq!(bench.group.members().map(|member| &*member.id).collect::<Vec<_>>(), ["a"]);
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn s81_a_parked_join_or_sync_stands_for_heartbeats() {
    let mut bench = Bench::new();
    bench.join(new("a"));
    bench.join(new("b"));
    bench.pass(6_000);
    let parked = bench.sync(follower("b", 1));
    bench.pass(SESSION - 1);
    bench.heartbeat("a", 1);
    bench.pass(SESSION - 1);
    bench.sync(leader("a", 1, &["a", "b"]));
    assert_eq!(bench.synced(parked).expect("still a member").error, None);

    let rejoin = bench.join(known("a"));
    for _ in 0..4 {
        bench.pass(SESSION - 1);
        bench.heartbeat("b", 1);
    }
    assert_eq!(bench.joined(rejoin), None, "b lives but has not rejoined");
    bench.join(known("b"));
    assert_eq!(bench.joined(rejoin).expect("both are here").error, None);
}

#[test]
fn s81_a_joiner_whose_connection_is_gone_does_not_wedge_the_group() {
    let mut bench = Bench::without_delay();
    bench.stable(&["a"]);
    bench.join(new("gone"));
    let a = bench.join(known("a"));
    assert_eq!(bench.joined(a).expect("both had joined").members.len(), 2);
    bench.sync(leader("a", bench.group.generation(), &["a", "gone"]));
    bench.pass(SESSION - 1);
    bench.heartbeat("a", bench.group.generation());
    bench.pass(1);
    assert_eq!(bench.group.members().count(), 1, "the one that is gone ran out of its session");
    let a = bench.join(known("a"));
    assert_eq!(bench.joined(a).expect("alone again").members.len(), 1);
}

#[test]
fn s81_a_new_member_that_waits_too_long_is_told_to_join_anew() {
    let mut bench = Bench::without_delay();
    bench.join(Join { rebalance_timeout_ms: 1_000_000, session_timeout_ms: 1_000_000, ..new("a") });
    bench.sync(leader("a", 1, &["a"]));
    let stuck = bench.join(Join { rebalance_timeout_ms: 1_000_000, ..new("b") });
    bench.pass(NEW_MEMBER_JOIN_TIMEOUT_MS);
    assert_eq!(bench.join_error(stuck), Some(GroupError::UnknownMember));
}

#[test]
fn s82_a_static_member_comes_back_to_its_assignment_without_a_rebalance() {
    for can_skip_assignment in [true, false] {
        let mut bench = Bench::new();
        bench.join(of_static("i", "old"));
        bench.pass(3_000);
        bench.sync(Sync { instance_id: Some(Arc::from("i")), ..leader("old", 1, &["old"]) });

        bench.hold_writes = true;
        let back = bench.join(Join { can_skip_assignment, ..of_static("i", "fresh") });
        assert_eq!(bench.joined(back), None, "the new id must be durable first");
        bench.finish_writes(true);
        let answer = bench.joined(back).expect("durable").clone();
        assert_eq!((answer.error, answer.generation, &*answer.member_id), (None, 1, "fresh"));
        assert_eq!(answer.skip_assignment, can_skip_assignment);
        assert_eq!(&*answer.leader, if can_skip_assignment { "fresh" } else { "old" });
        assert_eq!(answer.members.len(), usize::from(can_skip_assignment));
        assert_eq!(bench.group.state(), GroupState::Stable);

        let sync = bench.sync(Sync { instance_id: Some(Arc::from("i")), ..follower("fresh", 1) });
        assert_eq!(&bench.synced(sync).expect("stable").assignment[..], b"for old");
        assert_eq!(bench.heartbeat_as("old", Some("i"), 1), Some(GroupError::FencedInstanceId));
        assert_eq!(bench.heartbeat("old", 1), Some(GroupError::UnknownMember));
    }
}

#[test]
fn s82_a_static_member_taken_over_while_it_waits_is_fenced() {
    let mut bench = Bench::new();
    let old = bench.join(of_static("i", "old"));
    let fresh = bench.join(of_static("i", "fresh"));
    assert_eq!(bench.join_error(old), Some(GroupError::FencedInstanceId));
    bench.pass(6_000);
    let answer = bench.joined(fresh).expect("joined");
    assert_eq!((answer.error, &*answer.leader), (None, "fresh"));
}

#[test]
fn s82_a_takeover_while_completing_starts_the_rebalance_again() {
    let mut bench = Bench::new();
    bench.join(of_static("i", "old"));
    bench.join(new("b"));
    bench.pass(6_000);
    assert_eq!(bench.group.state(), GroupState::CompletingRebalance);
    bench.join(of_static("i", "fresh"));
    assert_eq!(bench.group.state(), GroupState::PreparingRebalance);
}

#[test]
fn s82_an_absent_static_member_keeps_its_place_until_its_session_ends() {
    let mut bench = Bench::without_delay();
    bench.join(Join { session_timeout_ms: 600_000, ..of_static("i", "s") });
    bench.sync(Sync { instance_id: Some(Arc::from("i")), ..leader("s", 1, &["s"]) });
    let b = bench.join(Join { session_timeout_ms: 600_000, ..new("b") });
    bench.pass(REBALANCE);
    let answer = bench.joined(b).expect("the rebalance timed out");
    assert_eq!((&*answer.leader, answer.members.len()), ("b", 2));
    bench.sync(leader("b", bench.group.generation(), &["b", "s"]));
    bench.pass(REBALANCE * 2);
    assert_eq!(bench.group.members().count(), 2);
    bench.pass(600_000);
    assert!(bench.group.members().all(|member| &*member.id != "s"));
}

#[test]
fn s82_members_leave_by_member_id_or_by_instance_id() {
    let mut bench = Bench::new();
    bench.join(of_static("i", "s"));
    bench.join(new("b"));
    bench.pass(6_000);
    assert_eq!(bench.leave("", Some("nobody")), Some(GroupError::UnknownMember));
    assert_eq!(bench.leave("wrong", Some("i")), Some(GroupError::FencedInstanceId));
    assert_eq!(bench.leave("ghost", None), Some(GroupError::UnknownMember));
    assert_eq!(bench.leave("", Some("i")), None);
    assert_eq!(bench.leave("b", None), None);
    assert_eq!(bench.group.state(), GroupState::Empty);
    assert_eq!(bench.group.generation(), 2);
    assert!(bench.seen.contains(&Effect::Persist(PersistToken::Empty)));
}

#[test]
fn a_leaving_member_lets_the_others_go_on() {
    let mut bench = Bench::new();
    bench.stable(&["a", "b"]);
    let a = bench.join(known("a"));
    assert_eq!(bench.joined(a), None);
    bench.leave("b", None);
    assert_eq!(bench.joined(a).expect("b is not waited for").members.len(), 1);
}

#[test]
fn an_id_given_out_can_be_given_back_without_a_rebalance() {
    let mut bench = Bench::new();
    bench.stable(&["a"]);
    bench.join(Join { require_known_member_id: true, ..new("b") });
    assert_eq!(bench.leave("b", None), None);
    assert_eq!(bench.group.state(), GroupState::Stable);
}

#[test]
fn s83_who_may_commit() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit("", -1), Ok(()), "a simple consumer of an empty group");
    assert_eq!(bench.commit("m", 3), Err(GroupError::UnknownMember));
    bench.join(new("a"));
    bench.pass(3_000);
    assert_eq!(bench.commit("a", 1), Err(GroupError::RebalanceInProgress), "completing");
    bench.sync(leader("a", 1, &["a"]));
    assert_eq!(bench.commit("a", 1), Ok(()));
    assert_eq!(bench.commit("", -1), Err(GroupError::UnknownMember), "the group has members");
    assert_eq!(bench.commit("b", 1), Err(GroupError::UnknownMember));
    assert_eq!(bench.commit("a", 2), Err(GroupError::IllegalGeneration));
    bench.join(new("b"));
    assert_eq!(bench.commit("a", 1), Ok(()), "preparing, with the current generation");
}

#[test]
fn a_commit_keeps_its_member_alive() {
    let mut bench = Bench::new();
    let generation = bench.stable(&["a"]);
    for _ in 0..5 {
        bench.pass(SESSION - 1);
        assert_eq!(bench.commit("a", generation), Ok(()));
    }
}

#[test]
fn a_full_group_takes_nobody_more() {
    let mut bench = Bench::with(GroupSettings { max_size: 2, ..SETTINGS });
    bench.stable(&["a", "b"]);
    let c = bench.join(new("c"));
    assert_eq!(bench.join_error(c), Some(GroupError::GroupMaxSizeReached));
    assert_eq!(bench.group.state(), GroupState::Stable);
}

#[test]
fn s85_offsets_of_subscribed_topics_are_known() {
    let mut bench = Bench::new();
    assert!(!bench.group.subscribes_to("a"));
    let subscription = Bytes::from_static(b"\x00\x01\x00\x00\x00\x01\x00\x01a\xff\xff\xff\xff");
    let offered = vec![MemberProtocol { name: Arc::from("range"), metadata: subscription }];
    bench.join(Join { protocols: offered, ..new("m") });
    bench.pass(3_000);
    assert!(bench.group.subscribes_to("a"));
    assert!(!bench.group.subscribes_to("b"));
}

#[test]
fn only_an_empty_group_is_deleted_and_a_dying_one_asks_to_come_again() {
    let mut bench = Bench::new();
    bench.stable(&["a"]);
    assert_eq!(bench.group.begin_delete(), Err(GroupError::NonEmptyGroup));
    bench.leave("a", None);
    assert_eq!(bench.group.begin_delete(), Ok(()));
    let waiter = bench.join(new("b"));
    assert_eq!(bench.join_error(waiter), Some(GroupError::CoordinatorNotAvailable));
    assert_eq!(bench.commit("", -1), Err(GroupError::CoordinatorNotAvailable));
    bench.group.abandon_delete();
    let waiter = bench.join(new("b"));
    bench.pass(3_000);
    assert_eq!(bench.join_error(waiter), None);
}

#[test]
fn a_stable_group_survives_its_record() {
    let mut bench = Bench::new();
    let generation = bench.stable(&["a", "b"]);
    let record = bench.group.metadata();
    let now = Now { elapsed_ms: 0, wall_ms: 0 };
    bench.group = Group::replayed(SETTINGS, record.clone(), now);
    bench.now = 0;
    assert_eq!(bench.group.metadata(), record);
    assert_eq!(bench.group.state(), GroupState::Stable);
    assert_eq!(bench.heartbeat("b", generation), None);
    let sync = bench.sync(follower("b", generation));
    assert_eq!(&bench.synced(sync).expect("stable").assignment[..], b"for b");
    bench.pass(SESSION);
    assert_eq!(bench.group.state(), GroupState::Empty, "sessions start anew and end");
}
