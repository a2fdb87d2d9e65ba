//! The records of KIP-848 consumer groups.
//!
//! Keys are an int16 and old-style strings, the group first; values are an int16 version (0) and flexible fields.
//!
//! | key | Kafka's class | key after the group | value |
//! |---|---|---|---|
//! | 3 | `ConsumerGroupMetadata` | | epoch int32; tag 0: metadata hash int64 (left out when 0) |
//! | 4 | `ConsumerGroupPartitionMetadata` | | topics, until 4.0; kept as bytes, removed with the next epoch |
//! | 5 | `ConsumerGroupMemberMetadata` | member | instance id (nullable), rack (nullable), client id, host, topic names, regex (nullable), rebalance timeout int32, assignor (nullable); tag 0: the classic half of a member that speaks the classic protocol |
//! | 6 | `ConsumerGroupTargetAssignmentMetadata` | | assignment epoch int32 |
//! | 7 | `ConsumerGroupTargetAssignmentMember` | member | partitions by topic id |
//! | 8 | `ConsumerGroupCurrentMemberAssignment` | member | epoch int32, previous epoch int32, state int8, partitions owned, partitions to be revoked |
//! | 16 | `ConsumerGroupRegularExpression` | regex | topic names, version int64, timestamp int64 |

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::wire::{Reader, Writer};
use super::{MemberId, RecordError};
use crate::coordinator::group::consumer::assignment::Assignment;
use crate::coordinator::group::member::MemberProtocol;

/// Which part of a group a record holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConsumerKey {
    /// Key 3: the group's epoch.
    Group,
    /// Key 4: what Kafka before 4.1 remembered of the topics.
    PartitionMetadata,
    /// Key 5: what a member said of itself.
    Member(MemberId),
    /// Key 6: the epoch of the target assignment.
    TargetEpoch,
    /// Key 7: a member's target assignment.
    Target(MemberId),
    /// Key 8: a member's current assignment.
    Current(MemberId),
    /// Key 16: what a regular expression matches.
    Regex(Arc<str>),
}

/// The value of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumerValue {
    /// The group's epoch.
    Group {
        /// The epoch.
        epoch: i32,
        /// The hash of the subscribed topics that it was computed from; 0 when not known.
        metadata_hash: i64,
    },
    /// Bytes as Kafka before 4.1 wrote them.
    PartitionMetadata(Bytes),
    /// What a member said of itself.
    Member(MemberMetadata),
    /// The epoch of the target assignment.
    TargetEpoch(i32),
    /// A member's target assignment.
    Target(Assignment),
    /// A member's current assignment.
    Current(CurrentAssignment),
    /// What a regular expression matches.
    Regex(ResolvedRegex),
}

/// What a member said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberMetadata {
    /// Its static id.
    pub instance_id: Option<Arc<str>>,
    /// Its rack.
    pub rack_id: Option<Arc<str>>,
    /// Its client id.
    pub client_id: Arc<str>,
    /// Its address.
    pub client_host: Arc<str>,
    /// The topics it names.
    pub topics: BTreeSet<Arc<str>>,
    /// Its regular expression; empty for none.
    pub regex: Arc<str>,
    /// How long it may take to give partitions up.
    pub rebalance_timeout_ms: i32,
    /// The assignor it asks for.
    pub assignor: Option<Arc<str>>,
    /// Set for a member that speaks the classic protocol.
    pub classic: Option<ClassicMetadata>,
}

/// The classic half of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassicMetadata {
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// What it supports, most wanted first.
    pub protocols: Vec<MemberProtocol>,
}

/// How far a member is on the way to its target (Kafka's `MemberState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// It has what it shall have, as far as its epoch says.
    Stable,
    /// It still has to give partitions up.
    UnrevokedPartitions,
    /// Others have not given up all it shall get.
    UnreleasedPartitions,
    /// A state of a newer broker.
    Unknown,
}

impl MemberState {
    fn code(self) -> i8 {
        match self {
            Self::Stable => 0,
            Self::UnrevokedPartitions => 1,
            Self::UnreleasedPartitions => 2,
            Self::Unknown => 127,
        }
    }

    fn of_code(code: i8) -> Self {
        match code {
            0 => Self::Stable,
            1 => Self::UnrevokedPartitions,
            2 => Self::UnreleasedPartitions,
            _ => Self::Unknown,
        }
    }
}

/// A member's current assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentAssignment {
    /// The member's epoch; -2 while a static member is away.
    pub epoch: i32,
    /// The one before: the answer that carried the newer one may have been lost.
    pub previous_epoch: i32,
    /// How far it is.
    pub state: MemberState,
    /// What it owns and keeps.
    pub assigned: Assignment,
    /// What it owns and has to give up.
    pub pending_revocation: Assignment,
}

