//! `uniform` for members that subscribe to different topics.
//!
//! Members keep what they had and still subscribe to. Free partitions go, topics with the fewest subscribers per partition
//! first, to the subscriber with the fewest partitions. Then partitions move from members with many to members with few,
//! until no member could take one from a member that has two or more than it: each move makes the sum of squares smaller, so
//! this ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::GroupSpec;
use crate::coordinator::group::consumer::assignment::Assignment;

pub(super) fn assign(group: &GroupSpec) -> BTreeMap<Arc<str>, Assignment> {
    let subscribers = group.subscribers();
    let mut topics: Vec<(Uuid, &Vec<usize>)> = subscribers.iter().map(|(topic, members)| (*topic, members)).collect();
    // Partitions per subscriber, most first, compared as fractions.
    topics.sort_by(|(a, of_a), (b, of_b)| {
        let weight = |topic: Uuid, others: &[usize]| i64::from(group.partitions(topic)) * count(others.len());
        weight(*b, of_a).cmp(&weight(*a, of_b)).then(a.cmp(b))
    });
    let mut owners: BTreeMap<Uuid, Vec<Option<usize>>> = BTreeMap::new();
    let mut load: Vec<usize> = vec![0; group.members.len()];
    for (topic, members) in &topics {
        let mut of_topic = vec![None; usize::try_from(group.partitions(*topic)).unwrap_or(0)];
        for &member in *members {
            for partition in group.members[member].previous.get(topic).into_iter().flatten() {
                let slot = usize::try_from(*partition).ok().and_then(|index| of_topic.get_mut(index));
                if let Some(slot @ None) = slot {
                    *slot = Some(member);
                    load[member] += 1;
                }
            }
        }
        owners.insert(*topic, of_topic);
    }
    for (topic, members) in &topics {
        let mut by_load: BTreeSet<(usize, usize)> = members.iter().map(|member| (load[*member], *member)).collect();
        for slot in owners.get_mut(topic).into_iter().flatten().filter(|slot| slot.is_none()) {
            let Some((least, member)) = by_load.pop_first() else { break };
            *slot = Some(member);
            load[member] += 1;
            by_load.insert((least + 1, member));
        }
    }
    loop {
        let moved = topics
            .iter()
            .map(|(topic, members)| owners.get_mut(topic).map_or(0, |of_topic| balance(of_topic, members, &mut load)));
        if moved.sum::<usize>() == 0 {
            break;
        }
    }
    let mut targets: Vec<Assignment> = vec![Assignment::new(); group.members.len()];
    for (topic, of_topic) in owners {
        for (partition, owner) in (0..).zip(of_topic) {
            if let Some(owner) = owner {
                targets[owner].entry(topic).or_default().insert(partition);
            }
        }
    }
    group.members.iter().map(|member| member.id.clone()).zip(targets).collect()
}

/// Evens out the loads of the subscribers of one topic as far as its partitions allow. Answers how many moved.
fn balance(owners: &mut [Option<usize>], members: &[usize], load: &mut [usize]) -> usize {
    let mut held: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (partition, owner) in owners.iter().enumerate() {
        if let Some(owner) = owner {
            held.entry(*owner).or_default().push(partition);
        }
    }
    let mut takers: BTreeSet<(usize, usize)> = members.iter().map(|member| (load[*member], *member)).collect();
    let mut givers: BTreeSet<(usize, usize)> = held.keys().map(|member| (load[*member], *member)).collect();
    let mut moved = 0;
    while let (Some(&(most, from)), Some(&(least, to))) = (givers.last(), takers.first()) {
        if most < least + 2 {
            break;
        }
        let Some(partition) = held.get_mut(&from).and_then(Vec::pop) else {
            givers.remove(&(most, from));
            continue;
        };
        owners[partition] = Some(to);
        held.entry(to).or_default().push(partition);
        moved += 1;
        for (member, before, after) in [(from, most, most - 1), (to, least, least + 1)] {
            load[member] = after;
            takers.remove(&(before, member));
            takers.insert((after, member));
            givers.remove(&(before, member));
            if held.get(&member).is_some_and(|held| !held.is_empty()) {
                givers.insert((after, member));
            }
        }
    }
    moved
}

fn count(members: usize) -> i64 {
    i64::try_from(members).unwrap_or(i64::MAX)
}
