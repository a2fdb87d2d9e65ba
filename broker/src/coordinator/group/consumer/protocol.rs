//! What consumers of the classic protocol tell each other through the coordinator: Kafka's `ConsumerProtocolSubscription` and
//! `ConsumerProtocolAssignment`, versions 0 to 3. A newer version is read as version 3, as Kafka does.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::assignment::{Assignment, TopicCatalog};
use crate::coordinator::group::records::RecordError;
use crate::coordinator::group::records::wire::{Reader, Writer};

/// A consumer's metadata under one of its protocols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subscription {
    /// The version it is written in: the answer is written in it too.
    pub(super) version: i16,
    pub(super) topics: BTreeSet<Arc<str>>,
    /// v1+: what the consumer owns, by topic name.
    pub(super) owned: Vec<(Arc<str>, Vec<i32>)>,
    /// v3+.
    pub(super) rack_id: Option<Arc<str>>,
}

/// What a leader gave a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) partitions: Vec<(Arc<str>, Vec<i32>)>,
    /// Whether the assignor put bytes of its own in: no server-side assignor can carry those on.
    pub(super) has_user_data: bool,
}

pub(super) fn read_subscription(bytes: &[u8]) -> Result<Subscription, RecordError> {
    let mut input = Reader::new(bytes);
    let version = read_version(&mut input)?;
    let mut topics = BTreeSet::new();
    for _ in 0..input.count()? {
        topics.insert(input.string()?);
    }
    skip_user_data(&mut input)?;
    let owned = if version >= 1 { read_partitions(&mut input)? } else { Vec::new() };
    if version >= 2 {
        input.i32()?;
    }
    let rack_id = if version >= 3 { input.nullable_string()? } else { None };
    Ok(Subscription { version, topics, owned, rack_id: rack_id.filter(|rack| !rack.is_empty()) })
}

/// Reads what a leader gave; empty bytes give nothing.
pub(super) fn read_assignment(bytes: &[u8]) -> Result<Given, RecordError> {
    if bytes.is_empty() {
        return Ok(Given { partitions: Vec::new(), has_user_data: false });
    }
    let mut input = Reader::new(bytes);
    read_version(&mut input)?;
    let partitions = read_partitions(&mut input)?;
    let has_user_data = skip_user_data(&mut input)?;
    Ok(Given { partitions, has_user_data })
}

/// Writes an assignment as the leader of a classic group would. Topics that are gone are left out.
pub(super) fn write_assignment(version: i16, assignment: &Assignment, topics: &dyn TopicCatalog) -> Bytes {
    let named: Vec<(Arc<str>, &BTreeSet<i32>)> =
        assignment.iter().filter_map(|(id, partitions)| Some((topics.name_of(*id)?, partitions))).collect();
    let mut out = Writer::default();
    out.i16(version.clamp(0, 3));
    out.count(named.len());
    for (topic, partitions) in named {
        out.string(&topic);
        out.count(partitions.len());
        for partition in partitions {
            out.i32(*partition);
        }
    }
    // No user data.
    out.i32(-1);
    out.finish()
}

/// By topic id. Topics that are gone are left out.
pub(super) fn by_id(partitions: &[(Arc<str>, Vec<i32>)], topics: &dyn TopicCatalog) -> Assignment {
    let mut assignment = Assignment::new();
    for (name, partitions) in partitions {
        if let Some(facts) = topics.by_name(name)
            && !partitions.is_empty()
        {
            assignment.entry(facts.id).or_default().extend(partitions);
        }
    }
    assignment
}

fn read_version(input: &mut Reader<'_>) -> Result<i16, RecordError> {
    let version = input.i16()?;
    if version < 0 { Err(RecordError::UnknownVersion { version }) } else { Ok(version) }
}

fn read_partitions(input: &mut Reader<'_>) -> Result<Vec<(Arc<str>, Vec<i32>)>, RecordError> {
    let mut partitions = Vec::new();
    for _ in 0..input.count()? {
        let topic = input.string()?;
        let mut of_topic = Vec::new();
        for _ in 0..input.count()? {
            of_topic.push(input.i32()?);
        }
        partitions.push((topic, of_topic));
    }
    Ok(partitions)
}

/// Passes nullable bytes over; answers whether there were any.
fn skip_user_data(input: &mut Reader<'_>) -> Result<bool, RecordError> {
    Ok(input.nullable_bytes()?.is_some_and(|bytes| !bytes.is_empty()))
}