/// What a regular expression matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedRegex {
    /// The topics.
    pub topics: BTreeSet<Arc<str>>,
    /// The version of the topics it was resolved against.
    pub version: i64,
    /// When that was, in wall-clock time.
    pub resolved_wall_ms: i64,
}

const VALUE_VERSION: i16 = 0;

pub(super) fn encode_key(out: &mut Writer, group: &str, part: &ConsumerKey) {
    let (version, name) = match part {
        ConsumerKey::Group => (3, None),
        ConsumerKey::PartitionMetadata => (4, None),
        ConsumerKey::Member(member) => (5, Some(member)),
        ConsumerKey::TargetEpoch => (6, None),
        ConsumerKey::Target(member) => (7, Some(member)),
        ConsumerKey::Current(member) => (8, Some(member)),
        ConsumerKey::Regex(regex) => (16, Some(regex)),
    };
    out.i16(version);
    out.string(group);
    if let Some(name) = name {
        out.string(name);
    }
}

/// The group and the part; `None` for a key of another kind of group.
pub(super) fn decode_key(version: i16, input: &mut Reader<'_>) -> Result<Option<(Arc<str>, ConsumerKey)>, RecordError> {
    if !matches!(version, 3..=8 | 16) {
        return Ok(None);
    }
    let group = input.string()?;
    let part = match version {
        3 => ConsumerKey::Group,
        4 => ConsumerKey::PartitionMetadata,
        5 => ConsumerKey::Member(input.string()?),
        6 => ConsumerKey::TargetEpoch,
        7 => ConsumerKey::Target(input.string()?),
        8 => ConsumerKey::Current(input.string()?),
        _ => ConsumerKey::Regex(input.string()?),
    };
    Ok(Some((group, part)))
}

pub(super) fn encode_value(value: &ConsumerValue) -> Bytes {
    let mut out = Writer::default();
    if let ConsumerValue::PartitionMetadata(bytes) = value {
        return bytes.clone();
    }
    out.i16(VALUE_VERSION);
    match value {
        ConsumerValue::PartitionMetadata(_) => {}
        ConsumerValue::Group { epoch, metadata_hash } => {
            out.i32(*epoch);
            if *metadata_hash == 0 {
                out.no_tags();
            } else {
                out.one_tag(0, &metadata_hash.to_be_bytes());
            }
        }
        ConsumerValue::Member(member) => encode_member(&mut out, member),
        ConsumerValue::TargetEpoch(epoch) => {
            out.i32(*epoch);
            out.no_tags();
        }
        ConsumerValue::Target(target) => {
            encode_assignment(&mut out, target);
            out.no_tags();
        }
        ConsumerValue::Current(current) => {
            out.i32(current.epoch);
            out.i32(current.previous_epoch);
            out.i8(current.state.code());
            encode_assignment(&mut out, &current.assigned);
            encode_assignment(&mut out, &current.pending_revocation);
            out.no_tags();
        }
        ConsumerValue::Regex(resolved) => {
            encode_names(&mut out, &resolved.topics);
            out.i64(resolved.version);
            out.i64(resolved.resolved_wall_ms);
            out.no_tags();
        }
    }
    out.finish()
}

pub(super) fn decode_value(part: &ConsumerKey, value: &[u8]) -> Result<ConsumerValue, RecordError> {
    let mut input = Reader::new(value);
    let version = input.i16()?;
    if matches!(part, ConsumerKey::PartitionMetadata) {
        return Ok(ConsumerValue::PartitionMetadata(Bytes::copy_from_slice(value)));
    }
    if version != VALUE_VERSION {
        return Err(RecordError::UnknownVersion { version });
    }
    Ok(match part {
        ConsumerKey::PartitionMetadata | ConsumerKey::Group => {
            let epoch = input.i32()?;
            let mut metadata_hash = 0;
            input.tags(|tag, bytes| {
                if tag == 0 {
                    metadata_hash = Reader::new(bytes).i64()?;
                }
                Ok(())
            })?;
            ConsumerValue::Group { epoch, metadata_hash }
        }
        ConsumerKey::Member(_) => ConsumerValue::Member(decode_member(&mut input)?),
        ConsumerKey::TargetEpoch => ConsumerValue::TargetEpoch(input.i32()?),
        ConsumerKey::Target(_) => ConsumerValue::Target(decode_assignment(&mut input)?),
        ConsumerKey::Current(_) => ConsumerValue::Current(CurrentAssignment {
            epoch: input.i32()?,
            previous_epoch: input.i32()?,
            state: MemberState::of_code(input.i8()?),
            assigned: decode_assignment(&mut input)?,
            pending_revocation: decode_assignment(&mut input)?,
        }),
        ConsumerKey::Regex(_) => ConsumerValue::Regex(ResolvedRegex {
            topics: decode_names(&mut input)?,
            version: input.i64()?,
            resolved_wall_ms: input.i64()?,
        }),
    })
}

