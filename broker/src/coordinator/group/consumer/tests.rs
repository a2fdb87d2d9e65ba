use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::assignor::Assignor;
use super::event::{ConsumerHeartbeat, HeartbeatAnswer, JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH};
use super::test_topics::TestTopics;
use super::*;
use crate::coordinator::group::event::{Heartbeat, Join, JoinAnswer, LeavingMember, Sync};
use crate::coordinator::group::machine::{Group, GroupSettings};
use crate::coordinator::group::member::MemberProtocol;
use crate::coordinator::group::records::{Record, RecordKey, RecordValue};

const SESSION: i64 = 45_000;
const REBALANCE: i32 = 60_000;

fn settings() -> ConsumerSettings {
    ConsumerSettings {
        session_timeout_ms: 45_000,
        heartbeat_interval_ms: 5_000,
        max_size: 100,
        assignors: Arc::from(Assignor::ALL),
        upgrade: true,
        downgrade: true,
        classic_max_size: 100,
    }
}

/// A group on a clock of its own, with topics of its own.
struct Bench {
    group: ConsumerGroup,
    topics: TestTopics,
    settings: ConsumerSettings,
    now: i64,
    log: Vec<Record>,
    fate: Fate,
}

/// What a client remembers.
#[derive(Debug, Clone)]
struct Client {
    id: String,
    instance: Option<String>,
    epoch: i32,
    owned: Assignment,
}

impl Client {
    fn new(id: &str) -> Self {
        Self { id: id.to_owned(), instance: None, epoch: 0, owned: Assignment::new() }
    }

    fn fixed(id: &str, instance: &str) -> Self {
        Self { instance: Some(instance.to_owned()), ..Self::new(id) }
    }

    fn beat(&self) -> ConsumerHeartbeat {
        ConsumerHeartbeat {
            member_id: Arc::from(&*self.id),
            epoch: self.epoch,
            instance_id: self.instance.as_deref().map(Arc::from),
            rack_id: None,
            rebalance_timeout_ms: None,
            topics: None,
            regex: None,
            assignor: None,
            owned: None,
            client_id: Arc::from("client"),
            client_host: Arc::from("/127.0.0.1"),
        }
    }

    fn join(&self, topics: &[&str]) -> ConsumerHeartbeat {
        ConsumerHeartbeat {
            epoch: JOIN_EPOCH,
            rebalance_timeout_ms: Some(REBALANCE),
            topics: Some(topics.iter().map(|name| Arc::from(*name)).collect()),
            owned: Some(Assignment::new()),
            ..self.beat()
        }
    }
}

impl Bench {
    fn new(topics: &[(&str, i32)]) -> Self {
        Self {
            group: ConsumerGroup::new(Arc::from("g")),
            topics: TestTopics::of(topics),
            settings: settings(),
            now: 0,
            log: Vec::new(),
            fate: Fate::Stays,
        }
    }

    fn now(&self) -> Now {
        Now { elapsed_ms: self.now, wall_ms: 1_000_000 + self.now }
    }

    fn send(&mut self, request: ConsumerHeartbeat) -> Result<HeartbeatAnswer, GroupError> {
        let now = self.now();
        let (before, count) = (self.group.clone(), self.log.len());
        let env = Env { now, topics: &self.topics, settings: &self.settings };
        let outcome = self.group.heartbeat(env, request, &mut self.log);
        if outcome.is_err() {
            assert_eq!(
                (parts_of(&before), count),
                (parts_of(&self.group), self.log.len()),
                "a refusal changes nothing"
            );
        }
        let (beat, fate) = outcome?;
        self.fate = fate;
        if let Some(resolve) = beat.resolve {
            let matches = regex::resolve(&resolve.patterns, &self.topics);
            let env = Env { now, topics: &self.topics, settings: &self.settings };
            self.group.regexes_resolved(env, self.topics.version(), matches, &mut self.log);
        }
        Ok(beat.answer)
    }

    /// Sends, and does what a client does with the answer.
    fn exchange(&mut self, client: &mut Client, request: ConsumerHeartbeat) -> Result<HeartbeatAnswer, GroupError> {
        let answer = self.send(request)?;
        client.epoch = answer.epoch;
        if let Some(assignment) = &answer.assignment {
            client.owned = assignment.clone();
        }
        Ok(answer)
    }

    fn join(&mut self, client: &mut Client, topics: &[&str]) -> HeartbeatAnswer {
        let request = client.join(topics);
        self.exchange(client, request).expect("joined")
    }

    /// A heartbeat that says what the client owns.
    fn beat(&mut self, client: &mut Client) -> Result<HeartbeatAnswer, GroupError> {
        let request = ConsumerHeartbeat { owned: Some(client.owned.clone()), ..client.beat() };
        self.exchange(client, request)
    }

    fn settle(&mut self, clients: &mut [&mut Client]) {
        for _ in 0..5 {
            for client in clients.iter_mut() {
                self.beat(client).expect("lives");
            }
        }
        assert_eq!(self.group.state(), ConsumerGroupState::Stable);
    }

