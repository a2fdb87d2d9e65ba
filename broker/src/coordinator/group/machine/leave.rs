//! Members going: by request, by silence, by missing a rebalance.

use super::{Group, GroupState};
use crate::coordinator::group::event::{
    Effect, GroupError, JoinAnswer, LeaveAnswer, LeavingMember, Now, SyncAnswer, WaiterId,
};
use crate::coordinator::group::member::MemberId;

impl Group {
    pub(super) fn leave(&mut self, now: Now, waiter: WaiterId, leaving: Vec<LeavingMember>, effects: &mut Vec<Effect>) {
        let members_before = self.members.len();
        let answers: Vec<LeaveAnswer> = leaving
            .into_iter()
            .map(|member| {
                let error = self.leave_one(&member, effects).err();
                LeaveAnswer { member, error }
            })
            .collect();
        effects.push(Effect::AnswerLeave(waiter, answers));
        if self.members.len() < members_before {
            self.after_removal(now, effects);
        } else {
            // An id that was given out and never used may have been all that a rebalance waited for.
            self.complete_join_if_everyone_is_here(now, effects);
        }
    }

    fn leave_one(&mut self, leaving: &LeavingMember, effects: &mut Vec<Effect>) -> Result<(), GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        let id = match (&leaving.instance_id, leaving.member_id.is_empty()) {
            // An operator removes a static member by its instance id alone.
            (Some(instance), true) => self.static_members.get(instance).cloned().ok_or(GroupError::UnknownMember)?,
            (None, false) if self.pending_members.remove(&leaving.member_id).is_some() => return Ok(()),
            (instance, _) => self.check_member(&leaving.member_id, instance.as_ref())?,
        };
        self.remove_member(&id, GroupError::UnknownMember, effects);
        Ok(())
    }

    /// Takes a member out and answers what it has parked with `error`, so that a client that is still there joins anew.
    pub(super) fn remove_member(&mut self, id: &MemberId, error: GroupError, effects: &mut Vec<Effect>) {
        let Some(member) = self.members.remove(id) else { return };
        if let Some(waiter) = member.awaiting_join {
            effects.push(Effect::AnswerJoin(waiter, JoinAnswer::refused(id, error)));
        }
        if let Some(waiter) = member.awaiting_sync {
            effects.push(Effect::AnswerSync(waiter, SyncAnswer::refused(error)));
        }
        self.pending_sync.remove(id);
        if let Some(instance) = &member.instance_id
            && self.static_members.get(instance) == Some(id)
        {
            self.static_members.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.oldest_member();
        }
    }

    /// Settles the group after members have gone.
    pub(super) fn after_removal(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.state {
            GroupState::Stable | GroupState::CompletingRebalance => self.prepare_rebalance(now, effects),
            GroupState::PreparingRebalance => self.complete_join_if_everyone_is_here(now, effects),
            GroupState::Empty | GroupState::Dead => {}
        }
    }
}
