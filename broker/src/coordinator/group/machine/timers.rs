//! What is due when time has passed.

use super::{Group, GroupState};
use crate::coordinator::group::event::{Effect, GroupError, Now};
use crate::coordinator::group::member::MemberId;

impl Group {
    pub(super) fn tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.lapse_pending_members(now, effects);
        self.end_silent_sessions(now, effects);
        if self.join_timer.is_some_and(|timer| timer.at() <= now.elapsed_ms) {
            self.join_timer_due(now, effects);
        }
        if self.sync_deadline.is_some_and(|deadline| deadline <= now.elapsed_ms) {
            self.sync_deadline = None;
            self.remove_those_that_did_not_sync(now, effects);
        }
    }

    fn lapse_pending_members(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let before = self.pending_members.len();
        self.pending_members.retain(|_, lapses| *lapses > now.elapsed_ms);
        if self.pending_members.len() < before {
            self.complete_join_if_everyone_is_here(now, effects);
        }
    }

    fn end_silent_sessions(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let due: Vec<MemberId> = self
            .members
            .values()
            .filter(|member| member.session_deadline.is_some_and(|deadline| deadline <= now.elapsed_ms))
            .map(|member| member.id.clone())
            .collect();
        let mut any_went = false;
        for id in due {
            let Some(member) = self.members.get_mut(&id) else { continue };
            let parked = member.awaiting_join.is_some() || member.awaiting_sync.is_some();
            if parked && !member.is_new {
                // The parked request stands for its heartbeats; the answer starts the session again (S-81).
                member.session_deadline = None;
            } else {
                self.remove_member(&id, GroupError::UnknownMember, effects);
                any_went = true;
            }
        }
        if any_went {
            self.after_removal(now, effects);
        }
    }

    /// Members that were told their generation but never asked for their assignment hold partitions nobody reads (S-80).
    fn remove_those_that_did_not_sync(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !matches!(self.state, GroupState::CompletingRebalance | GroupState::Stable) || self.pending_sync.is_empty() {
            return;
        }
        let ids: Vec<MemberId> = self.pending_sync.iter().cloned().collect();
        for id in ids {
            self.remove_member(&id, GroupError::UnknownMember, effects);
        }
        self.prepare_rebalance(now, effects);
    }
}