    fn pass(&mut self, ms: i64) {
        let until = self.now + ms;
        while let Some(due) = self.group.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let env = Env { now: self.now(), topics: &self.topics, settings: &self.settings };
            self.fate = self.group.tick(env, &mut self.log);
        }
        self.now = until;
    }

    fn of(&self, topic: &str, partitions: &[i32]) -> Assignment {
        Assignment::from([(self.topics.id(topic), partitions.iter().copied().collect())])
    }

    fn replayed(&self) -> ConsumerGroup {
        let mut group = ConsumerGroup::new(Arc::from("g"));
        for record in &self.log {
            let bytes = (record.key_bytes(), record.value_bytes());
            let read = Record::parse(&bytes.0, bytes.1.as_deref()).expect("our own record").expect("of a kind we keep");
            assert_eq!(read, *record, "what is written is what is read");
            if let RecordKey::Consumer { part, .. } = read.key {
                match read.value {
                    Some(RecordValue::Consumer(value)) => group.replay(&part, Some(&value)),
                    _ => group.replay(&part, None),
                }
            }
        }
        group
    }
}

/// All that outlives a restart.
fn parts_of(group: &ConsumerGroup) -> BTreeMap<ConsumerKey, Option<ConsumerValue>> {
    group.parts().into_iter().map(|part| (part.clone(), group.value_of(&part))).collect()
}

fn partitions(assignment: &Assignment) -> usize {
    assignment::partition_count(assignment)
}

#[test]
fn s90_the_first_member_gets_everything_at_epoch_one() {
    let mut bench = Bench::new(&[("t", 4)]);
    let mut a = Client::new("a");
    let answer = bench.join(&mut a, &["t"]);
    assert_eq!((answer.epoch, answer.heartbeat_interval_ms), (1, 5_000));
    assert_eq!(answer.assignment, Some(bench.of("t", &[0, 1, 2, 3])));
    assert_eq!(bench.group.state(), ConsumerGroupState::Stable);
    assert_eq!(bench.beat(&mut a).expect("lives").assignment, None, "nothing changed, nothing is said");
}

#[test]
fn s90_a_partition_moves_when_its_owner_gave_it_up() {
    let mut bench = Bench::new(&[("t", 4)]);
    let (mut a, mut b) = (Client::new("a"), Client::new("b"));
    bench.join(&mut a, &["t"]);
    let joined = bench.join(&mut b, &["t"]);
    assert_eq!((joined.epoch, joined.assignment), (2, Some(Assignment::new())), "nothing is free");
    assert_eq!(bench.group.state(), ConsumerGroupState::Reconciling);
    let told = bench.send(ConsumerHeartbeat { owned: Some(a.owned.clone()), ..a.beat() }).expect("lives");
    assert_eq!((told.epoch, &told.assignment), (1, &Some(bench.of("t", &[0, 1]))), "told to give up, at its old epoch");
    assert_eq!(bench.beat(&mut b).expect("lives").assignment, None, "still not given up");
    a.owned = told.assignment.expect("told");
    assert_eq!(bench.beat(&mut a).expect("lives").epoch, 2);
    let given = bench.beat(&mut b).expect("lives");
    assert_eq!(given.assignment, Some(bench.of("t", &[2, 3])));
    assert_eq!(bench.group.state(), ConsumerGroupState::Stable);
}

#[test]
fn s88_a_full_request_is_answered_in_full() {
    let mut bench = Bench::new(&[("t", 2)]);
    let mut a = Client::new("a");
    bench.join(&mut a, &["t"]);
    let full = ConsumerHeartbeat { epoch: a.epoch, owned: Some(a.owned.clone()), ..a.join(&["t"]) };
    assert_eq!(bench.send(full).expect("lives").assignment, Some(bench.of("t", &[0, 1])));
}

#[test]
fn s89_epochs_that_cannot_be_are_fenced_and_a_lost_answer_is_not() {
    let mut bench = Bench::new(&[("t", 4), ("u", 1)]);
    let (mut a, mut b) = (Client::new("a"), Client::new("b"));
    bench.join(&mut a, &["t"]);
    bench.join(&mut b, &["t"]);
    bench.settle(&mut [&mut a, &mut b]);
    let beat = |epoch, owned: Option<Assignment>| ConsumerHeartbeat { epoch, owned, ..a.beat() };
    assert_eq!(a.epoch, 2);
    assert_eq!(bench.send(beat(3, None)), Err(GroupError::FencedMemberEpoch), "ahead");
    assert_eq!(bench.send(beat(1, None)), Err(GroupError::FencedMemberEpoch), "behind, and owns we know not what");
    let others = bench.of("t", &[3]);
    assert_eq!(bench.send(beat(1, Some(others))), Err(GroupError::FencedMemberEpoch), "behind, and owns another's");
    let mut stranger = Client::new("x");
    stranger.epoch = 2;
    assert_eq!(bench.send(stranger.beat()), Err(GroupError::UnknownMember));
    // Its subscription changes, the answer is lost, and it says the same with its old epoch.
    let change = ConsumerHeartbeat {
        topics: Some(BTreeSet::from([Arc::from("t"), Arc::from("u")])),
        ..beat(2, Some(a.owned.clone()))
    };
    let lost = bench.send(change.clone()).expect("lives");
    assert_eq!(lost.epoch, 3);
    assert_eq!(bench.send(change).expect("the previous epoch is fine").epoch, 3);
    let again = bench.send(a.join(&["t"])).expect("joining again always works");
    assert!(again.epoch > 3 && again.assignment.is_some());
}

