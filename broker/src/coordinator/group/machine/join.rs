//! Joining, and the join phase of a rebalance (S-75 to S-79, S-82).

use std::sync::Arc;

use bytes::Bytes;

use super::{Group, GroupState, JoinTimer, NEW_MEMBER_JOIN_TIMEOUT_MS};
use crate::coordinator::group::event::{Effect, GroupError, Join, JoinAnswer, Now, PersistToken, SyncAnswer, WaiterId};
use crate::coordinator::group::member::{Member, MemberId, MemberProtocol};

impl Group {
    pub(super) fn join(&mut self, now: Now, waiter: WaiterId, request: Join, effects: &mut Vec<Effect>) {
        if let Err(error) = self.check_join(&request) {
            effects.push(Effect::AnswerJoin(waiter, JoinAnswer::refused(&request.member_id, error)));
            return;
        }
        if !self.has_room(&request.member_id) {
            // A member that cannot stay must not be waited for.
            let known = self.members.get_key_value(&request.member_id).map(|(id, _)| id.clone());
            if let Some(id) = known {
                self.remove_member(&id, GroupError::GroupMaxSizeReached, effects);
                self.after_removal(now, effects);
            }
            effects.push(Effect::AnswerJoin(
                waiter,
                JoinAnswer::refused(&request.member_id, GroupError::GroupMaxSizeReached),
            ));
            return;
        }
        if request.member_id.is_empty() {
            self.join_unknown(now, waiter, request, effects);
        } else {
            self.join_known(now, waiter, request, effects);
        }
        self.complete_join_if_everyone_is_here(now, effects);
    }

    fn check_join(&self, request: &Join) -> Result<(), GroupError> {
        let allowed = self.settings.min_session_timeout_ms..=self.settings.max_session_timeout_ms;
        if !allowed.contains(&request.session_timeout_ms) {
            return Err(GroupError::InvalidSessionTimeout);
        }
        if self.state == GroupState::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        if !self.speaks(&request.protocol_type, &request.protocols) {
            return Err(GroupError::InconsistentProtocol);
        }
        Ok(())
    }

