use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::coordinator::group::consumer::assignment::partition_count;

fn topic(number: u64) -> Uuid {
    Uuid::from_u64_pair(1, number)
}

fn assignment(of: &[(u64, &[i32])]) -> Assignment {
    of.iter().map(|(number, partitions)| (topic(*number), partitions.iter().copied().collect())).collect()
}

fn member(id: &str, topics: &[u64], previous: Assignment) -> MemberSpec {
    let topics = Arc::new(topics.iter().map(|number| topic(*number)).collect());
    MemberSpec { id: Arc::from(id), instance_id: None, topics, previous: Arc::new(previous) }
}

fn group(members: Vec<MemberSpec>, counts: &[i32]) -> GroupSpec {
    GroupSpec::new(members, (0..).zip(counts).map(|(number, count)| (topic(number), *count)).collect())
}

fn of<'a>(targets: &'a BTreeMap<Arc<str>, Assignment>, id: &str) -> &'a Assignment {
    &targets[id]
}

#[test]
fn range_gives_stretches_and_the_first_members_one_more() {
    let members = vec![member("a", &[0, 1], Assignment::new()), member("b", &[0, 1], Assignment::new())];
    let targets = Assignor::Range.assign(&group(members, &[3, 3]));
    assert_eq!(*of(&targets, "a"), assignment(&[(0, &[0, 1]), (1, &[0, 1])]), "co-partitioned topics go together");
    assert_eq!(*of(&targets, "b"), assignment(&[(0, &[2]), (1, &[2])]));
}

#[test]
fn range_leaves_members_beyond_the_partitions_without() {
    let members = ["a", "b", "c"].map(|id| member(id, &[0], Assignment::new())).to_vec();
    let targets = Assignor::Range.assign(&group(members, &[2]));
    assert_eq!(*of(&targets, "c"), Assignment::new());
    assert_eq!(partition_count(of(&targets, "a")) + partition_count(of(&targets, "b")), 2);
}

#[test]
fn range_keeps_the_lowest_partitions_of_a_member_that_has_too_many() {
    let members = vec![
        member("a", &[0], assignment(&[(0, &[0, 1, 2, 3])])),
        member("b", &[0], Assignment::new()),
        member("c", &[0], Assignment::new()),
    ];
    let targets = Assignor::Range.assign(&group(members, &[4]));
    assert_eq!(*of(&targets, "a"), assignment(&[(0, &[0, 1])]));
    assert_eq!((of(&targets, "b"), of(&targets, "c")), (&assignment(&[(0, &[2])]), &assignment(&[(0, &[3])])));
}

#[test]
fn range_shares_each_topic_among_its_own_subscribers() {
    let members = vec![
        member("a", &[0], Assignment::new()),
        member("b", &[0, 1], Assignment::new()),
        member("c", &[1], Assignment::new()),
    ];
    let targets = Assignor::Range.assign(&group(members, &[4, 3]));
    assert_eq!(*of(&targets, "a"), assignment(&[(0, &[0, 1])]));
    assert_eq!(*of(&targets, "b"), assignment(&[(0, &[2, 3]), (1, &[0, 1])]));
    assert_eq!(*of(&targets, "c"), assignment(&[(1, &[2])]));
}

#[test]
fn uniform_spreads_all_topics_together() {
    let members = ["a", "b", "c"].map(|id| member(id, &[0, 1], Assignment::new())).to_vec();
    let targets = Assignor::Uniform.assign(&group(members, &[2, 3]));
    let sizes: Vec<usize> = targets.values().map(partition_count).collect();
    assert_eq!(sizes, [2, 2, 1]);
}

#[test]
fn uniform_moves_no_more_than_a_new_member_needs() {
    let members = vec![
        member("a", &[0], assignment(&[(0, &[0, 1, 2])])),
        member("b", &[0], assignment(&[(0, &[3, 4, 5])])),
        member("c", &[0], Assignment::new()),
    ];
    let targets = Assignor::Uniform.assign(&group(members, &[6]));
    assert_eq!(*of(&targets, "a"), assignment(&[(0, &[0, 1])]));
    assert_eq!(*of(&targets, "b"), assignment(&[(0, &[3, 4])]));
    assert_eq!(*of(&targets, "c"), assignment(&[(0, &[2, 5])]));
}

#[test]
fn uniform_leaves_the_extra_partition_where_it_was() {
    let members = vec![member("a", &[0], assignment(&[(0, &[0])])), member("b", &[0], assignment(&[(0, &[1, 2])]))];
    let targets = Assignor::Uniform.assign(&group(members, &[3]));
    assert_eq!((of(&targets, "a"), of(&targets, "b")), (&assignment(&[(0, &[0])]), &assignment(&[(0, &[1, 2])])));
}

#[test]
fn static_members_come_first_by_their_instance_id() {
    let mut members = vec![member("a", &[0], Assignment::new()), member("z", &[0], Assignment::new())];
    members[1].instance_id = Some(Arc::from("i"));
    let targets = Assignor::Range.assign(&group(members, &[1]));
    assert_eq!((partition_count(of(&targets, "a")), partition_count(of(&targets, "z"))), (0, 1));
}