#[test]
fn leaving_frees_partitions_and_raises_the_epoch() {
    let mut bench = Bench::new(&[("t", 4)]);
    let (mut a, mut b) = (Client::new("a"), Client::new("b"));
    bench.join(&mut a, &["t"]);
    bench.join(&mut b, &["t"]);
    bench.settle(&mut [&mut a, &mut b]);
    a.epoch = LEAVE_EPOCH;
    let answer = bench.send(a.beat()).expect("left");
    assert_eq!((answer.epoch, answer.heartbeat_interval_ms, answer.assignment), (-1, 0, None));
    assert_eq!((bench.group.epoch(), bench.group.state()), (3, ConsumerGroupState::Assigning));
    let given = bench.beat(&mut b).expect("lives");
    assert_eq!((given.epoch, given.assignment), (3, Some(bench.of("t", &[0, 1, 2, 3]))));
    assert_eq!(bench.send(a.beat()), Err(GroupError::UnknownMember));
    b.epoch = LEAVE_EPOCH;
    bench.send(b.beat()).expect("left");
    assert_eq!(bench.group.state(), ConsumerGroupState::Empty);
    assert_eq!(bench.group.deadline(), None, "no timers of nobody");
}

#[test]
fn a_static_member_is_back_with_what_it_had() {
    let mut bench = Bench::new(&[("t", 4)]);
    let (mut a, mut b) = (Client::fixed("a1", "one"), Client::new("b"));
    bench.join(&mut a, &["t"]);
    bench.join(&mut b, &["t"]);
    bench.settle(&mut [&mut a, &mut b]);
    let (epoch, had) = (bench.group.epoch(), a.owned.clone());
    let mut next = Client::fixed("a2", "one");
    assert_eq!(bench.send(next.join(&["t"])), Err(GroupError::UnreleasedInstanceId), "the first one is still there");
    a.epoch = STATIC_LEAVE_EPOCH;
    assert_eq!(bench.send(a.beat()).expect("left for a while").epoch, -2);
    bench.beat(&mut b).expect("lives");
    assert_eq!(partitions(&b.owned), 2, "nobody gets what it left");
    let back = bench.join(&mut next, &["t"]);
    assert_eq!((back.assignment, bench.group.epoch()), (Some(had), epoch), "no rebalance");
    a.epoch = epoch;
    assert_eq!(bench.send(a.beat()), Err(GroupError::FencedInstanceId), "the old member id is done for");
    next.epoch = LEAVE_EPOCH;
    bench.send(next.beat()).expect("left for good");
    assert_eq!(bench.group.epoch(), epoch + 1);
    assert_eq!(bench.send(Client { epoch, ..next.clone() }.beat()), Err(GroupError::UnknownMember));
}

#[test]
fn a_static_member_that_stays_away_is_out_when_its_session_ends() {
    let mut bench = Bench::new(&[("t", 4)]);
    let mut a = Client::fixed("a1", "one");
    bench.join(&mut a, &["t"]);
    a.epoch = STATIC_LEAVE_EPOCH;
    bench.send(a.beat()).expect("left for a while");
    bench.pass(SESSION - 1);
    assert!(!bench.group.is_empty());
    bench.pass(1);
    assert!(bench.group.is_empty());
}

#[test]
fn silence_ends_a_session_and_heartbeats_do_not_let_it() {
    let mut bench = Bench::new(&[("t", 4)]);
    let (mut a, mut b) = (Client::new("a"), Client::new("b"));
    bench.join(&mut a, &["t"]);
    bench.join(&mut b, &["t"]);
    for _ in 0..10 {
        bench.pass(SESSION / 2);
        bench.beat(&mut a).expect("lives");
    }
    assert_eq!(bench.group.members().map(|member| &*member.id).collect::<Vec<_>>(), ["a"]);
    assert_eq!(bench.beat(&mut b), Err(GroupError::UnknownMember));
    assert_eq!(partitions(&a.owned), 4);
}

#[test]
fn who_does_not_give_partitions_up_in_time_is_out() {
    let mut bench = Bench::new(&[("t", 4)]);
    let (mut a, mut b) = (Client::new("a"), Client::new("b"));
    bench.join(&mut a, &["t"]);
    bench.join(&mut b, &["t"]);
    // Lives, and keeps all it has.
    let stubborn = |client: &Client| ConsumerHeartbeat { owned: None, ..client.beat() };
    for _ in 0..7 {
        bench.pass(i64::from(REBALANCE) / 6);
        bench.beat(&mut b).expect("lives");
        if bench.send(stubborn(&a)).is_err() {
            break;
        }
    }
    assert_eq!(bench.send(stubborn(&a)), Err(GroupError::UnknownMember));
    bench.beat(&mut b).expect("lives");
    assert_eq!(partitions(&b.owned), 4);
}

