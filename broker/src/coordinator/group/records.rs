//! The records of `__consumer_offsets`, in Kafka's own formats.
//!
//! Key: int16 version, then per version. 0 and 1: group, topic (strings), partition (int32): a committed offset.
//! 2: group (string): a group's metadata. Strings are int16 size and UTF-8. A null value is a tombstone.
//!
//! | value | versions read | written | fields |
//! |---|---|---|---|
//! | offset | 0-3 | 3, or 1 with an expiry of its own | offset int64, leader epoch int32 (3), metadata string, commit time int64, expiry time int64 (1) |
//! | group | 0-3 | 3 | protocol type, generation int32, protocol (nullable), leader (nullable), state time int64 (2+), members: id, instance id (nullable, 3), client id, host, rebalance timeout int32 (1+), session timeout int32, subscription bytes, assignment bytes |
//!
//! Kafka's classes: `OffsetCommitKey`, `OffsetCommitValue`, `GroupMetadataKey`, `GroupMetadataValue`. Versions 3 to 8 and 16
//! are the records of KIP-848 groups, see [`consumer`]. Keys of other versions belong to share and streams groups and are
//! passed over, as Kafka does when it downgrades.

pub mod consumer;
pub(in crate::coordinator::group) mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;

use super::member::MemberId;
use super::offsets::CommittedOffset;
pub use consumer::{ConsumerKey, ConsumerValue};
use wire::{Reader, Writer};

/// A key of `__consumer_offsets`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// An offset committed by a group.
    Offset {
        /// The group.
        group: Arc<str>,
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
    },
    /// The metadata of a group.
    Group {
        /// The group.
        group: Arc<str>,
    },
    /// A part of a KIP-848 group.
    Consumer {
        /// The group.
        group: Arc<str>,
        /// Which part.
        part: ConsumerKey,
    },
}

/// A value of `__consumer_offsets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordValue {
    /// An offset committed by a group.
    Offset(CommittedOffset),
    /// The metadata of a group.
    Group(GroupMetadata),
    /// A part of a KIP-848 group.
    Consumer(ConsumerValue),
}

/// The durable part of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMetadata {
    /// `consumer`, `connect`, ...; empty for none.
    pub protocol_type: Arc<str>,
    /// The generation.
    pub generation: i32,
    /// The protocol of the generation.
    pub protocol_name: Option<Arc<str>>,
    /// The leader.
    pub leader: Option<MemberId>,
    /// Since when the group is in its state, in wall-clock time.
    pub state_since_wall_ms: Option<i64>,
    /// The members.
    pub members: Vec<MemberRecord>,
}

/// The durable part of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRecord {
    /// Its id.
    pub id: MemberId,
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// Its client id.
    pub client_id: Arc<str>,
    /// Its address.
    pub client_host: Arc<str>,
    /// How long a rebalance waits for it.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// Its metadata under the group's protocol.
    pub subscription: Bytes,
    /// What the leader gave it.
    pub assignment: Bytes,
}

/// One record, encoded or about to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is about.
    pub key: RecordKey,
    /// What it says; `None` removes the key.
    pub value: Option<RecordValue>,
}

/// Why a record of `__consumer_offsets` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It ends too early.
    #[error("record ends after {size} bytes, in the middle of a field")]
    Truncated {
        /// Its size.
        size: usize,
    },
    /// A text is not UTF-8.
    #[error("a text of the record is not UTF-8")]
    NotUtf8,
    /// A required text or list is null.
    #[error("a required field of the record is null")]
    UnexpectedNull,
    /// The value's version is unknown.
    #[error("value version {version} is newer than this broker knows")]
    UnknownVersion {
        /// The version.
        version: i16,
    },
}

const OFFSET_KEY_VERSION: i16 = 1;
const GROUP_KEY_VERSION: i16 = 2;
const VALUE_VERSION: i16 = 3;
/// The one version with a field for an expiry of its own (OffsetCommit v2-4 with a retention time).
const OFFSET_VALUE_WITH_EXPIRY: i16 = 1;

impl Record {
    /// A committed offset.
    pub fn offset(group: &Arc<str>, topic: &Arc<str>, partition: i32, committed: CommittedOffset) -> Self {
        let key = RecordKey::Offset { group: group.clone(), topic: topic.clone(), partition };
        Self { key, value: Some(RecordValue::Offset(committed)) }
    }

    /// A group's metadata.
    pub fn group(group: &Arc<str>, metadata: GroupMetadata) -> Self {
        Self { key: RecordKey::Group { group: group.clone() }, value: Some(RecordValue::Group(metadata)) }
    }

    /// A part of a KIP-848 group; `None` removes it.
    pub fn consumer(group: &Arc<str>, part: ConsumerKey, value: Option<ConsumerValue>) -> Self {
        Self { key: RecordKey::Consumer { group: group.clone(), part }, value: value.map(RecordValue::Consumer) }
    }

    /// Removes `key`.
    pub fn tombstone(key: RecordKey) -> Self {
        Self { key, value: None }
    }

    /// The key's bytes.
    pub fn key_bytes(&self) -> Bytes {
        let mut out = Writer::default();
        match &self.key {
            RecordKey::Offset { group, topic, partition } => {
                out.i16(OFFSET_KEY_VERSION);
                out.string(group);
                out.string(topic);
                out.i32(*partition);
            }
            RecordKey::Group { group } => {
                out.i16(GROUP_KEY_VERSION);
                out.string(group);
            }
            RecordKey::Consumer { group, part } => consumer::encode_key(&mut out, group, part),
        }
        out.finish()
    }

