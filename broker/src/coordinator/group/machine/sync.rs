//! The leader's assignment: brought, made durable, given out (S-80).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Group, GroupState};
use crate::coordinator::group::event::{Effect, GroupError, JoinAnswer, Now, PersistToken, Sync, SyncAnswer, WaiterId};
use crate::coordinator::group::member::MemberId;

impl Group {
    pub(super) fn sync(&mut self, now: Now, waiter: WaiterId, request: Sync, effects: &mut Vec<Effect>) {
        let id = match self.check_sync(&request) {
            Ok(id) => id,
            Err(error) => {
                effects.push(Effect::AnswerSync(waiter, SyncAnswer::refused(error)));
                return;
            }
        };
        self.pending_sync.remove(&id);
        if self.state == GroupState::Stable {
            self.renew_session(now, &id);
            let assignment = self.members.get(&id).map(|member| member.assignment.clone()).unwrap_or_default();
            effects.push(Effect::AnswerSync(waiter, self.current_assignment(assignment)));
            return;
        }
        let member = self.members.get_mut(&id).expect("check_sync found the member");
        if let Some(superseded) = member.awaiting_sync.replace(waiter) {
            effects.push(Effect::AnswerSync(superseded, SyncAnswer::refused(GroupError::RebalanceInProgress)));
        }
        if self.is_leader(&id) && self.assignment_in_flight.is_none() {
            let mut given: BTreeMap<Arc<str>, Bytes> = request.assignments.into_iter().collect();
            for (id, member) in &mut self.members {
                member.assignment = given.remove(id).unwrap_or_default();
            }
            self.assignment_in_flight = Some(self.generation);
            effects.push(Effect::Persist(PersistToken::Assignment { generation: self.generation }));
        }
    }

    fn check_sync(&self, request: &Sync) -> Result<MemberId, GroupError> {
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        let id = self.check_member(&request.member_id, request.instance_id.as_ref())?;
        if request.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let differs = |given: &Option<Arc<str>>, own: &Option<Arc<str>>| given.is_some() && given != own;
        if differs(&request.protocol_type, &self.protocol_type) || differs(&request.protocol_name, &self.protocol_name)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        match self.state {
            GroupState::Empty | GroupState::Dead => Err(GroupError::UnknownMember),
            GroupState::PreparingRebalance => Err(GroupError::RebalanceInProgress),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(id),
        }
    }

    pub(super) fn persisted(&mut self, now: Now, token: PersistToken, durable: bool, effects: &mut Vec<Effect>) {
        match token {
            PersistToken::Empty => {}
            PersistToken::StaticMember { waiter } => {
                let Some(index) = self.static_joins.iter().position(|(waiting, ..)| *waiting == waiter) else { return };
                let (_, id, answer) = self.static_joins.swap_remove(index);
                let answer =
                    if durable { answer } else { JoinAnswer::refused(&id, GroupError::CoordinatorNotAvailable) };
                effects.push(Effect::AnswerJoin(waiter, answer));
            }
            PersistToken::Assignment { generation } => {
                if self.assignment_in_flight != Some(generation) {
                    // Another rebalance began while the assignment was being written; its members were told so.
                    return;
                }
                self.assignment_in_flight = None;
                if durable {
                    self.give_out_assignments(now, effects);
                } else {
                    self.forget_assignments(GroupError::CoordinatorNotAvailable, now, effects);
                    self.prepare_rebalance(now, effects);
                }
            }
        }
    }

    fn give_out_assignments(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.state = GroupState::Stable;
        self.state_since_wall_ms = Some(now.wall_ms);
        let answers: Vec<(MemberId, SyncAnswer)> = self
            .members
            .values()
            .filter(|member| member.awaiting_sync.is_some())
            .map(|member| (member.id.clone(), self.current_assignment(member.assignment.clone())))
            .collect();
        for (id, answer) in answers {
            self.answer_sync(now, &id, answer, effects);
        }
    }

    /// Drops the assignments of a generation that will not become stable, and tells who waits for them.
    pub(super) fn forget_assignments(&mut self, error: GroupError, now: Now, effects: &mut Vec<Effect>) {
        let ids: Vec<MemberId> = self.members.keys().cloned().collect();
        for id in ids {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = Bytes::new();
            }
            self.answer_sync(now, &id, SyncAnswer::refused(error), effects);
        }
    }

    /// Answers a parked sync; the session that it stood for runs again from now.
    fn answer_sync(&mut self, now: Now, id: &MemberId, answer: SyncAnswer, effects: &mut Vec<Effect>) {
        let Some(member) = self.members.get_mut(id) else { return };
        if let Some(waiter) = member.awaiting_sync.take() {
            member.session_deadline = Some(now.elapsed_ms + member.session_timeout_ms);
            effects.push(Effect::AnswerSync(waiter, answer));
        }
    }
}