#[test]
fn s91_topics_that_grow_come_and_go_are_followed() {
    let mut bench = Bench::new(&[("t", 2)]);
    let mut a = Client::new("a");
    bench.join(&mut a, &["t", "later"]);
    assert_eq!(a.epoch, 1);
    bench.topics.set("t", 3);
    assert_eq!(bench.beat(&mut a).expect("lives").epoch, 2);
    assert_eq!(a.owned, bench.of("t", &[0, 1, 2]));
    bench.topics.set("unrelated", 5);
    assert_eq!(bench.beat(&mut a).expect("lives").epoch, 2, "nobody here cares");
    bench.topics.set("later", 1);
    assert_eq!(bench.beat(&mut a).expect("lives").epoch, 3);
    assert_eq!(partitions(&a.owned), 4);
    bench.topics.remove("t");
    bench.beat(&mut a).expect("told to give up");
    let later = bench.of("later", &[0]);
    assert_eq!(a.owned, later);
    assert_eq!(bench.beat(&mut a).expect("lives").epoch, 4);
}

#[test]
fn a_topic_dropped_from_the_subscription_is_taken_at_once() {
    let mut bench = Bench::new(&[("t", 2), ("u", 2)]);
    let mut a = Client::new("a");
    bench.join(&mut a, &["t", "u"]);
    let change = ConsumerHeartbeat { topics: Some(BTreeSet::from([Arc::from("u")])), ..a.beat() };
    let told = bench.exchange(&mut a, change).expect("lives");
    assert_eq!((told.epoch, told.assignment), (1, Some(bench.of("u", &[0, 1]))));
    assert_eq!(bench.beat(&mut a).expect("gave it up").epoch, 2);
}

#[test]
fn regular_expressions_follow_the_topics() {
    let mut bench = Bench::new(&[("orders-eu", 2), ("orders-us", 1), ("other", 4)]);
    let mut a = Client::new("a");
    let join = ConsumerHeartbeat { topics: None, regex: Some(Arc::from("orders-.*")), ..a.join(&[]) };
    let first = bench.exchange(&mut a, join).expect("joined");
    assert_eq!(first.assignment, Some(Assignment::new()), "resolved in the background");
    assert_eq!(partitions(&bench.beat(&mut a).expect("lives").assignment.expect("told")), 3);
    bench.topics.set("orders-jp", 4);
    bench.beat(&mut a).expect("lives");
    assert_eq!(partitions(&a.owned), 3, "not resolved again so soon");
    bench.pass(11_000);
    bench.beat(&mut a).expect("lives");
    bench.beat(&mut a).expect("lives");
    assert_eq!(partitions(&a.owned), 7);
    assert!(bench.group.subscribes_to("orders-jp") && !bench.group.subscribes_to("other"));
    let bad = ConsumerHeartbeat { regex: Some(Arc::from("(")), ..a.beat() };
    assert_eq!(bench.send(bad), Err(GroupError::InvalidRegularExpression));
    let none = ConsumerHeartbeat { regex: Some(Arc::from("")), owned: Some(a.owned.clone()), ..a.beat() };
    let told = bench.exchange(&mut a, none).expect("lives");
    assert_eq!(told.assignment, Some(Assignment::new()));
    assert!(bench.group.regexes.is_empty(), "nobody subscribes to it any more");
}

#[test]
fn a_full_group_takes_no_more_and_votes_decide_the_assignor() {
    let mut bench = Bench::new(&[("t", 4)]);
    bench.settings.max_size = 2;
    let (mut a, mut b) = (Client::new("a"), Client::new("b"));
    let join = ConsumerHeartbeat { assignor: Some(Arc::from("range")), ..a.join(&["t"]) };
    bench.exchange(&mut a, join).expect("joined");
    bench.join(&mut b, &["t"]);
    assert_eq!(bench.send(Client::new("c").join(&["t"])), Err(GroupError::GroupMaxSizeReached));
    assert_eq!(&*bench.group.describe(&settings()).assignor, "range");
    bench.join(&mut b, &["t"]);
}

#[test]
fn s92_commits_need_the_members_epoch() {
    let mut bench = Bench::new(&[("t", 4)]);
    let mut a = Client::new("a");
    assert_eq!(bench.group.check_commit("", -1, true), Ok(()), "an empty group is anybody's");
    bench.join(&mut a, &["t"]);
    assert_eq!(bench.group.check_commit("", -1, true), Err(GroupError::UnknownMember));
    assert_eq!(bench.group.check_commit("a", 1, true), Ok(()));
    assert_eq!(bench.group.check_commit("a", 0, true), Err(GroupError::StaleMemberEpoch));
    assert_eq!(bench.group.check_commit("a", 1, false), Err(GroupError::UnsupportedVersion));
    assert_eq!(bench.group.check_transactional_commit("", None, -1), Ok(()), "the producer's epoch fences it");
    assert_eq!(bench.group.check_transactional_commit("a", None, 1), Ok(()));
    assert_eq!(bench.group.check_transactional_commit("a", None, 0), Err(GroupError::IllegalGeneration));
    assert_eq!(bench.group.check_transactional_commit("x", None, 1), Err(GroupError::UnknownMember));
    assert_eq!(bench.group.check_fetch("a", 1, false), Ok(()));
    assert_eq!(bench.group.check_fetch("a", 0, false), Err(GroupError::StaleMemberEpoch));
    assert_eq!(bench.group.check_fetch("x", 0, false), Err(GroupError::UnknownMember));
}

