use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tokio::sync::oneshot;

use weir_model::config::BrokerConfig;

use super::*;
use crate::coordinator::group::consumer::test_topics::{TestTopicSource, TestTopics};
use crate::coordinator::group::event::{GroupError, Heartbeat, Join, JoinAnswer, LeavingMember, Sync, SyncAnswer};
use crate::coordinator::group::machine::GroupState;
use crate::coordinator::group::member::MemberProtocol;
use crate::coordinator::group::records::Record;

const SETTINGS: GroupSettings = GroupSettings {
    initial_rebalance_delay_ms: 0,
    min_session_timeout_ms: 6_000,
    max_session_timeout_ms: 60_000,
    max_size: 10,
};
const RETENTION: i64 = 1_000_000;

/// A shard with a log in memory. Writes become durable when [`Bench::flush`] says so.
pub(super) struct Bench {
    topics: Arc<TestTopicSource>,
    configs: Arc<GroupConfigs>,
    pub(super) state: ShardState,
    pub(super) now: i64,
    unwritten: VecDeque<Write>,
    log: Vec<Record>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let topics = Arc::new(TestTopicSource::default());
        *topics.0.lock() = TestTopics::of(&[("used", 4), ("other", 2)]);
        let config = BrokerConfig::resolve(&std::collections::BTreeMap::new()).expect("the defaults");
        let configs = Arc::new(GroupConfigs::in_memory(Arc::new(config)));
        let state = ShardState::new(SETTINGS, Arc::clone(&configs), topics.clone(), RETENTION);
        Self { topics, configs, state, now: 0, unwritten: VecDeque::new(), log: Vec::new() }
    }

    pub(super) fn now(&self) -> Now {
        Now { elapsed_ms: self.now, wall_ms: self.now }
    }

    pub(super) fn ask<T>(&mut self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> oneshot::Receiver<T> {
        let (reply, answer) = oneshot::channel();
        self.state.handle(self.now(), request(reply));
        self.unwritten.extend(self.state.take_writes());
        answer
    }

    /// Ends up to `count` writes.
    pub(super) fn flush(&mut self, count: usize, durable: bool) {
        for _ in 0..count {
            let Some(write) = self.unwritten.pop_front() else { return };
            if durable {
                self.log.extend(write.records.iter().cloned());
            }
            self.state.written(self.now(), write, durable);
            self.unwritten.extend(self.state.take_writes());
        }
    }

    pub(super) fn flush_all(&mut self) {
        while !self.unwritten.is_empty() {
            self.flush(1, true);
        }
    }

    pub(super) fn pass(&mut self, ms: i64) {
        self.now += ms;
        self.state.tick(self.now());
        self.unwritten.extend(self.state.take_writes());
    }

    pub(super) fn expire(&mut self) {
        self.state.expire(self.now());
        self.unwritten.extend(self.state.take_writes());
    }

    pub(super) fn commit_of(member: &str, generation: i32, topic: &str, offset: i64) -> Commit {
        Commit {
            member_id: Arc::from(member),
            instance_id: None,
            generation,
            knows_member_epochs: false,
            retention_ms: None,
            offsets: vec![OffsetToCommit {
                topic: Arc::from(topic),
                partition: 0,
                offset,
                leader_epoch: Some(3),
                metadata: Arc::from("note"),
            }],
        }
    }

    pub(super) fn commit(
        &mut self,
        group: &str,
        member: &str,
        generation: i32,
        topic: &str,
        offset: i64,
    ) -> oneshot::Receiver<Result<(), GroupError>> {
        let commit = Self::commit_of(member, generation, topic, offset);
        let group = Arc::from(group);
        self.ask(|reply| Request::Commit { group, commit, reply })
    }

    pub(super) fn join(&mut self, group: &str, member: &str, known: bool) -> oneshot::Receiver<JoinAnswer> {
        let join = Join {
            member_id: Arc::from(if known { member } else { "" }),
            generated_id: Arc::from(member),
            instance_id: None,
            client_id: Arc::from("client"),
            client_host: Arc::from("/127.0.0.1"),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 10_000,
            protocol_type: Arc::from("consumer"),
            protocols: vec![MemberProtocol {
                name: Arc::from("range"),
                // Subscribes to "used".
                metadata: Bytes::from_static(b"\x00\x00\x00\x00\x00\x01\x00\x04used\xff\xff\xff\xff"),
            }],
            require_known_member_id: false,
            can_skip_assignment: false,
        };
        let group = Arc::from(group);
        self.ask(|reply| Request::Join { group, join, reply })
    }

    pub(super) fn sync(&mut self, group: &str, member: &str, generation: i32) -> oneshot::Receiver<SyncAnswer> {
        // Partition 0 of "used", in the consumers' own format.
        let given = b"\x00\x00\x00\x00\x00\x01\x00\x04used\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff";
        let assignments = vec![(Arc::from(member), Bytes::from_static(given))];
        let sync = Sync {
            member_id: Arc::from(member),
            instance_id: None,
            generation,
            protocol_type: None,
            protocol_name: None,
            assignments,
        };
        let group = Arc::from(group);
        self.ask(|reply| Request::Sync { group, sync, reply })
    }

    pub(super) fn leave(&mut self, group: &str, member: &str) {
        let members = vec![LeavingMember { member_id: Arc::from(member), instance_id: None }];
        let group = Arc::from(group);
        let _ = self.ask(|reply| Request::Leave { group, members, reply });
    }

    pub(super) fn delete(&mut self, group: &str) -> oneshot::Receiver<Result<(), GroupError>> {
        let group = Arc::from(group);
        self.ask(|reply| Request::Delete { group, reply })
    }

    pub(super) fn fetch_all(&mut self, group: &str) -> Vec<FetchedTopic> {
        let group = Arc::from(group);
        self.ask(|reply| Request::Fetch { group, wanted: None, member: None, reply })
            .try_recv()
            .expect("answered at once")
            .expect("fetched")
    }

    pub(super) fn offset(&mut self, group: &str, topic: &str) -> Option<i64> {
        let (group, wanted) = (Arc::from(group), Some(vec![(Arc::from(topic), vec![0])]));
        let answer = self.ask(|reply| Request::Fetch { group, wanted, member: None, reply }).try_recv();
        let topics = answer.expect("answered at once").expect("fetched");
        topics[0].partitions[0].1.as_ref().map(|committed| committed.offset)
    }

    /// The state that a restart would find.
    pub(super) fn replayed(&self) -> ShardState {
        let mut state = ShardState::new(SETTINGS, Arc::clone(&self.configs), self.topics.clone(), RETENTION);
        for record in &self.log {
            let bytes = (record.key_bytes(), record.value_bytes());
            let read = Record::parse(&bytes.0, bytes.1.as_deref()).expect("our own record").expect("of a kind we keep");
            state.replay(self.now(), read);
        }
        state.loaded(self.now());
        state
    }

    pub(super) fn stable_member(&mut self, group: &str, member: &str) -> i32 {
        let joined = self.join(group, member, false).try_recv().expect("alone, so at once");
        let mut synced = self.sync(group, member, joined.generation);
        self.flush_all();
        assert_eq!(synced.try_recv().expect("durable").error, None);
        joined.generation
    }
}

