//! KIP-848 groups in a shard: what waits for durability, what a lost write does, and groups that change their protocol.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::tests::Bench;
use super::*;
use crate::coordinator::group::consumer::assignment::Assignment;
use crate::coordinator::group::consumer::event::{ConsumerGroupDescription, ConsumerHeartbeat, HeartbeatAnswer};
use crate::coordinator::group::event::GroupError;
use crate::coordinator::group::machine::GroupState;

type Told = oneshot::Receiver<Result<HeartbeatAnswer, GroupError>>;

impl Bench {
    fn beat(&mut self, group: &str, member: &str, epoch: i32, owned: Option<Assignment>) -> Told {
        let joins = epoch == 0;
        let heartbeat = ConsumerHeartbeat {
            member_id: Arc::from(member),
            epoch,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: joins.then_some(10_000),
            topics: joins.then(|| BTreeSet::from([Arc::from("used")])),
            regex: None,
            assignor: None,
            owned: if joins { Some(Assignment::new()) } else { owned },
            client_id: Arc::from("client"),
            client_host: Arc::from("/127.0.0.1"),
        };
        let group = Arc::from(group);
        self.ask(|reply| Request::ConsumerHeartbeat { group, heartbeat, reply })
    }

    fn described(&mut self, group: &str) -> Result<ConsumerGroupDescription, NotFound> {
        let group = Arc::from(group);
        let mut answer = self.ask(|reply| Request::DescribeConsumer { group, reply });
        self.flush_all();
        answer.try_recv().expect("answered")
    }
}

#[test]
fn a_heartbeat_is_answered_when_what_it_says_is_durable() {
    let mut bench = Bench::new();
    let mut joined = bench.beat("g", "a", 0, None);
    assert!(joined.try_recv().is_err(), "not durable yet");
    let mut beat = bench.beat("g", "a", 1, None);
    assert!(beat.try_recv().is_err(), "it writes nothing, and still speaks of what is not durable");
    bench.flush_all();
    let answer = joined.try_recv().expect("durable").expect("joined");
    assert_eq!((answer.epoch, answer.assignment.map(|told| told.len())), (1, Some(1)));
    assert_eq!(beat.try_recv().expect("durable").expect("lives").epoch, 1);
    let mut beat = bench.beat("g", "a", 1, None);
    assert!(beat.try_recv().expect("nothing is in flight, so at once").is_ok());
}

#[test]
fn a_lost_write_is_told_and_made_good() {
    let mut bench = Bench::new();
    let mut joined = bench.beat("g", "a", 0, None);
    let mut beat = bench.beat("g", "a", 1, None);
    bench.flush(1, false);
    for answer in [&mut joined, &mut beat] {
        assert_eq!(answer.try_recv().expect("told"), Err(GroupError::CoordinatorNotAvailable));
    }
    let mut again = bench.beat("g", "a", 0, None);
    bench.flush_all();
    assert_eq!(again.try_recv().expect("told"), Err(GroupError::CoordinatorNotAvailable), "the log is still behind");
    assert!(bench.replayed().group("g").is_none_or(|group| group.generation() == 0));
    bench.pass(1_000);
    bench.flush_all();
    let mut again = bench.beat("g", "a", 0, None);
    bench.flush_all();
    assert_eq!(again.try_recv().expect("told").expect("joined").epoch, 1);
    let live = bench.described("g").expect("there");
    bench.state = bench.replayed();
    let found = bench.described("g").expect("in the log");
    assert_eq!((found.state, found.epoch, found.target_epoch), (live.state, live.epoch, live.target_epoch));
    assert_eq!(found.members.len(), 1);
    assert_eq!(found.members[0].current, live.members[0].current);
}