#[test]
fn a_hundred_members_settle_in_two_rounds_of_heartbeats() {
    let mut bench = Bench::new(&[("t", 250)]);
    let mut clients: Vec<Client> = (0..100).map(|index| Client::new(&format!("m{index:03}"))).collect();
    for client in &mut clients {
        bench.join(client, &["t"]);
    }
    let mut rounds = 0;
    while bench.group.state() != ConsumerGroupState::Stable {
        rounds += 1;
        for client in &mut clients {
            bench.beat(client).expect("lives");
        }
    }
    assert!(rounds <= 3, "{rounds} rounds");
    let sizes: BTreeSet<usize> = clients.iter().map(|client| partitions(&client.owned)).collect();
    assert_eq!(sizes, BTreeSet::from([2, 3]));
    assert_eq!(parts_of(&bench.replayed()), parts_of(&bench.group));
}

mod classic {
    use super::*;

    /// A consumer's metadata: version 1, topics, no user data, what it owns.
    pub(super) fn subscription(topics: &[&str], owned: &[(&str, &[i32])]) -> Bytes {
        let mut out = vec![0, 1];
        let string = |out: &mut Vec<u8>, text: &str| {
            out.extend(i16::try_from(text.len()).expect("short").to_be_bytes());
            out.extend(text.as_bytes());
        };
        let count = |count: usize| i32::try_from(count).expect("few").to_be_bytes();
        out.extend(count(topics.len()));
        for topic in topics {
            string(&mut out, topic);
        }
        out.extend((-1_i32).to_be_bytes());
        out.extend(count(owned.len()));
        for (topic, partitions) in owned {
            string(&mut out, topic);
            out.extend(count(partitions.len()));
            for partition in *partitions {
                out.extend(partition.to_be_bytes());
            }
        }
        Bytes::from(out)
    }

    pub(super) fn join_request(id: &str, topics: &[&str], owned: &[(&str, &[i32])]) -> Join {
        Join {
            member_id: Arc::from(id),
            generated_id: Arc::from("generated"),
            instance_id: None,
            client_id: Arc::from("client"),
            client_host: Arc::from("/127.0.0.1"),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 20_000,
            protocol_type: Arc::from("consumer"),
            protocols: vec![MemberProtocol { name: Arc::from("range"), metadata: subscription(topics, owned) }],
            require_known_member_id: true,
            can_skip_assignment: true,
        }
    }

    fn join(bench: &mut Bench, request: Join) -> Result<JoinAnswer, GroupError> {
        let env = Env { now: bench.now(), topics: &bench.topics, settings: &bench.settings };
        let (answer, fate) = bench.group.classic_join(env, request, &mut bench.log)?;
        bench.fate = fate;
        Ok(answer)
    }

    fn sync(bench: &mut Bench, id: &str, generation: i32) -> Result<Vec<i32>, GroupError> {
        let env = Env { now: bench.now(), topics: &bench.topics, settings: &bench.settings };
        let request = Sync {
            member_id: Arc::from(id),
            instance_id: None,
            generation,
            protocol_type: Some(Arc::from("consumer")),
            protocol_name: Some(Arc::from("range")),
            assignments: Vec::new(),
        };
        let answer = bench.group.classic_sync(env, &request)?;
        let given = protocol::read_assignment(&answer.assignment).expect("an assignment");
        Ok(given.partitions.into_iter().flat_map(|(_, partitions)| partitions).collect())
    }

    fn heartbeat(bench: &mut Bench, id: &str, generation: i32) -> Result<(), GroupError> {
        let env = Env { now: bench.now(), topics: &bench.topics, settings: &bench.settings };
        bench.group.classic_heartbeat(env, &Heartbeat { member_id: Arc::from(id), instance_id: None, generation })
    }