#[test]
fn s83_a_commit_is_answered_and_seen_only_once_durable() {
    let mut bench = Bench::new();
    let mut answer = bench.commit("g", "", -1, "t", 5);
    assert!(answer.try_recv().is_err());
    assert_eq!(bench.offset("g", "t"), None);
    bench.flush_all();
    assert_eq!(answer.try_recv(), Ok(Ok(())));
    assert_eq!(bench.offset("g", "t"), Some(5));
}

#[test]
fn s83_a_commit_that_cannot_be_written_changes_nothing() {
    let mut bench = Bench::new();
    let mut answer = bench.commit("g", "", -1, "t", 5);
    bench.flush(1, false);
    assert_eq!(answer.try_recv(), Ok(Err(GroupError::CoordinatorNotAvailable)));
    assert_eq!(bench.offset("g", "t"), None);
    assert!(bench.state.group("g").is_none(), "a group that left no trace is gone");
}

#[test]
fn s83_a_commit_with_a_generation_of_a_group_that_is_not_there_is_illegal() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit("g", "m", 3, "t", 5).try_recv(), Ok(Err(GroupError::IllegalGeneration)));
}

#[test]
fn s84_epoch_and_metadata_come_back_and_unknown_groups_are_empty() {
    let mut bench = Bench::new();
    assert_eq!(bench.offset("nobody", "t"), None);
    assert!(bench.fetch_all("nobody").is_empty());
    let _ = bench.commit("g", "", -1, "t", 5);
    let _ = bench.commit("g", "", -1, "a", 6);
    bench.flush_all();
    let all = bench.fetch_all("g");
    assert_eq!(all.iter().map(|topic| &*topic.topic).collect::<Vec<_>>(), ["a", "t"]);
    let committed = all[1].partitions[0].1.clone().expect("committed");
    assert_eq!((committed.offset, committed.leader_epoch, &*committed.metadata), (5, Some(3), "note"));
}