    /// The value's bytes; `None` for a tombstone.
    pub fn value_bytes(&self) -> Option<Bytes> {
        self.value.as_ref().map(|value| match value {
            RecordValue::Offset(committed) => encode_offset(committed),
            RecordValue::Group(metadata) => encode_group(metadata),
            RecordValue::Consumer(value) => consumer::encode_value(value),
        })
    }

    /// Reads a record; `None` when its key is of a kind this broker does not keep.
    ///
    /// # Errors
    /// [`RecordError`]: the bytes are not what their version says.
    pub fn parse(key: &[u8], value: Option<&[u8]>) -> Result<Option<Self>, RecordError> {
        let mut input = Reader::new(key);
        match input.i16()? {
            0 | OFFSET_KEY_VERSION => {
                let (group, topic, partition) = (input.string()?, input.string()?, input.i32()?);
                let key = RecordKey::Offset { group, topic, partition };
                let value = value.map(decode_offset).transpose()?.map(RecordValue::Offset);
                Ok(Some(Self { key, value }))
            }
            GROUP_KEY_VERSION => {
                let key = RecordKey::Group { group: input.string()? };
                let value = value.map(decode_group).transpose()?.map(RecordValue::Group);
                Ok(Some(Self { key, value }))
            }
            version => {
                let Some((group, part)) = consumer::decode_key(version, &mut input)? else { return Ok(None) };
                let value = value.map(|value| consumer::decode_value(&part, value)).transpose()?;
                Ok(Some(Self::consumer(&group, part, value)))
            }
        }
    }
}

fn encode_offset(committed: &CommittedOffset) -> Bytes {
    let mut out = Writer::default();
    match committed.expires_wall_ms {
        Some(expires) => {
            out.i16(OFFSET_VALUE_WITH_EXPIRY);
            out.i64(committed.offset);
            out.string(&committed.metadata);
            out.i64(committed.commit_wall_ms);
            out.i64(expires);
        }
        None => {
            out.i16(VALUE_VERSION);
            out.i64(committed.offset);
            out.i32(committed.leader_epoch.unwrap_or(-1));
            out.string(&committed.metadata);
            out.i64(committed.commit_wall_ms);
        }
    }
    out.finish()
}

fn decode_offset(value: &[u8]) -> Result<CommittedOffset, RecordError> {
    let mut input = Reader::new(value);
    let version = input.i16()?;
    if !(0..=VALUE_VERSION).contains(&version) {
        return Err(RecordError::UnknownVersion { version });
    }
    let offset = input.i64()?;
    let leader_epoch = if version >= 3 { Some(input.i32()?).filter(|epoch| *epoch >= 0) } else { None };
    let metadata = input.string()?;
    let commit_wall_ms = input.i64()?;
    let expires_wall_ms =
        if version == OFFSET_VALUE_WITH_EXPIRY { Some(input.i64()?).filter(|expires| *expires >= 0) } else { None };
    Ok(CommittedOffset { offset, leader_epoch, metadata, commit_wall_ms, expires_wall_ms })
}

fn encode_group(metadata: &GroupMetadata) -> Bytes {
    let mut out = Writer::default();
    out.i16(VALUE_VERSION);
    out.string(&metadata.protocol_type);
    out.i32(metadata.generation);
    out.nullable_string(metadata.protocol_name.as_ref());
    out.nullable_string(metadata.leader.as_ref());
    out.i64(metadata.state_since_wall_ms.unwrap_or(-1));
    out.count(metadata.members.len());
    for member in &metadata.members {
        out.string(&member.id);
        out.nullable_string(member.instance_id.as_ref());
        out.string(&member.client_id);
        out.string(&member.client_host);
        out.i32(member.rebalance_timeout_ms);
        out.i32(member.session_timeout_ms);
        out.bytes(&member.subscription);
        out.bytes(&member.assignment);
    }
    out.finish()
}

fn decode_group(value: &[u8]) -> Result<GroupMetadata, RecordError> {
    let mut input = Reader::new(value);
    let version = input.i16()?;
    if !(0..=VALUE_VERSION).contains(&version) {
        return Err(RecordError::UnknownVersion { version });
    }
    let protocol_type = input.string()?;
    let generation = input.i32()?;
    let protocol_name = input.nullable_string()?;
    let leader = input.nullable_string()?;
    let state_since_wall_ms = if version >= 2 { Some(input.i64()?).filter(|since| *since >= 0) } else { None };
    let count = input.count()?;
    let mut members = Vec::new();
    for _ in 0..count {
        let id = input.string()?;
        let instance_id = if version >= 3 { input.nullable_string()? } else { None };
        let (client_id, client_host) = (input.string()?, input.string()?);
        let rebalance_timeout_ms = if version >= 1 { Some(input.i32()?) } else { None };
        let session_timeout_ms = input.i32()?;
        members.push(MemberRecord {
            id,
            instance_id,
            client_id,
            client_host,
            // Version 0 knew one timeout.
            rebalance_timeout_ms: rebalance_timeout_ms.unwrap_or(session_timeout_ms),
            session_timeout_ms,
            subscription: input.bytes()?,
            assignment: input.bytes()?,
        });
    }
    Ok(GroupMetadata { protocol_type, generation, protocol_name, leader, state_since_wall_ms, members })
}