    #[test]
    fn a_classic_member_joins_syncs_and_hands_over() {
        let mut bench = Bench::new(&[("t", 4)]);
        let mut a = Client::new("a");
        bench.join(&mut a, &["t"]);
        let told = join(&mut bench, join_request("", &["t"], &[])).expect("answered");
        assert_eq!((told.error, &*told.member_id), (Some(GroupError::MemberIdRequired), "generated"));
        let joined = join(&mut bench, join_request("c", &["t"], &[])).expect("joined");
        assert_eq!((joined.generation, &*joined.leader, joined.protocol_name.as_deref()), (2, "", Some("range")));
        assert_eq!(sync(&mut bench, "c", 2), Ok(Vec::new()), "nothing is free yet");
        assert_eq!(heartbeat(&mut bench, "c", 2), Ok(()), "and there is nothing to rejoin for");
        bench.beat(&mut a).expect("told to give up");
        bench.beat(&mut a).expect("gave up");
        assert_eq!(heartbeat(&mut bench, "c", 2), Err(GroupError::RebalanceInProgress), "now there is");
        let joined = join(&mut bench, join_request("c", &["t"], &[])).expect("joined");
        assert_eq!(sync(&mut bench, "c", joined.generation), Ok(vec![2, 3]));
        assert_eq!(bench.group.state(), ConsumerGroupState::Stable);
        // A third one: the classic member has to give one up, and says so by what it owns.
        let mut b = Client::new("b");
        bench.join(&mut b, &["t"]);
        assert_eq!(heartbeat(&mut bench, "c", 2), Err(GroupError::RebalanceInProgress));
        assert_eq!(sync(&mut bench, "c", 2), Err(GroupError::RebalanceInProgress));
        assert_eq!(heartbeat(&mut bench, "c", 1), Err(GroupError::IllegalGeneration));
        let joined = join(&mut bench, join_request("c", &["t"], &[("t", &[2, 3])])).expect("joined");
        let kept = sync(&mut bench, "c", joined.generation).expect("synced");
        assert_eq!(kept.len(), 1, "it keeps one and is to give one up");
        assert_eq!(heartbeat(&mut bench, "c", joined.generation), Err(GroupError::RebalanceInProgress));
        let joined = join(&mut bench, join_request("c", &["t"], &[("t", &kept)])).expect("joined");
        assert_eq!(joined.generation, 3);
        assert_eq!(
            heartbeat(&mut bench, "a", 3),
            Err(GroupError::IllegalGeneration).or(Err(GroupError::UnknownMember))
        );
        assert_eq!(parts_of(&bench.replayed()), parts_of(&bench.group));
    }

    #[test]
    fn a_classic_member_that_does_not_rejoin_or_sync_is_out() {
        let mut bench = Bench::new(&[("t", 4)]);
        bench.settings.downgrade = false;
        let mut a = Client::new("a");
        bench.join(&mut a, &["t"]);
        let joined = join(&mut bench, join_request("c", &["t"], &[])).expect("joined");
        for _ in 0..4 {
            bench.pass(5_000);
            let _ = heartbeat(&mut bench, "c", joined.generation);
            bench.beat(&mut a).expect("lives");
        }
        assert_eq!(heartbeat(&mut bench, "c", joined.generation), Err(GroupError::UnknownMember), "it never synced");
    }

    #[test]
    fn protocols_that_do_not_fit_are_refused() {
        let mut bench = Bench::new(&[("t", 4)]);
        let mut a = Client::new("a");
        bench.join(&mut a, &["t"]);
        let connect = Join { protocol_type: Arc::from("connect"), ..join_request("c", &["t"], &[]) };
        assert_eq!(join(&mut bench, connect).map(|_| ()), Err(GroupError::InconsistentProtocol));
        join(&mut bench, join_request("c", &["t"], &[])).expect("joined");
        let mut other = join_request("d", &["t"], &[]);
        other.protocols[0].name = Arc::from("sticky");
        assert_eq!(join(&mut bench, other).map(|_| ()), Err(GroupError::InconsistentProtocol), "nothing in common");
    }

    #[test]
    fn the_group_goes_down_with_its_last_consumer_member() {
        let mut bench = Bench::new(&[("t", 4)]);
        let mut a = Client::new("a");
        bench.join(&mut a, &["t"]);
        join(&mut bench, join_request("c", &["t"], &[])).expect("joined");
        a.epoch = LEAVE_EPOCH;
        bench.send(a.beat()).expect("left");
        assert_eq!(bench.fate, Fate::Downgrades { rebalance: true });
        let env = Env { now: bench.now(), topics: &bench.topics, settings: &bench.settings };
        let (metadata, protocols) = migrate::downgrade(&Arc::from("g"), &bench.group, env, &mut bench.log);
        assert_eq!((metadata.generation, metadata.protocol_name.as_deref()), (2, Some("range")));
        assert_eq!(protocols.len(), 1);
        assert!(parts_of(&bench.replayed()).values().all(Option::is_none), "nothing of the consumer group is left");
    }

    #[test]
    fn up_and_down_keeps_members_and_what_they_have() {
        let topics = TestTopics::of(&[("t", 2)]);
        let settings = settings();
        let now = Now { elapsed_ms: 0, wall_ms: 0 };
        let env = Env { now, topics: &topics, settings: &settings };
        let classic = GroupSettings {
            initial_rebalance_delay_ms: 0,
            min_session_timeout_ms: 1,
            max_session_timeout_ms: 60_000,
            max_size: 10,
        };
        let mut records = Vec::new();
        let mut group = ConsumerGroup::new(Arc::from("g"));
        group.classic_join(env, join_request("c", &["t"], &[]), &mut records).expect("joined");
        let (metadata, protocols) = migrate::downgrade(&Arc::from("g"), &group, env, &mut records);
        let (down, _) = Group::downgraded(classic, metadata, protocols, now, false);
        let up = migrate::upgrade(&Arc::from("g"), &down, env, &mut records).expect("upgraded");
        assert_eq!(up.epoch(), group.epoch());
        let (before, after) = (group.members().next().expect("one"), up.members().next().expect("one"));
        assert_eq!((&before.id, &before.metadata), (&after.id, &after.metadata));
        assert_eq!(before.current.assigned, after.current.assigned);
        let disabled = ConsumerSettings { upgrade: false, ..settings.clone() };
        let refused = migrate::upgrade(&Arc::from("g"), &down, Env { settings: &disabled, ..env }, &mut records);
        assert_eq!(refused.map(|_| ()), Err(GroupError::GroupIdNotFound));
    }