#[test]
fn requests_of_a_group_that_is_not_there_make_none() {
    let mut bench = Bench::new();
    assert_eq!(bench.join("g", "m", true).try_recv().expect("at once").error, Some(GroupError::UnknownMember));
    assert_eq!(bench.sync("g", "m", 1).try_recv().expect("at once").error, Some(GroupError::UnknownMember));
    let (group, heartbeat) =
        (Arc::from("g"), Heartbeat { member_id: Arc::from("m"), instance_id: None, generation: 1 });
    assert_eq!(
        bench.ask(|reply| Request::Heartbeat { group, heartbeat, reply }).try_recv(),
        Ok(Some(GroupError::UnknownMember))
    );
    bench.leave("g", "m");
    assert_eq!(bench.delete("g").try_recv(), Ok(Err(GroupError::GroupIdNotFound)));
    assert!(bench.state.group("g").is_none());
    assert_eq!(bench.state.deadline(), None);
}

#[test]
fn s85_deleting_removes_offsets_also_those_on_their_way() {
    let mut bench = Bench::new();
    let _ = bench.commit("g", "", -1, "t", 5);
    bench.flush_all();
    let _ = bench.commit("g", "", -1, "u", 6);
    let mut deleted = bench.delete("g");
    let mut late = bench.commit("g", "", -1, "v", 7);
    assert_eq!(late.try_recv(), Ok(Err(GroupError::CoordinatorNotAvailable)), "the group is dying");
    bench.flush_all();
    assert_eq!(deleted.try_recv(), Ok(Ok(())));
    assert!(bench.state.all_offsets().is_empty() && bench.state.group("g").is_none());
    assert!(bench.replayed().all_offsets().is_empty());
}

#[test]
fn s85_a_group_with_members_is_not_deleted_and_a_failed_delete_leaves_it() {
    let mut bench = Bench::new();
    bench.stable_member("g", "m");
    assert_eq!(bench.delete("g").try_recv(), Ok(Err(GroupError::NonEmptyGroup)));
    bench.leave("g", "m");
    bench.flush_all();
    let mut deleted = bench.delete("g");
    bench.flush(1, false);
    assert_eq!(deleted.try_recv(), Ok(Err(GroupError::CoordinatorNotAvailable)));
    assert_eq!(bench.state.group("g").expect("still there").state(), GroupState::Empty);
}

#[test]
fn s85_offsets_of_simple_consumers_expire_by_the_age_of_the_commit() {
    let mut bench = Bench::new();
    let _ = bench.commit("g", "", -1, "t", 5);
    bench.flush_all();
    bench.now = RETENTION - 1;
    bench.expire();
    bench.flush_all();
    assert_eq!(bench.offset("g", "t"), Some(5));
    bench.now = RETENTION;
    bench.expire();
    bench.flush_all();
    assert_eq!(bench.offset("g", "t"), None);
    assert!(bench.state.group("g").is_none());
    assert!(bench.replayed().all_offsets().is_empty());
}

#[test]
fn s85_offsets_of_a_group_with_members_wait_until_it_is_empty() {
    let mut bench = Bench::new();
    let generation = bench.stable_member("g", "m");
    let _ = bench.commit("g", "m", generation, "used", 5);
    let _ = bench.commit("g", "m", generation, "unused", 6);
    bench.flush_all();
    bench.now = RETENTION;
    bench.expire();
    bench.flush_all();
    assert_eq!((bench.offset("g", "used"), bench.offset("g", "unused")), (Some(5), None), "subscribed topics stay");
    bench.leave("g", "m");
    bench.flush_all();
    bench.now = 2 * RETENTION - 1;
    bench.expire();
    bench.flush_all();
    assert_eq!(bench.offset("g", "used"), Some(5));
    bench.now = 2 * RETENTION;
    bench.expire();
    bench.flush_all();
    assert_eq!(bench.offset("g", "used"), None);
    assert!(bench.state.group("g").is_none());
}

