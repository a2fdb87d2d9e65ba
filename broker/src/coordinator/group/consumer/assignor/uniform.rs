//! `uniform` for members that all subscribe to the same topics.
//!
//! Each member's share is `partitions / members`, the first ones' one more; a member keeps what it had up to its share, and
//! what is free fills those below theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::GroupSpec;
use crate::coordinator::group::consumer::assignment::Assignment;

pub(super) fn assign(group: &GroupSpec) -> BTreeMap<Arc<str>, Assignment> {
    let Some(first) = group.members.first() else { return BTreeMap::new() };
    let topics = &first.topics;
    let total: usize = topics.iter().map(|topic| usize::try_from(group.partitions(*topic)).unwrap_or(0)).sum();
    let share = total / group.members.len();
    let mut extra = total % group.members.len();
    let mut taken: BTreeSet<(Uuid, i32)> = BTreeSet::new();
    let mut targets: Vec<Assignment> = Vec::with_capacity(group.members.len());
    let mut missing: Vec<usize> = Vec::with_capacity(group.members.len());
    // Members that had more than the plain share are offered the extra ones first, so that nothing moves which need not.
    let had: Vec<usize> = group
        .members
        .iter()
        .map(|member| {
            let of_topic = |(topic, partitions): (&Uuid, &BTreeSet<i32>)| {
                if topics.contains(topic) { partitions.range(0..group.partitions(*topic)).count() } else { 0 }
            };
            member.previous.iter().map(of_topic).sum()
        })
        .collect();
    let mut quota: Vec<usize> = vec![share; group.members.len()];
    for (member, had) in had.iter().enumerate() {
        if *had > share && extra > 0 {
            quota[member] += 1;
            extra -= 1;
        }
    }
    for quota in &mut quota {
        if extra > 0 && *quota == share {
            *quota += 1;
            extra -= 1;
        }
    }
    for (member, quota) in group.members.iter().zip(&quota) {
        let mut target = Assignment::new();
        let mut room = *quota;
        for (topic, partitions) in &*member.previous {
            if !topics.contains(topic) {
                continue;
            }
            for partition in partitions.range(0..group.partitions(*topic)) {
                if room > 0 && taken.insert((*topic, *partition)) {
                    room -= 1;
                    target.entry(*topic).or_default().insert(*partition);
                }
            }
        }
        targets.push(target);
        missing.push(room);
    }
    let all = topics.iter().flat_map(|topic| (0..group.partitions(*topic)).map(move |partition| (*topic, partition)));
    let mut free = all.filter(|partition| !taken.contains(partition));
    for (target, missing) in targets.iter_mut().zip(missing) {
        for (topic, partition) in free.by_ref().take(missing) {
            target.entry(topic).or_default().insert(partition);
        }
    }
    debug_assert!(free.next().is_none(), "the shares add up to all partitions");
    group.members.iter().map(|member| member.id.clone()).zip(targets).collect()
}
