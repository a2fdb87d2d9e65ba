//! The timers of a group's members.

use std::collections::{BTreeMap, BTreeSet};

use crate::coordinator::group::member::MemberId;

/// What a member is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKind {
    /// A sign of life.
    Session,
    /// Giving up partitions.
    Rebalance,
    /// A classic member's JoinGroup after it was told to rejoin.
    Join,
    /// A classic member's SyncGroup after its JoinGroup.
    Sync,
}

/// All of them, by time and by member.
#[derive(Debug, Clone, Default)]
pub(super) struct Timers {
    by_key: BTreeMap<(MemberId, TimerKind), i64>,
    by_time: BTreeSet<(i64, MemberId, TimerKind)>,
}

impl Timers {
    pub(super) fn set(&mut self, member: &MemberId, kind: TimerKind, at: i64) {
        if let Some(before) = self.by_key.insert((member.clone(), kind), at) {
            self.by_time.remove(&(before, member.clone(), kind));
        }
        self.by_time.insert((at, member.clone(), kind));
    }

    pub(super) fn set_if_absent(&mut self, member: &MemberId, kind: TimerKind, at: i64) {
        if !self.by_key.contains_key(&(member.clone(), kind)) {
            self.set(member, kind, at);
        }
    }

    pub(super) fn cancel(&mut self, member: &MemberId, kind: TimerKind) {
        if let Some(at) = self.by_key.remove(&(member.clone(), kind)) {
            self.by_time.remove(&(at, member.clone(), kind));
        }
    }

    pub(super) fn cancel_all(&mut self, member: &MemberId) {
        for kind in [TimerKind::Session, TimerKind::Rebalance, TimerKind::Join, TimerKind::Sync] {
            self.cancel(member, kind);
        }
    }

    /// When the first is due.
    pub(super) fn next(&self) -> Option<i64> {
        self.by_time.first().map(|(at, ..)| *at)
    }

    /// Takes those that are due out, and answers whose they are.
    pub(super) fn take_due(&mut self, now_ms: i64) -> Vec<(MemberId, TimerKind)> {
        let mut due = Vec::new();
        while self.by_time.first().is_some_and(|(at, ..)| *at <= now_ms) {
            if let Some((_, member, kind)) = self.by_time.pop_first() {
                self.by_key.remove(&(member.clone(), kind));
                due.push((member, kind));
            }
        }
        due
    }
}
