//! Classic groups become consumer groups and back, with their members in them.
//!
//! Up: the first member of the consumer protocol joins a classic group of consumers. The classic members keep what the last
//! leader gave them, at an epoch that is the group's generation. Down: the last member of the consumer protocol goes; the
//! classic members keep their targets, and rebalance. `group.consumer.migration.policy` says which way is open.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ConsumerGroup;
use super::assignment::Assignment;
use super::classic::subscription_version;
use super::event::Env;
use super::protocol::{by_id, read_assignment, read_subscription, write_assignment};
use crate::coordinator::group::event::GroupError;
use crate::coordinator::group::machine::Group;
use crate::coordinator::group::member::MemberProtocol;
use crate::coordinator::group::records::consumer::{
    ClassicMetadata, ConsumerKey, ConsumerValue, CurrentAssignment, MemberMetadata, MemberState,
};
use crate::coordinator::group::records::{GroupMetadata, MemberRecord, Record, RecordKey};

/// The consumer group that a classic group becomes, with its records. The classic group is left as it is: its parked requests
/// are the caller's to answer.
///
/// # Errors
/// `GroupIdNotFound`, as Kafka answers, when the policy does not allow it, or when the members are no consumers, too many, or
/// use an assignor whose data cannot be carried on.
pub(in crate::coordinator) fn upgrade(
    id: &Arc<str>,
    classic: &Group,
    env: Env<'_>,
    records: &mut Vec<Record>,
) -> Result<ConsumerGroup, GroupError> {
    let refused = GroupError::GroupIdNotFound;
    let members: Vec<_> = classic.members().collect();
    if !env.settings.upgrade
        || classic.protocol_type().map(|kind| &**kind) != Some("consumer")
        || members.len() > env.settings.max_size
    {
        return Err(refused);
    }
    let generation = classic.generation();
    let mut made: Vec<Record> = vec![Record::tombstone(RecordKey::Group { group: id.clone() })];
    let mut group = ConsumerGroup::new(id.clone());
    let mut states: Vec<(Arc<str>, MemberMetadata, Assignment)> = Vec::with_capacity(members.len());
    for member in members {
        let bytes = match classic.protocol_name() {
            Some(name) => member.metadata(name),
            // In its first rebalance the group has not chosen yet.
            None => member.protocols.first().map(|offered| offered.metadata.clone()).unwrap_or_default(),
        };
        let subscription = read_subscription(&bytes).map_err(|_| refused)?;
        let given = read_assignment(&member.assignment).map_err(|_| refused)?;
        if given.has_user_data {
            return Err(refused);
        }
        let metadata = MemberMetadata {
            instance_id: member.instance_id.clone(),
            rack_id: subscription.rack_id,
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            topics: subscription.topics,
            regex: Arc::from(""),
            rebalance_timeout_ms: i32::try_from(member.rebalance_timeout_ms).unwrap_or(i32::MAX),
            assignor: None,
            classic: Some(ClassicMetadata {
                session_timeout_ms: i32::try_from(member.session_timeout_ms).unwrap_or(i32::MAX),
                protocols: member.protocols.clone(),
            }),
        };
        states.push((member.id.clone(), metadata, by_id(&given.partitions, env.topics)));
    }
    // A leader that gave a partition twice must not make two owners of it.
    let mut taken = BTreeSet::new();
    for (_, _, assigned) in &mut states {
        for (topic, partitions) in assigned.iter_mut() {
            partitions.retain(|partition| taken.insert((*topic, *partition)));
        }
        assigned.retain(|_, partitions| !partitions.is_empty());
    }
    for (member, metadata, _) in &states {
        group.put(ConsumerKey::Member(member.clone()), Some(ConsumerValue::Member(metadata.clone())), &mut made);
    }
    group.seen_topics = Some(env.topics.version());
    let metadata_hash = super::hash::metadata_hash(group.subscribed_topics(), env.topics);
    group.put(ConsumerKey::Group, Some(ConsumerValue::Group { epoch: generation, metadata_hash }), &mut made);
    for (member, _, assigned) in &states {
        group.put(ConsumerKey::Target(member.clone()), Some(ConsumerValue::Target(assigned.clone())), &mut made);
    }
    group.put(ConsumerKey::TargetEpoch, Some(ConsumerValue::TargetEpoch(generation)), &mut made);
    for (member, _, assigned) in states {
        let current = CurrentAssignment {
            epoch: generation,
            previous_epoch: generation,
            state: MemberState::Stable,
            assigned,
            pending_revocation: Assignment::new(),
        };
        group.put(ConsumerKey::Current(member), Some(ConsumerValue::Current(current)), &mut made);
    }
    group.start_timers(env.now, env.settings);
    records.append(&mut made);
    Ok(group)
}

/// The classic group that a consumer group of classic members becomes, as its record holds it. The tombstones of the consumer
/// group and that record are appended to `records`.
pub(in crate::coordinator) fn downgrade(
    id: &Arc<str>,
    group: &ConsumerGroup,
    env: Env<'_>,
    records: &mut Vec<Record>,
) -> (GroupMetadata, Vec<(Arc<str>, Vec<MemberProtocol>)>) {
    records.extend(group.parts().into_iter().map(|part| Record::consumer(id, part, None)));
    let protocol_name = common_protocol(group);
    let mut protocols = Vec::new();
    let members = group
        .members()
        .map(|member| {
            let offered = member.metadata.classic.as_ref().map(|classic| classic.protocols.clone()).unwrap_or_default();
            let subscription = offered
                .iter()
                .find(|offered| Some(&offered.name) == protocol_name.as_ref())
                .map(|offered| offered.metadata.clone())
                .unwrap_or_default();
            protocols.push((member.id.clone(), offered));
            let target = group.targets.get(&member.id).cloned().unwrap_or_default();
            MemberRecord {
                id: member.id.clone(),
                instance_id: member.metadata.instance_id.clone(),
                client_id: member.metadata.client_id.clone(),
                client_host: member.metadata.client_host.clone(),
                rebalance_timeout_ms: member.metadata.rebalance_timeout_ms,
                session_timeout_ms: member.metadata.classic.as_ref().map_or(0, |classic| classic.session_timeout_ms),
                subscription,
                assignment: write_assignment(subscription_version(member), &target, env.topics),
            }
        })
        .collect();
    let metadata = GroupMetadata {
        protocol_type: Arc::from("consumer"),
        generation: group.epoch(),
        protocol_name,
        leader: group.members().next().map(|member| member.id.clone()),
        state_since_wall_ms: Some(env.now.wall_ms),
        members,
    };
    records.push(Record::group(id, metadata.clone()));
    (metadata, protocols)
}

/// The first protocol of the first member that all members have; they have one in common, or could not have joined.
fn common_protocol(group: &ConsumerGroup) -> Option<Arc<str>> {
    let offers = |member: &super::ConsumerMember| -> Vec<Arc<str>> {
        let classic = member.metadata.classic.iter();
        classic.flat_map(|classic| &classic.protocols).map(|protocol| protocol.name.clone()).collect()
    };
    let all: Vec<Vec<Arc<str>>> = group.members().map(offers).collect();
    let (first, others) = all.split_first()?;
    first.iter().find(|name| others.iter().all(|other| other.contains(name))).cloned()
}