#[test]
fn nobody_or_nothing_to_assign_is_no_trouble() {
    for assignor in Assignor::ALL {
        assert!(assignor.assign(&group(Vec::new(), &[3])).is_empty());
        let targets = assignor.assign(&group(vec![member("a", &[], Assignment::new())], &[3]));
        assert_eq!(*of(&targets, "a"), Assignment::new());
    }
}

fn any_group(same: bool) -> impl Strategy<Value = GroupSpec> {
    let topics = prop::collection::vec(0..12_i32, 1..6);
    topics.prop_flat_map(move |counts| {
        let count = counts.len();
        let one = prop::collection::btree_set(0..count, 0..=count);
        let subscriptions = prop::collection::vec(one, 1..12);
        (Just(counts), subscriptions, any::<u64>()).prop_map(move |(counts, subscriptions, seed)| {
            let first = subscriptions[0].clone();
            let mut members: Vec<MemberSpec> = subscriptions
                .into_iter()
                .enumerate()
                .map(|(index, topics)| {
                    let topics = if same { first.clone() } else { topics };
                    let topics: Vec<u64> =
                        topics.into_iter().map(|number| u64::try_from(number).expect("few")).collect();
                    member(&format!("m{index:02}"), &topics, Assignment::new())
                })
                .collect();
            // Each partition, also of topics nobody subscribes to and beyond the count, had an owner or none.
            let mut random = seed | 1;
            for (number, partitions) in (0..).zip(&counts) {
                for partition in 0..partitions + 2 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let owner = usize::try_from(random % 20).expect("small");
                    if let Some(member) = members.get_mut(owner) {
                        let previous = Arc::make_mut(&mut member.previous);
                        previous.entry(topic(number)).or_default().insert(partition);
                    }
                }
            }
            group(members, &counts)
        })
    })
}

/// Every subscribed partition is with exactly one member that subscribes to it.
fn check_complete(group: &GroupSpec, targets: &BTreeMap<Arc<str>, Assignment>) {
    assert_eq!(targets.len(), group.members.len());
    let mut seen: BTreeSet<(Uuid, i32)> = BTreeSet::new();
    for member in &group.members {
        for (topic, partitions) in &targets[&member.id] {
            assert!(
                !partitions.is_empty() && member.topics.contains(topic),
                "{} got what it did not ask for",
                member.id
            );
            for partition in partitions {
                assert!((0..group.partitions(*topic)).contains(partition) && seen.insert((*topic, *partition)));
            }
        }
    }
    let wanted: usize =
        group.subscribers().keys().map(|topic| usize::try_from(group.partitions(*topic)).expect("not negative")).sum();
    assert_eq!(seen.len(), wanted);
}

/// What a second run with the first one's result would change.
fn again(group: &GroupSpec, targets: &BTreeMap<Arc<str>, Assignment>) -> GroupSpec {
    let mut next = group.clone();
    for member in &mut next.members {
        member.previous = Arc::new(targets[&member.id].clone());
    }
    next
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn every_partition_has_one_subscriber_and_a_second_run_moves_none(
        same in any::<bool>(),
        groups in (any_group(true), any_group(false)),
        range in any::<bool>(),
    ) {
        let group = if same { groups.0 } else { groups.1 };
        let assignor = if range { Assignor::Range } else { Assignor::Uniform };
        let targets = assignor.assign(&group);
        check_complete(&group, &targets);
        prop_assert_eq!(assignor.assign(&again(&group, &targets)), targets);
    }

    #[test]
    fn uniform_is_balanced_for_equal_subscriptions(group in any_group(true)) {
        let sizes: Vec<usize> = Assignor::Uniform.assign(&group).values().map(partition_count).collect();
        prop_assert!(sizes.iter().max().expect("members") - sizes.iter().min().expect("members") <= 1);
    }

    /// Kafka's rule: no member could take a partition from one that has two or more than it.
    #[test]
    fn uniform_is_balanced_for_different_subscriptions(group in any_group(false)) {
        let targets = Assignor::Uniform.assign(&group);
        for rich in &group.members {
            for poor in &group.members {
                let (has, less) = (partition_count(&targets[&rich.id]), partition_count(&targets[&poor.id]));
                let could = targets[&rich.id].keys().any(|topic| poor.topics.contains(topic));
                prop_assert!(!could || has < less + 2, "{} has {has}, {} has {less}", rich.id, poor.id);
            }
        }
    }

    #[test]
    fn range_shares_differ_by_one_at_most(group in any_group(false)) {
        let targets = Assignor::Range.assign(&group);
        for (topic, subscribers) in group.subscribers() {
            let sizes: Vec<usize> = subscribers
                .iter()
                .map(|member| targets[&group.members[*member].id].get(&topic).map_or(0, BTreeSet::len))
                .collect();
            prop_assert!(sizes.iter().max().expect("subscribers") - sizes.iter().min().expect("subscribers") <= 1);
        }
    }
}