    /// Whether a member with these protocols can be in the group (S-78).
    fn speaks(&self, protocol_type: &str, protocols: &[MemberProtocol]) -> bool {
        if self.members.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let common = self.common_protocols();
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|offered| common.contains(&&*offered.name))
    }

    fn has_room(&self, member_id: &str) -> bool {
        let known = self.members.get(member_id);
        match self.state {
            GroupState::Empty | GroupState::Dead => true,
            GroupState::PreparingRebalance => {
                let joined = self.members.values().filter(|member| member.awaiting_join.is_some()).count();
                known.is_some_and(|member| member.awaiting_join.is_some()) || joined < self.settings.max_size
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                known.is_some() || self.members.len() < self.settings.max_size
            }
        }
    }

    fn join_unknown(&mut self, now: Now, waiter: WaiterId, request: Join, effects: &mut Vec<Effect>) {
        let existing = request.instance_id.as_ref().and_then(|instance| self.static_members.get(instance)).cloned();
        match (existing, &request.instance_id) {
            (Some(old), _) => self.replace_static_member(now, waiter, old, request, effects),
            (None, None) if request.require_known_member_id => {
                let lapses = now.elapsed_ms + request.session_timeout_ms;
                self.pending_members.insert(request.generated_id.clone(), lapses);
                let answer = JoinAnswer::refused(&request.generated_id, GroupError::MemberIdRequired);
                effects.push(Effect::AnswerJoin(waiter, answer));
            }
            (None, _) => {
                let id = request.generated_id.clone();
                self.add_member(now, waiter, id, request, effects);
            }
        }
    }

    fn join_known(&mut self, now: Now, waiter: WaiterId, request: Join, effects: &mut Vec<Effect>) {
        if request.instance_id.is_none()
            && let Some((id, _)) = self.pending_members.remove_entry(&request.member_id)
        {
            self.add_member(now, waiter, id, request, effects);
            return;
        }
        let id = match self.check_member(&request.member_id, request.instance_id.as_ref()) {
            Ok(id) => id,
            Err(error) => {
                effects.push(Effect::AnswerJoin(waiter, JoinAnswer::refused(&request.member_id, error)));
                return;
            }
        };
        let unchanged = self.members.get(&id).is_some_and(|member| member.protocols == request.protocols);
        match self.state {
            GroupState::PreparingRebalance => self.update_member(now, waiter, &id, request, effects),
            GroupState::CompletingRebalance if unchanged => {
                // It may have missed the answer to its first join of this generation.
                effects.push(Effect::AnswerJoin(waiter, self.current_generation(&id)));
            }
            // The leader may know of changes that its metadata does not show, such as new partitions.
            GroupState::Stable if unchanged && !self.is_leader(&id) => {
                effects.push(Effect::AnswerJoin(waiter, self.current_generation(&id)));
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.update_member(now, waiter, &id, request, effects);
            }
            GroupState::Empty | GroupState::Dead => {
                effects.push(Effect::AnswerJoin(waiter, JoinAnswer::refused(&id, GroupError::UnknownMember)));
            }
        }
    }

    fn add_member(&mut self, now: Now, waiter: WaiterId, id: MemberId, request: Join, effects: &mut Vec<Effect>) {
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(id.clone());
        }
        if let Some(instance) = &request.instance_id {
            self.static_members.insert(instance.clone(), id.clone());
        }
        if matches!(self.join_timer, Some(JoinTimer::Initial { .. })) {
            self.new_member_added = true;
        }
        self.arrivals += 1;
        let member = Member {
            id: id.clone(),
            instance_id: request.instance_id,
            client_id: request.client_id,
            client_host: request.client_host,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocols: request.protocols,
            assignment: Bytes::new(),
            awaiting_join: Some(waiter),
            awaiting_sync: None,
            is_new: true,
            session_deadline: Some(now.elapsed_ms + NEW_MEMBER_JOIN_TIMEOUT_MS),
            arrival: self.arrivals,
        };
        self.members.insert(id, member);
        self.prepare_rebalance_unless_preparing(now, effects);
    }

    fn update_member(&mut self, now: Now, waiter: WaiterId, id: &MemberId, request: Join, effects: &mut Vec<Effect>) {
        let member = self.members.get_mut(id).expect("the caller found the member");
        member.protocols = request.protocols;
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
        member.session_timeout_ms = request.session_timeout_ms;
        if let Some(superseded) = member.awaiting_join.replace(waiter) {
            let answer = JoinAnswer::refused(id, GroupError::RebalanceInProgress);
            effects.push(Effect::AnswerJoin(superseded, answer));
        }
        self.prepare_rebalance_unless_preparing(now, effects);
    }

    /// A static member is back without its id: it gets a new one and takes the place of the old one (KIP-345).
    fn replace_static_member(
        &mut self,
        now: Now,
        waiter: WaiterId,
        old_id: MemberId,
        request: Join,
        effects: &mut Vec<Effect>,
    ) {
        let new_id = request.generated_id.clone();
        let previous_leader = self.leader.clone();
        let mut member = self.members.remove(&old_id).expect("every static id names a member");
        if let Some(parked) = member.awaiting_join.take() {
            effects.push(Effect::AnswerJoin(parked, JoinAnswer::refused(&old_id, GroupError::FencedInstanceId)));
        }
        if let Some(parked) = member.awaiting_sync.take() {
            effects.push(Effect::AnswerSync(parked, SyncAnswer::refused(GroupError::FencedInstanceId)));
        }
        self.fence_static_joins(&old_id, effects);
        if self.pending_sync.remove(&old_id) {
            self.pending_sync.insert(new_id.clone());
        }
        if self.is_leader(&old_id) {
            self.leader = Some(new_id.clone());
        }
        if let Some(instance) = &request.instance_id {
            self.static_members.insert(instance.clone(), new_id.clone());
        }
        member.id = new_id.clone();
        member.is_new = false;
        member.client_id = request.client_id;
        member.client_host = request.client_host;
        member.protocols = request.protocols;
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
        member.session_timeout_ms = request.session_timeout_ms;
        member.session_deadline = Some(now.elapsed_ms + request.session_timeout_ms);
        self.members.insert(new_id.clone(), member);

        let keeps_protocol = self.elected_protocol() == self.protocol_name;
        if self.state == GroupState::Stable && keeps_protocol {
            // No rebalance: the new incarnation inherits the assignment, once its id is durable.
            let mut answer = self.current_generation(&new_id);
            if request.can_skip_assignment {
                answer.skip_assignment = self.is_leader(&new_id);
            } else {
                // Old clients would compute an assignment when told they lead; the id of before says they do not.
                answer.leader = previous_leader.unwrap_or_else(|| Arc::from(""));
                answer.members = Vec::new();
            }
            self.static_joins.push((waiter, new_id, answer));
            effects.push(Effect::Persist(PersistToken::StaticMember { waiter }));
            return;
        }
        if let Some(member) = self.members.get_mut(&new_id) {
            member.awaiting_join = Some(waiter);
        }
        // In CompletingRebalance the leader may have been told the old id, and would assign to nobody.
        self.prepare_rebalance_unless_preparing(now, effects);
    }

    /// Answers joins that wait for a static id that has been taken over since.
    fn fence_static_joins(&mut self, old_id: &MemberId, effects: &mut Vec<Effect>) {
        let (fenced, kept) = std::mem::take(&mut self.static_joins).into_iter().partition(|(_, id, _)| id == old_id);
        self.static_joins = kept;
        let fenced: Vec<(WaiterId, MemberId, JoinAnswer)> = fenced;
        for (waiter, id, _) in fenced {
            effects.push(Effect::AnswerJoin(waiter, JoinAnswer::refused(&id, GroupError::FencedInstanceId)));
        }
    }

    pub(super) fn prepare_rebalance_unless_preparing(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.state {
            GroupState::Empty | GroupState::CompletingRebalance | GroupState::Stable => {
                self.prepare_rebalance(now, effects);
            }
            GroupState::PreparingRebalance => self.complete_join_or_wait(now, effects),
            GroupState::Dead => {}
        }
    }

    pub(super) fn prepare_rebalance(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.state == GroupState::CompletingRebalance {
            self.forget_assignments(GroupError::RebalanceInProgress, now, effects);
        }
        self.pending_sync.clear();
        self.sync_deadline = None;
        self.assignment_in_flight = None;
        let was_empty = self.state == GroupState::Empty;
        self.state = GroupState::PreparingRebalance;
        if was_empty {
            let delay = self.settings.initial_rebalance_delay_ms;
            self.new_member_added = false;
            self.join_timer = Some(JoinTimer::Initial {
                at: now.elapsed_ms + delay,
                remaining_ms: (self.rebalance_timeout_ms() - delay).max(0),
            });
            if delay == 0 {
                self.join_timer_due(now, effects);
            }
        } else {
            self.complete_join_or_wait(now, effects);
        }
    }

    fn complete_join_or_wait(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.complete_join_if_everyone_is_here(now, effects);
        if self.state == GroupState::PreparingRebalance && self.join_timer.is_none() {
            self.join_timer = Some(JoinTimer::Rejoin { at: now.elapsed_ms + self.rebalance_timeout_ms() });
        }
    }

    /// The longest of the members' (S-77).
    fn rebalance_timeout_ms(&self) -> i64 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0)
    }

    pub(super) fn complete_join_if_everyone_is_here(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let initial_delay = matches!(self.join_timer, Some(JoinTimer::Initial { .. }));
        let everyone =
            self.pending_members.is_empty() && self.members.values().all(|member| member.awaiting_join.is_some());
        if self.state == GroupState::PreparingRebalance && !initial_delay && everyone {
            self.complete_join(now, effects);
        }
    }

    pub(super) fn join_timer_due(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.join_timer.take() {
            Some(JoinTimer::Initial { remaining_ms, .. }) if self.new_member_added && remaining_ms > 0 => {
                self.new_member_added = false;
                let delay = self.settings.initial_rebalance_delay_ms.min(remaining_ms);
                self.join_timer =
                    Some(JoinTimer::Initial { at: now.elapsed_ms + delay, remaining_ms: remaining_ms - delay });
            }
            Some(JoinTimer::Initial { .. } | JoinTimer::Rejoin { .. }) => self.complete_join(now, effects),
            None => {}
        }
    }

    /// Ends the join phase: who is not here is out, who is here enters the next generation.
    fn complete_join(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.join_timer = None;
        // Static members keep their place until their session ends, that is what they are for (KIP-345).
        let absent: Vec<MemberId> = self
            .members
            .values()
            .filter(|member| member.awaiting_join.is_none() && member.instance_id.is_none())
            .map(|member| member.id.clone())
            .collect();
        for id in absent {
            self.remove_member(&id, GroupError::UnknownMember, effects);
        }
        if self.members.is_empty() {
            self.become_empty(now, effects);
            return;
        }
        if !self.elect_joined_leader() {
            // Only absent static members are left: wait on, until their sessions end or one returns.
            self.join_timer = Some(JoinTimer::Rejoin { at: now.elapsed_ms + self.rebalance_timeout_ms() });
            return;
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol_name = self.elected_protocol();
        self.state = GroupState::CompletingRebalance;
        self.state_since_wall_ms = Some(now.wall_ms);
        self.pending_sync.clear();
        self.sync_deadline = Some(now.elapsed_ms + self.rebalance_timeout_ms());
        let ids: Vec<MemberId> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = self.current_generation(&id);
            let member = self.members.get_mut(&id).expect("the id comes from the members");
            // An absent static member has nothing to sync for, and its session runs on.
            if let Some(waiter) = member.awaiting_join.take() {
                member.is_new = false;
                member.session_deadline = Some(now.elapsed_ms + member.session_timeout_ms);
                self.pending_sync.insert(id);
                effects.push(Effect::AnswerJoin(waiter, answer));
            }
        }
    }

    fn become_empty(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol_name = None;
        self.leader = None;
        self.state = GroupState::Empty;
        self.state_since_wall_ms = Some(now.wall_ms);
        effects.push(Effect::Persist(PersistToken::Empty));
    }

    /// Keeps the leader if it has rejoined, else makes the oldest member that has the leader.
    fn elect_joined_leader(&mut self) -> bool {
        let joined = |member: &&Member| member.awaiting_join.is_some();
        let leads = self.leader.as_ref().and_then(|id| self.members.get(id)).is_some_and(|member| joined(&member));
        if !leads {
            match self.members.values().filter(joined).min_by_key(|member| member.arrival) {
                Some(member) => self.leader = Some(member.id.clone()),
                None => return false,
            }
        }
        true
    }
}