fn encode_member(out: &mut Writer, member: &MemberMetadata) {
    out.compact_nullable_string(member.instance_id.as_ref());
    out.compact_nullable_string(member.rack_id.as_ref());
    out.compact_string(&member.client_id);
    out.compact_string(&member.client_host);
    encode_names(out, &member.topics);
    out.compact_string(&member.regex);
    out.i32(member.rebalance_timeout_ms);
    out.compact_nullable_string(member.assignor.as_ref());
    let Some(classic) = &member.classic else {
        out.no_tags();
        return;
    };
    let mut tagged = Writer::default();
    // A nullable struct: 1 says that it is there.
    tagged.i8(1);
    tagged.i32(classic.session_timeout_ms);
    tagged.compact_count(classic.protocols.len());
    for protocol in &classic.protocols {
        tagged.compact_string(&protocol.name);
        tagged.compact_bytes(&protocol.metadata);
        tagged.no_tags();
    }
    tagged.no_tags();
    out.one_tag(0, &tagged.finish());
}

fn decode_member(input: &mut Reader<'_>) -> Result<MemberMetadata, RecordError> {
    let mut member = MemberMetadata {
        instance_id: input.compact_nullable_string()?,
        rack_id: input.compact_nullable_string()?,
        client_id: input.compact_string()?,
        client_host: input.compact_string()?,
        topics: decode_names(input)?,
        regex: input.compact_nullable_string()?.unwrap_or_else(|| Arc::from("")),
        rebalance_timeout_ms: input.i32()?,
        assignor: input.compact_nullable_string()?,
        classic: None,
    };
    input.tags(|tag, bytes| {
        if tag == 0 {
            member.classic = decode_classic(&mut Reader::new(bytes))?;
        }
        Ok(())
    })?;
    Ok(member)
}

fn decode_classic(input: &mut Reader<'_>) -> Result<Option<ClassicMetadata>, RecordError> {
    if input.i8()? < 0 {
        return Ok(None);
    }
    let session_timeout_ms = input.i32()?;
    let mut protocols = Vec::new();
    for _ in 0..input.array_count()? {
        let (name, metadata) = (input.compact_string()?, input.compact_bytes()?);
        input.skip_tags()?;
        protocols.push(MemberProtocol { name, metadata });
    }
    input.skip_tags()?;
    Ok(Some(ClassicMetadata { session_timeout_ms, protocols }))
}

fn encode_names(out: &mut Writer, names: &BTreeSet<Arc<str>>) {
    out.compact_count(names.len());
    for name in names {
        out.compact_string(name);
    }
}

fn decode_names(input: &mut Reader<'_>) -> Result<BTreeSet<Arc<str>>, RecordError> {
    (0..input.array_count()?).map(|_| input.compact_string()).collect()
}

fn encode_assignment(out: &mut Writer, assignment: &Assignment) {
    out.compact_count(assignment.len());
    for (topic, partitions) in assignment {
        out.uuid(*topic);
        out.compact_count(partitions.len());
        for partition in partitions {
            out.i32(*partition);
        }
        out.no_tags();
    }
}

