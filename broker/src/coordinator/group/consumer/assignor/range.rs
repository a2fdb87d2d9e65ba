//! `range`: a stretch of each topic for each member.
//!
//! Every topic is shared out by itself: each subscriber gets `partitions / subscribers` of it, the first ones that have room
//! one more. A member keeps the lowest of what it had, up to its share, and is filled up with the lowest free ones, so that
//! topics with equal counts end up alike at each member and can be joined there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::GroupSpec;
use crate::coordinator::group::consumer::assignment::Assignment;

pub(super) fn assign(group: &GroupSpec) -> BTreeMap<Arc<str>, Assignment> {
    let mut targets: Vec<Assignment> = vec![Assignment::new(); group.members.len()];
    for (topic, subscribers) in group.subscribers() {
        let count = usize::try_from(group.partitions(topic)).unwrap_or(0);
        let (share, mut extra) = (count / subscribers.len(), count % subscribers.len());
        let mut kept: BTreeSet<i32> = BTreeSet::new();
        let mut wanting: Vec<(usize, usize)> = Vec::new();
        for &member in &subscribers {
            let previous = group.members[member].previous.get(&topic);
            // A partition that two members had (a log that was cut) stays with the first.
            let had: Vec<i32> = previous
                .into_iter()
                .flatten()
                .copied()
                .filter(|partition| usize::try_from(*partition).is_ok_and(|index| index < count))
                .filter(|partition| !kept.contains(partition))
                .collect();
            let mut keeps = had.len().min(share);
            if had.len() > share && extra > 0 {
                extra -= 1;
                keeps += 1;
            } else {
                wanting.push((member, share - keeps));
            }
            if keeps > 0 {
                kept.extend(&had[..keeps]);
                targets[member].entry(topic).or_default().extend(&had[..keeps]);
            }
        }
        let mut free = (0..group.partitions(topic)).filter(|partition| !kept.contains(partition));
        for (member, mut missing) in wanting {
            if extra > 0 {
                extra -= 1;
                missing += 1;
            }
            if missing > 0 {
                targets[member].entry(topic).or_default().extend(free.by_ref().take(missing));
            }
        }
        debug_assert!(free.next().is_none(), "every partition has a member");
    }
    group.members.iter().map(|member| member.id.clone()).zip(targets).collect()
}