#[test]
fn a_commit_that_says_how_long_is_kept_that_long() {
    let mut bench = Bench::new();
    let commit = Commit {
        member_id: Arc::from(""),
        instance_id: None,
        generation: -1,
        knows_member_epochs: false,
        retention_ms: Some(100),
        offsets: vec![OffsetToCommit {
            topic: Arc::from("t"),
            partition: 0,
            offset: 1,
            leader_epoch: None,
            metadata: Arc::from(""),
        }],
    };
    let group = Arc::from("g");
    let _ = bench.ask(|reply| Request::Commit { group, commit, reply });
    bench.flush_all();
    bench.now = 100;
    bench.expire();
    bench.flush_all();
    assert_eq!(bench.offset("g", "t"), None);
}

#[test]
fn s85_offsets_are_deleted_unless_members_subscribe_to_the_topic() {
    let mut bench = Bench::new();
    let generation = bench.stable_member("g", "m");
    let _ = bench.commit("g", "m", generation, "used", 5);
    let _ = bench.commit("g", "m", generation, "unused", 6);
    bench.flush_all();
    let (group, partitions) =
        (Arc::from("g"), vec![(Arc::from("used"), 0), (Arc::from("unused"), 0), (Arc::from("never"), 0)]);
    let mut answer = bench.ask(|reply| Request::DeleteOffsets { group, partitions, reply });
    bench.flush_all();
    assert_eq!(answer.try_recv(), Ok(Ok(vec![Some(GroupError::SubscribedToTopic), None, None])));
    assert_eq!((bench.offset("g", "used"), bench.offset("g", "unused")), (Some(5), None));
    let group = Arc::from("nobody");
    let mut answer = bench.ask(|reply| Request::DeleteOffsets { group, partitions: Vec::new(), reply });
    assert_eq!(answer.try_recv(), Ok(Err(GroupError::GroupIdNotFound)));
}

#[test]
fn s70_offsets_of_a_deleted_topic_are_forgotten_in_every_group() {
    let mut bench = Bench::new();
    for group in ["a", "b"] {
        let _ = bench.commit(group, "", -1, "gone", 5);
        let _ = bench.commit(group, "", -1, "stays", 6);
    }
    bench.flush_all();
    let topic = Arc::from("gone");
    let mut answer = bench.ask(|reply| Request::TopicDeleted { topic, reply });
    bench.flush_all();
    assert_eq!(answer.try_recv(), Ok(()));
    for group in ["a", "b"] {
        assert_eq!((bench.offset(group, "gone"), bench.offset(group, "stays")), (None, Some(6)));
    }
}

#[test]
fn a_restart_finds_members_whose_sessions_start_anew_and_end() {
    let mut bench = Bench::new();
    bench.stable_member("g", "m");
    bench.state = bench.replayed();
    assert_eq!(bench.state.group("g").expect("replayed").state(), GroupState::Stable);
    bench.pass(10_000);
    bench.flush_all();
    assert_eq!(bench.state.group("g").expect("there").state(), GroupState::Empty);
    assert_eq!(bench.replayed().group("g").expect("there").state(), GroupState::Empty);
}

/// One random thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Join { group: u8, member: u8, known: bool },
    Sync { group: u8, member: u8 },
    Commit { group: u8, member: Option<u8>, topic: u8, offset: i64 },
    Leave { group: u8, member: u8 },
    Delete { group: u8 },
    DeleteOffsets { group: u8, topic: u8 },
    TopicDeleted { topic: u8 },
    Pass { ms: i64 },
    Expire,
    Flush { count: usize },
    FailCommit,
}