    #[test]
    fn operators_remove_classic_static_members_by_instance() {
        let mut bench = Bench::new(&[("t", 4)]);
        let mut a = Client::new("a");
        bench.join(&mut a, &["t"]);
        let fixed = Join { instance_id: Some(Arc::from("one")), ..join_request("", &["t"], &[]) };
        let joined = join(&mut bench, fixed).expect("joined at once, it is static");
        assert_eq!(&*joined.member_id, "generated");
        let leaving = vec![
            LeavingMember { member_id: Arc::from(""), instance_id: Some(Arc::from("one")) },
            LeavingMember { member_id: Arc::from("a"), instance_id: None },
        ];
        let env = Env { now: bench.now(), topics: &bench.topics, settings: &bench.settings };
        let (answers, _) = bench.group.classic_leave(env, leaving, &mut bench.log);
        let errors: Vec<_> = answers.into_iter().map(|answer| answer.error).collect();
        assert_eq!(
            errors,
            [None, Some(GroupError::UnknownMember)],
            "members of the consumer protocol leave by heartbeat"
        );
    }
}

/// One random thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Join { client: usize, topics: u8, regex: bool, fixed: bool },
    Beat { client: usize, says: bool },
    GiveUp { client: usize },
    LoseAnswer { client: usize },
    Leave { client: usize, for_a_while: bool },
    Forget { client: usize },
    Topic { topic: u8, partitions: i32 },
    DeleteTopic { topic: u8 },
    Pass { ms: i64 },
    Restart,
}

const CLIENTS: usize = 4;

fn any_step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    prop_oneof![
        4 => (client.clone(), 1..8_u8, any::<bool>(), any::<bool>())
            .prop_map(|(client, topics, regex, fixed)| Step::Join { client, topics, regex, fixed }),
        10 => (client.clone(), any::<bool>()).prop_map(|(client, says)| Step::Beat { client, says }),
        6 => client.clone().prop_map(|client| Step::GiveUp { client }),
        2 => client.clone().prop_map(|client| Step::LoseAnswer { client }),
        2 => (client.clone(), any::<bool>()).prop_map(|(client, for_a_while)| Step::Leave { client, for_a_while }),
        1 => client.prop_map(|client| Step::Forget { client }),
        2 => (0..3_u8, 1..6_i32).prop_map(|(topic, partitions)| Step::Topic { topic, partitions }),
        1 => (0..3_u8).prop_map(|topic| Step::DeleteTopic { topic }),
        3 => prop_oneof![0..5_000_i64, 9_000..12_000_i64, 44_000..62_000_i64].prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Restart),
    ]
}

/// Clients that behave: a client owns what it was told, until it is told less and gives up, or is fenced.
struct World {
    bench: Bench,
    clients: Vec<Client>,
    /// What each was told to own, and has not followed yet.
    told: Vec<Option<Assignment>>,
    incarnations: usize,
}

impl World {
    fn new() -> Self {
        let clients = (0..CLIENTS).map(|index| Client::new(&format!("m{index}"))).collect();
        Self { bench: Bench::new(&[("t0", 3), ("t1", 2)]), clients, told: vec![None; CLIENTS], incarnations: 0 }
    }

    fn send(&mut self, client: usize, request: ConsumerHeartbeat, answer_arrives: bool) {
        match self.bench.send(request) {
            Ok(answer) if answer_arrives => {
                self.clients[client].epoch = answer.epoch;
                if let Some(assignment) = answer.assignment {
                    self.told[client] = Some(assignment);
                    // What is new may be read at once; what is taken is read until it is given up.
                    self.take_new(client);
                }
            }
            Ok(_) => {}
            // Told that it is none of the group, a client drops everything.
            Err(_) => self.drop_all(client),
        }
    }

    fn take_new(&mut self, client: usize) {
        let Some(told) = &self.told[client] else { return };
        for (topic, partitions) in told {
            self.clients[client].owned.entry(*topic).or_default().extend(partitions);
        }
    }

