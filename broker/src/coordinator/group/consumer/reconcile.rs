//! One member's way from what it has to what it shall have (Kafka's `CurrentAssignmentBuilder`).
//!
//! ```text
//!              takes from it                          gave up
//!   Stable -------------------> UnrevokedPartitions -----------> Stable, or
//!     |                                                          UnreleasedPartitions --- others gave up --> Stable
//!     +--- gives what others still own --------------------------^
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::assignment::{Assignment, intersects};
use super::event::Env;
use super::timers::TimerKind;
use super::{ConsumerGroup, ConsumerMember};
use crate::coordinator::group::member::MemberId;
use crate::coordinator::group::records::Record;
use crate::coordinator::group::records::consumer::{ConsumerKey, ConsumerValue, CurrentAssignment, MemberState};

impl ConsumerGroup {
    /// Moves a member as far toward its target as others and `owned`, what it says it owns, allow.
    pub(super) fn reconcile(
        &mut self,
        env: Env<'_>,
        id: &MemberId,
        subscription_changed: bool,
        owned: Option<&Assignment>,
        records: &mut Vec<Record>,
    ) {
        let member = &self.members[id];
        if !subscription_changed && member.is_reconciled_to(self.target_epoch) {
            return;
        }
        let next = self.next_assignment(env, member, subscription_changed, owned);
        let is_classic = member.is_classic();
        if next == member.current {
            return;
        }
        let (state, timeout) = (next.state, member.metadata.rebalance_timeout_ms);
        self.put(ConsumerKey::Current(id.clone()), Some(ConsumerValue::Current(next)), records);
        if is_classic {
            // Its JoinGroup and SyncGroup are waited for instead.
        } else if state == MemberState::UnrevokedPartitions {
            self.timers.set(id, TimerKind::Rebalance, env.in_ms(timeout));
        } else {
            self.timers.cancel(id, TimerKind::Rebalance);
        }
    }

    fn next_assignment(
        &self,
        env: Env<'_>,
        member: &ConsumerMember,
        subscription_changed: bool,
        owned: Option<&Assignment>,
    ) -> CurrentAssignment {
        let current = &member.current;
        match current.state {
            MemberState::Stable if current.epoch != self.target_epoch => self.toward_target(env, member, owned),
            MemberState::Stable if subscription_changed => self.without_unsubscribed(env, member, owned),
            MemberState::Stable => current.clone(),
            MemberState::UnrevokedPartitions if owns_any(owned, &current.pending_revocation) => {
                if subscription_changed { self.without_unsubscribed(env, member, owned) } else { current.clone() }
            }
            MemberState::UnrevokedPartitions | MemberState::UnreleasedPartitions | MemberState::Unknown => {
                self.toward_target(env, member, owned)
            }
        }
    }

    /// Takes from the member what it does not subscribe to any more. Its epoch stays.
    fn without_unsubscribed(
        &self,
        env: Env<'_>,
        member: &ConsumerMember,
        owned: Option<&Assignment>,
    ) -> CurrentAssignment {
        let subscribed = self.subscribed_ids(member, env.topics);
        let mut next = member.current.clone();
        let gone: Vec<Uuid> = next.assigned.keys().filter(|topic| !subscribed.contains(topic)).copied().collect();
        if gone.is_empty() {
            return next;
        }
        let mut pending = next.pending_revocation.clone();
        for topic in gone {
            let partitions = next.assigned.remove(&topic).unwrap_or_default();
            pending.entry(topic).or_default().extend(partitions);
        }
        next.previous_epoch = next.epoch;
        if owns_any(owned, &pending) {
            next.state = MemberState::UnrevokedPartitions;
            next.pending_revocation = pending;
        }
        next
    }

    fn toward_target(&self, env: Env<'_>, member: &ConsumerMember, owned: Option<&Assignment>) -> CurrentAssignment {
        let subscribed = self.subscribed_ids(member, env.topics);
        let target: Arc<Assignment> = self.targets.get(&member.id).cloned().unwrap_or_default();
        let current = &member.current;
        let nothing = BTreeSet::new();
        let (mut kept, mut revoked, mut free) = (Assignment::new(), Assignment::new(), Assignment::new());
        let mut waits = false;
        let topics: BTreeSet<Uuid> = target.keys().chain(current.assigned.keys()).copied().collect();
        for topic in topics {
            let wanted = target.get(&topic).filter(|_| subscribed.contains(&topic)).unwrap_or(&nothing);
            let has = current.assigned.get(&topic).unwrap_or(&nothing);
            put_if_any(&mut kept, topic, has.intersection(wanted).copied().collect());
            put_if_any(&mut revoked, topic, has.difference(wanted).copied().collect());
            let missing = wanted.difference(has).copied();
            let (available, taken): (BTreeSet<i32>, BTreeSet<i32>) =
                missing.partition(|partition| match self.owners.get(&(topic, *partition)) {
                    None => true,
                    // The member's own, pending revocation: only one can own it, so it may have it back.
                    Some(owner) => *owner == member.id,
                });
            waits |= !taken.is_empty();
            put_if_any(&mut free, topic, available);
        }
        if owns_any(owned, &revoked) && !revoked.is_empty() {
            return CurrentAssignment {
                epoch: current.epoch,
                previous_epoch: current.epoch,
                state: MemberState::UnrevokedPartitions,
                assigned: kept,
                pending_revocation: revoked,
            };
        }
        for (topic, partitions) in free {
            kept.entry(topic).or_default().extend(partitions);
        }
        CurrentAssignment {
            epoch: self.target_epoch,
            previous_epoch: current.epoch,
            state: if waits { MemberState::UnreleasedPartitions } else { MemberState::Stable },
            assigned: kept,
            pending_revocation: Assignment::new(),
        }
    }

    /// Whether a classic member that waits for partitions still has to wait.
    pub(super) fn waits_for_others(&self, member: &ConsumerMember) -> bool {
        let Some(target) = self.targets.get(&member.id) else { return false };
        member.current.state == MemberState::UnreleasedPartitions
            && target.iter().any(|(topic, partitions)| {
                let has = member.current.assigned.get(topic);
                partitions.iter().any(|partition| {
                    !has.is_some_and(|has| has.contains(partition))
                        && self.owners.get(&(*topic, *partition)).is_some_and(|owner| *owner != member.id)
                })
            })
    }
}

/// Whether the member may still own one of `partitions`. It may when it did not say what it owns.
fn owns_any(owned: Option<&Assignment>, partitions: &Assignment) -> bool {
    owned.is_none_or(|owned| intersects(owned, partitions))
}

fn put_if_any(assignment: &mut Assignment, topic: Uuid, partitions: BTreeSet<i32>) {
    if !partitions.is_empty() {
        assignment.insert(topic, partitions);
    }
}