fn any_step() -> impl Strategy<Value = Step> {
    let (group, member, topic) = (0..3_u8, 0..3_u8, 0..3_u8);
    prop_oneof![
        4 => (group.clone(), member.clone(), any::<bool>()).prop_map(|(group, member, known)| Step::Join { group, member, known }),
        4 => (group.clone(), member.clone()).prop_map(|(group, member)| Step::Sync { group, member }),
        6 => (group.clone(), prop::option::of(member.clone()), topic.clone(), 0..100_i64)
            .prop_map(|(group, member, topic, offset)| Step::Commit { group, member, topic, offset }),
        2 => (group.clone(), member).prop_map(|(group, member)| Step::Leave { group, member }),
        1 => group.clone().prop_map(|group| Step::Delete { group }),
        1 => (group, topic.clone()).prop_map(|(group, topic)| Step::DeleteOffsets { group, topic }),
        1 => topic.prop_map(|topic| Step::TopicDeleted { topic }),
        3 => prop_oneof![0..1_000_i64, 9_000..11_000_i64, Just(RETENTION)].prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Expire),
        6 => (1..4_usize).prop_map(|count| Step::Flush { count }),
        1 => Just(Step::FailCommit),
    ]
}

fn take(bench: &mut Bench, step: Step) {
    let group = |group: u8| format!("g{group}");
    let member = |group: u8, member: u8| format!("g{group}-m{member}");
    let generation =
        |bench: &Bench, id: u8| bench.state.group(&group(id)).map_or(0, super::super::machine::Group::generation);
    match step {
        Step::Join { group: id, member: who, known } => drop(bench.join(&group(id), &member(id, who), known)),
        Step::Sync { group: id, member: who } => {
            let generation = generation(bench, id);
            drop(bench.sync(&group(id), &member(id, who), generation));
        }
        Step::Commit { group: id, member: who, topic, offset } => {
            let topic = format!("t{topic}");
            let generation = generation(bench, id);
            match who {
                Some(who) => drop(bench.commit(&group(id), &member(id, who), generation, &topic, offset)),
                None => drop(bench.commit(&group(id), "", -1, &topic, offset)),
            }
        }
        Step::Leave { group: id, member: who } => bench.leave(&group(id), &member(id, who)),
        Step::Delete { group: id } => drop(bench.delete(&group(id))),
        Step::DeleteOffsets { group: id, topic } => {
            let (group, partitions) = (Arc::from(group(id)), vec![(Arc::from(format!("t{topic}")), 0)]);
            drop(bench.ask(|reply| Request::DeleteOffsets { group, partitions, reply }));
        }
        Step::TopicDeleted { topic } => {
            let topic = Arc::from(format!("t{topic}"));
            drop(bench.ask(|reply| Request::TopicDeleted { topic, reply }));
        }
        Step::Pass { ms } => bench.pass(ms),
        Step::Expire => bench.expire(),
        Step::Flush { count } => bench.flush(count, true),
        Step::FailCommit => {
            if bench.unwritten.front().is_some_and(Write::is_commit) {
                bench.flush(1, false);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Redpanda PR 31483: what a restart finds is what clients saw.
    #[test]
    fn replay_equals_the_live_state(steps in prop::collection::vec(any_step(), 0..120)) {
        let mut bench = Bench::new();
        for step in steps {
            take(&mut bench, step);
        }
        bench.flush_all();
        let replayed = bench.replayed();
        prop_assert_eq!(replayed.all_offsets(), bench.state.all_offsets());
        for id in ["g0", "g1", "g2"] {
            let (live, found) = (bench.state.group(id), replayed.group(id));
            match live.map(|group| (group.state(), group)) {
                Some((GroupState::Stable, live)) => {
                    let found = found.expect("a stable group is in the log");
                    let (mut found, mut live) = (found.metadata(), live.metadata());
                    // The live group became stable when the record was durable, a little later.
                    (found.state_since_wall_ms, live.state_since_wall_ms) = (None, None);
                    prop_assert_eq!(found, live);
                }
                Some((GroupState::Empty, live)) if live.generation() > 0 => {
                    prop_assert_eq!(found.expect("its end is in the log").metadata(), live.metadata());
                }
                None => prop_assert!(found.is_none_or(|group| group.is_idle() && group.generation() == 0), "{id} came back"),
                Some(_) => {}
            }
        }
        // Nothing waits for ever: with time, every group comes to rest.
        bench.pass(400_000);
        bench.flush_all();
        for _ in 0..20 {
            bench.pass(400_000);
            bench.flush_all();
        }
        prop_assert_eq!(bench.state.deadline(), None);
    }
}