#[test]
fn a_removal_that_was_lost_is_written_again() {
    let mut bench = Bench::new();
    for member in ["a", "b"] {
        drop(bench.beat("g", member, 0, None));
        bench.flush_all();
    }
    let mut left = bench.beat("g", "a", -1, None);
    bench.flush(1, false);
    assert_eq!(left.try_recv().expect("told"), Err(GroupError::CoordinatorNotAvailable));
    bench.pass(1_000);
    bench.flush_all();
    bench.state = bench.replayed();
    let members = bench.described("g").expect("there").members;
    assert_eq!(members.iter().map(|member| &*member.id).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn heartbeats_of_groups_that_are_not_there_make_none() {
    let mut bench = Bench::new();
    assert_eq!(bench.beat("g", "a", 1, None).try_recv().expect("at once"), Err(GroupError::GroupIdNotFound));
    assert_eq!(bench.beat("g", "a", -1, None).try_recv().expect("at once"), Err(GroupError::GroupIdNotFound));
    assert_eq!(bench.described("g").err(), Some(NotFound::Absent));
    assert_eq!(bench.state.deadline(), None);
}

#[test]
fn s85_an_empty_consumer_group_is_deleted_with_all_its_records() {
    let mut bench = Bench::new();
    drop(bench.beat("g", "a", 0, None));
    let commit = Commit { knows_member_epochs: true, ..Bench::commit_of("a", 1, "used", 5) };
    let group = Arc::from("g");
    let mut committed = bench.ask(|reply| Request::Commit { group, commit, reply });
    bench.flush_all();
    assert_eq!(committed.try_recv(), Ok(Ok(())));
    assert_eq!(bench.delete("g").try_recv(), Ok(Err(GroupError::NonEmptyGroup)));
    drop(bench.beat("g", "a", -1, None));
    bench.flush_all();
    let mut deleted = bench.delete("g");
    let mut late = bench.beat("g", "b", 0, None);
    assert_eq!(late.try_recv().expect("at once"), Err(GroupError::CoordinatorNotAvailable), "the group is dying");
    bench.flush_all();
    assert_eq!(deleted.try_recv(), Ok(Ok(())));
    assert_eq!(bench.described("g").err(), Some(NotFound::Absent));
    bench.state = bench.replayed();
    assert_eq!(bench.described("g").err(), Some(NotFound::Absent));
    assert!(bench.state.all_offsets().is_empty());
}

#[test]
fn a_classic_group_goes_up_with_its_parked_requests_answered_and_down_again() {
    let mut bench = Bench::new();
    let generation = bench.stable_member("g", "c");
    // A second classic member is parked: the first has to rejoin for it.
    let mut parked = bench.join("g", "d", false);
    assert!(parked.try_recv().is_err());
    let mut joined = bench.beat("g", "a", 0, None);
    assert_eq!(parked.try_recv().expect("told").error, Some(GroupError::RebalanceInProgress));
    bench.flush_all();
    assert_eq!(joined.try_recv().expect("durable").expect("joined").epoch, generation + 1);
    let members = bench.described("g").expect("a consumer group").members;
    assert_eq!(members.iter().map(|member| &*member.id).collect::<Vec<_>>(), ["a", "c", "d"]);
    bench.state = bench.replayed();
    assert_eq!(bench.described("g").expect("after a restart too").members.len(), 3);

    drop(bench.beat("g", "a", -1, None));
    bench.flush_all();
    assert_eq!(bench.described("g").err(), Some(NotFound::OtherType));
    let live = bench.state.group("g").expect("classic");
    assert_eq!((live.state(), live.members().count()), (GroupState::PreparingRebalance, 2));
    bench.state = bench.replayed();
    let found = bench.state.group("g").expect("classic after a restart too");
    assert_eq!((found.state(), found.members().count()), (GroupState::Stable, 2));
}

#[test]
fn a_refused_join_leaves_a_classic_group_what_it_is() {
    let mut bench = Bench::new();
    bench.stable_member("g", "c");
    let heartbeat = ConsumerHeartbeat {
        member_id: Arc::from("a"),
        epoch: 0,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: Some(1_000),
        topics: None,
        regex: Some(Arc::from("(")),
        assignor: None,
        owned: Some(Assignment::new()),
        client_id: Arc::from("client"),
        client_host: Arc::from("/127.0.0.1"),
    };
    let group = Arc::from("g");
    let mut answer = bench.ask(|reply| Request::ConsumerHeartbeat { group, heartbeat, reply });
    assert_eq!(answer.try_recv().expect("at once"), Err(GroupError::InvalidRegularExpression));
    assert_eq!(bench.state.group("g").expect("classic").state(), GroupState::Stable);
    bench.flush_all();
    assert_eq!(bench.replayed().group("g").expect("classic").state(), GroupState::Stable);
}

#[test]
fn s92_offsets_are_checked_against_the_members_epoch() {
    let mut bench = Bench::new();
    drop(bench.beat("g", "a", 0, None));
    bench.flush_all();
    let mut commit = |epoch| {
        let commit = Commit { knows_member_epochs: true, ..Bench::commit_of("a", epoch, "used", 5) };
        let group = Arc::from("g");
        let mut answer = bench.ask(|reply| Request::Commit { group, commit, reply });
        bench.flush_all();
        answer.try_recv().expect("answered")
    };
    assert_eq!(commit(1), Ok(()));
    assert_eq!(commit(0), Err(GroupError::StaleMemberEpoch));
    let fetch = |bench: &mut Bench, epoch| {
        let (group, member) = (Arc::from("g"), Some((Arc::from("a"), epoch)));
        let mut answer = bench.ask(|reply| Request::Fetch { group, wanted: None, member, reply });
        answer.try_recv().expect("at once").map(|topics| topics.len())
    };
    assert_eq!(fetch(&mut bench, 1), Ok(1));
    assert_eq!(fetch(&mut bench, 7), Err(GroupError::StaleMemberEpoch));
}