fn decode_assignment(input: &mut Reader<'_>) -> Result<Assignment, RecordError> {
    let mut assignment = Assignment::new();
    for _ in 0..input.array_count()? {
        let topic = input.uuid()?;
        let partitions: BTreeSet<i32> = (0..input.array_count()?).map(|_| input.i32()).collect::<Result<_, _>>()?;
        input.skip_tags()?;
        if !partitions.is_empty() {
            assignment.entry(topic).or_default().extend(partitions);
        }
    }
    Ok(assignment)
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;
    use uuid::Uuid;

    fn text(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    }

    fn member() -> MemberMetadata {
        MemberMetadata {
            instance_id: Some(text("i")),
            rack_id: None,
            client_id: text("c"),
            client_host: text("/127.0.0.1"),
            topics: BTreeSet::from([text("a"), text("b")]),
            regex: text("x.*"),
            rebalance_timeout_ms: 1_000,
            assignor: Some(text("range")),
            classic: Some(ClassicMetadata {
                session_timeout_ms: 45_000,
                protocols: vec![MemberProtocol { name: text("range"), metadata: Bytes::from_static(&[1, 2]) }],
            }),
        }
    }

    fn plain_member() -> MemberMetadata {
        MemberMetadata {
            instance_id: None,
            rack_id: None,
            client_id: text("c"),
            client_host: text("h"),
            topics: BTreeSet::new(),
            regex: text(""),
            rebalance_timeout_ms: -1,
            assignor: None,
            classic: None,
        }
    }

    /// Bytes as the generated classes of Apache Kafka 4.2.0 write them.
    #[test]
    fn records_are_kafkas_to_the_byte() {
        let partitions = |of: &[i32]| Assignment::from([(Uuid::from_u64_pair(1, 2), of.iter().copied().collect())]);
        let current = CurrentAssignment {
            epoch: 5,
            previous_epoch: 4,
            state: MemberState::UnrevokedPartitions,
            assigned: partitions(&[3]),
            pending_revocation: Assignment::new(),
        };
        let resolved =
            ResolvedRegex { topics: BTreeSet::from([text("xa")]), version: 9, resolved_wall_ms: 1_700_000_000_000 };
        let m = || text("m");
        let table = [
            (
                ConsumerKey::Group,
                ConsumerValue::Group { epoch: 10, metadata_hash: 5 },
                "0003000167",
                "00000000000a0100080000000000000005",
            ),
            (ConsumerKey::Group, ConsumerValue::Group { epoch: 10, metadata_hash: 0 }, "0003000167", "00000000000a00"),
            (
                ConsumerKey::Member(m()),
                ConsumerValue::Member(member()),
                "000500016700016d",
                "000002690002630b2f3132372e302e302e31030261026204782e2a000003e80672616e6765010011010000afc8020672616e67650301020000",
            ),
            (
                ConsumerKey::Member(m()),
                ConsumerValue::Member(plain_member()),
                "000500016700016d",
                "00000000026302680101ffffffff0000",
            ),
            (ConsumerKey::TargetEpoch, ConsumerValue::TargetEpoch(7), "0006000167", "00000000000700"),
            (
                ConsumerKey::Target(m()),
                ConsumerValue::Target(partitions(&[0, 1])),
                "000700016700016d",
                "000002000000000000000100000000000000020300000000000000010000",
            ),
            (
                ConsumerKey::Current(m()),
                ConsumerValue::Current(current),
                "000800016700016d",
                "000000000005000000040102000000000000000100000000000000020200000003000100",
            ),
            (
                ConsumerKey::Regex(text("x.*")),
                ConsumerValue::Regex(resolved),
                "00100001670003782e2a",
                "00000203786100000000000000090000018bcfe5680000",
            ),
        ];
        for (part, value, key_hex, value_hex) in table {
            let record = Record::consumer(&text("g"), part.clone(), Some(value));
            assert_eq!(record.key_bytes(), bytes(key_hex), "{part:?}");
            assert_eq!(record.value_bytes().expect("a value"), bytes(value_hex), "{part:?}");
            assert_eq!(Record::parse(&bytes(key_hex), Some(&bytes(value_hex))), Ok(Some(record)));
            let gone = Record::consumer(&text("g"), part.clone(), None);
            assert_eq!(Record::parse(&bytes(key_hex), None), Ok(Some(gone)));
            // A cut in front of the tagged fields is noticed; none panics.
            for end in 0..bytes(value_hex).len() {
                let cut = decode_value(&part, &bytes(value_hex)[..end]);
                assert!(cut.is_err() || end + 1 == bytes(value_hex).len(), "{part:?} cut to {end}");
            }
        }
        let mut newer = bytes("00000000000a");
        newer.extend([1, 9, 1, 42]);
        assert_eq!(decode_value(&ConsumerKey::Group, &newer), Ok(ConsumerValue::Group { epoch: 10, metadata_hash: 0 }));
    }

    #[test]
    fn counts_that_cannot_be_are_refused_before_anything_is_reserved() {
        let claims_a_billion = [0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert!(decode_value(&ConsumerKey::Target(text("m")), &claims_a_billion).is_err());
        let wrong_version = [0, 1, 0, 0, 0, 1, 0];
        assert_eq!(
            decode_value(&ConsumerKey::TargetEpoch, &wrong_version),
            Err(RecordError::UnknownVersion { version: 1 })
        );
    }

    #[test]
    fn records_of_other_kinds_of_groups_are_passed_over() {
        for version in [9_i16, 10, 15, 17, 25] {
            let mut key = version.to_be_bytes().to_vec();
            key.extend([0, 1, b'g']);
            assert_eq!(Record::parse(&key, Some(&[0, 0])), Ok(None));
        }
    }
}