    fn drop_all(&mut self, client: usize) {
        self.clients[client].owned.clear();
        self.clients[client].epoch = 0;
        self.told[client] = None;
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Join { client, topics, regex, fixed } => {
                self.drop_all(client);
                if fixed && self.clients[client].instance.is_none() && !self.is_in(client) {
                    self.clients[client].instance = Some(format!("i{client}"));
                }
                let names: Vec<String> =
                    (0..3).filter(|bit| topics & (1 << bit) != 0).map(|bit| format!("t{bit}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let mut request = self.clients[client].join(&names);
                if regex {
                    request.regex = Some(Arc::from("t[01]"));
                    request.topics = Some(BTreeSet::new());
                } else {
                    request.regex = Some(Arc::from(""));
                }
                self.send(client, request, true);
            }
            Step::Beat { client, says } if self.clients[client].epoch > 0 => {
                let request = self.clients[client].beat();
                let owned = says.then(|| self.clients[client].owned.clone());
                self.send(client, ConsumerHeartbeat { owned, ..request }, true);
            }
            Step::GiveUp { client } if self.clients[client].epoch > 0 => {
                if let Some(told) = self.told[client].take() {
                    self.clients[client].owned = told;
                }
                let request = ConsumerHeartbeat {
                    owned: Some(self.clients[client].owned.clone()),
                    ..self.clients[client].beat()
                };
                self.send(client, request, true);
            }
            Step::LoseAnswer { client } if self.clients[client].epoch > 0 => {
                let request = ConsumerHeartbeat {
                    owned: Some(self.clients[client].owned.clone()),
                    ..self.clients[client].beat()
                };
                self.send(client, request, false);
            }
            Step::Leave { client, for_a_while } if self.clients[client].epoch > 0 => {
                let is_static = self.clients[client].instance.is_some();
                let epoch = if for_a_while && is_static { STATIC_LEAVE_EPOCH } else { LEAVE_EPOCH };
                let request = ConsumerHeartbeat { epoch, ..self.clients[client].beat() };
                self.drop_all(client);
                let _ = self.bench.send(request);
                if is_static {
                    self.incarnations += 1;
                    self.clients[client].id = format!("m{client}-{}", self.incarnations);
                }
            }
            // The process dies; nobody is told.
            Step::Forget { client } => {
                self.drop_all(client);
                self.incarnations += 1;
                self.clients[client].id = format!("m{client}-{}", self.incarnations);
            }
            Step::Topic { topic, partitions } => {
                let name = format!("t{topic}");
                let before = TopicCatalogExt::count(&self.bench.topics, &name);
                self.bench.topics.set(&name, partitions.max(before));
            }
            Step::DeleteTopic { topic } => self.bench.topics.remove(&format!("t{topic}")),
            Step::Pass { ms } => self.bench.pass(ms),
            Step::Restart => {
                let mut group = self.bench.replayed();
                assert_eq!(parts_of(&group), parts_of(&self.bench.group));
                assert_eq!(group.owners, self.bench.group.owners);
                group.start_timers(self.bench.now(), &self.bench.settings);
                self.bench.group = group;
            }
            Step::Beat { .. } | Step::GiveUp { .. } | Step::LoseAnswer { .. } | Step::Leave { .. } => {}
        }
        self.check();
    }

    fn is_in(&self, client: usize) -> bool {
        self.bench.group.members.contains_key(&*self.clients[client].id)
    }

    /// No partition is owned by two members that both have the epoch the group knows them by.
    fn check(&self) {
        let mut owners: BTreeMap<(Uuid, i32), usize> = BTreeMap::new();
        for (index, client) in self.clients.iter().enumerate() {
            let current = self.bench.group.members.get(&*client.id).map(|member| &member.current);
            let is_current =
                current.is_some_and(|current| client.epoch == current.epoch || client.epoch == current.previous_epoch);
            if !is_current || client.epoch == 0 {
                continue;
            }
            for (topic, partitions) in &client.owned {
                for partition in partitions {
                    let other = owners.insert((*topic, *partition), index);
                    assert_eq!(other, None, "{partition} of {topic} is owned twice");
                }
            }
        }
    }

    /// Everybody who lives follows what it is told; then all that is subscribed is owned, each partition once.
    fn settle(&mut self) {
        self.bench.pass(100_000);
        for client in 0..CLIENTS {
            self.take(Step::Join { client, topics: 7, regex: false, fixed: false });
        }
        for _ in 0..8 {
            for client in 0..CLIENTS {
                self.take(Step::GiveUp { client });
            }
        }
        assert_eq!(self.bench.group.state(), ConsumerGroupState::Stable);
        let targets: usize = self.bench.group.targets.values().map(|target| partitions(target)).sum();
        let owned: usize = self.clients.iter().map(|client| partitions(&client.owned)).sum();
        let there: usize =
            (0..3).map(|topic| usize::try_from(self.bench.topics.count(&format!("t{topic}"))).expect("few")).sum();
        assert_eq!((targets, owned), (there, there));
    }
}

trait TopicCatalogExt {
    fn count(&self, name: &str) -> i32;
}

impl TopicCatalogExt for TestTopics {
    fn count(&self, name: &str) -> i32 {
        assignment::TopicCatalog::by_name(self, name).map_or(0, |facts| facts.partitions)
    }
}

use super::assignment::TopicCatalog;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_partition_has_two_owners_and_everything_settles(steps in prop::collection::vec(any_step(), 0..80)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.settle();
        prop_assert_eq!(parts_of(&world.bench.replayed()), parts_of(&world.bench.group));
    }
}
