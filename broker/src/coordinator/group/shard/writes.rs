//! The writes of a KIP-848 group that are not durable yet, and who waits for them.
//!
//! The group's state runs ahead of its log: a change is made in memory, then written. Nobody may hear of a state that a crash
//! could take back, so every answer waits for all writes before it, also an answer that itself wrote nothing.
//!
//! A write that fails is not taken back. Its keys are remembered, everybody is told to come again, and once nothing is in
//! flight the present values of those keys are written: the log catches up with the state.

use std::collections::{BTreeSet, VecDeque};

use crate::coordinator::group::records::RecordKey;

/// Told whether what it waits for is durable.
pub(super) type Waiting = Box<dyn FnOnce(bool) + Send>;

/// Pause before lost keys are written again, in milliseconds.
const REPAIR_INTERVAL_MS: i64 = 1_000;

/// See the module.
#[derive(Default)]
pub(super) struct Writes {
    begun: u64,
    ended: u64,
    waiting: VecDeque<(u64, Waiting)>,
    lost: BTreeSet<RecordKey>,
    /// When lost keys may be written again, in elapsed time.
    repair_at: Option<i64>,
}

impl Writes {
    /// A write goes out.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
    }

    /// Whether a write is on its way.
    pub(super) fn in_flight(&self) -> bool {
        self.ended < self.begun
    }

    /// Whether the log lacks what the state has.
    pub(super) fn is_behind(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Calls `waiting` once everything written so far is durable or lost; at once when nothing is in flight.
    pub(super) fn when_durable(&mut self, waiting: Waiting) {
        if self.in_flight() {
            self.waiting.push_back((self.begun, waiting));
        } else {
            waiting(!self.is_behind());
        }
    }

    /// The oldest write on its way has ended. Answers who does not wait any more.
    pub(super) fn end(
        &mut self,
        now_ms: i64,
        durable: bool,
        keys: impl IntoIterator<Item = RecordKey>,
    ) -> Vec<Waiting> {
        self.ended += 1;
        if !durable {
            self.lost.extend(keys);
            self.repair_at = Some(now_ms + REPAIR_INTERVAL_MS);
        }
        let mut done = Vec::new();
        while self.waiting.front().is_some_and(|(needs, _)| *needs <= self.ended) {
            done.extend(self.waiting.pop_front().map(|(_, waiting)| waiting));
        }
        done
    }

    /// When lost keys are to be written again, in elapsed time.
    pub(super) fn repair_at(&self) -> Option<i64> {
        self.repair_at.filter(|_| !self.in_flight())
    }

    /// Takes the lost keys out, to be written again, if it is time.
    pub(super) fn take_lost(&mut self, now_ms: i64) -> BTreeSet<RecordKey> {
        if self.repair_at().is_none_or(|at| at > now_ms) {
            return BTreeSet::new();
        }
        self.repair_at = None;
        std::mem::take(&mut self.lost)
    }
}
