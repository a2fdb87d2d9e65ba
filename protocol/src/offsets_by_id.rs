//! OffsetCommit and OffsetFetch requests, which name topics by id since version 10 (KIP-848).
//!
//! `kafka-protocol` knows these requests up to version 9; its structs have the field for the id already. Version 10 is laid out as version 9 is, but that a topic's
//! name is its id.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use kafka_protocol::messages::{GroupId, OffsetCommitRequest, OffsetFetchRequest};
use kafka_protocol::protocol::buf::ByteBuf;
use kafka_protocol::protocol::{Decodable, StrBytes};
use uuid::Uuid;

/// The version before topics were named by id: the layout of what did not change.
const BY_NAME: i16 = 9;

/// An OffsetCommit request of any version from 2 to 10.
#[derive(Debug, Clone, PartialEq)]
pub struct OffsetCommit(pub OffsetCommitRequest);

/// An OffsetFetch request of any version from 1 to 10.
#[derive(Debug, Clone, PartialEq)]
pub struct OffsetFetch(pub OffsetFetchRequest);

impl Decodable for OffsetCommit {
    fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> anyhow::Result<Self> {
        if version <= BY_NAME {
            return OffsetCommitRequest::decode(buf, version).map(Self);
        }
        let group = text(buf)?;
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(group))
            .with_generation_id_or_member_epoch(int32(buf)?)
            .with_member_id(text(buf)?)
            .with_group_instance_id(nullable_text(buf)?);
        let mut topics = Vec::new();
        for _ in 0..count(buf)?.unwrap_or(0) {
            let topic_id = uuid(buf)?;
            let mut partitions = Vec::new();
            for _ in 0..count(buf)?.unwrap_or(0) {
                partitions.push(OffsetCommitRequestPartition::decode(buf, BY_NAME)?);
            }
            let topic = OffsetCommitRequestTopic::default().with_topic_id(topic_id).with_partitions(partitions);
            topics.push(topic.with_unknown_tagged_fields(tags(buf)?));
        }
        Ok(Self(request.with_topics(topics).with_unknown_tagged_fields(tags(buf)?)))
    }
}

impl Decodable for OffsetFetch {
    fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> anyhow::Result<Self> {
        if version <= BY_NAME {
            return OffsetFetchRequest::decode(buf, version).map(Self);
        }
        let mut groups = Vec::new();
        for _ in 0..count(buf)?.unwrap_or(0) {
            let id = text(buf)?;
            let group = OffsetFetchRequestGroup::default()
                .with_group_id(GroupId(id))
                .with_member_id(nullable_text(buf)?)
                .with_member_epoch(int32(buf)?);
            let topics = match count(buf)? {
                None => None,
                Some(count) => Some((0..count).map(|_| fetch_topic(buf)).collect::<anyhow::Result<Vec<_>>>()?),
            };
            groups.push(group.with_topics(topics).with_unknown_tagged_fields(tags(buf)?));
        }
        let request = OffsetFetchRequest::default().with_groups(groups).with_require_stable(boolean(buf)?);
        Ok(Self(request.with_unknown_tagged_fields(tags(buf)?)))
    }
}

fn fetch_topic<B: ByteBuf>(buf: &mut B) -> anyhow::Result<OffsetFetchRequestTopics> {
    let topic_id = uuid(buf)?;
    let mut partitions: Vec<i32> = Vec::new();
    for _ in 0..count(buf)?.unwrap_or(0) {
        partitions.push(int32(buf)?);
    }
    let topic = OffsetFetchRequestTopics::default().with_topic_id(topic_id).with_partition_indexes(partitions);
    Ok(topic.with_unknown_tagged_fields(tags(buf)?))
}

fn array<const N: usize, B: ByteBuf>(buf: &mut B) -> anyhow::Result<[u8; N]> {
    let bytes = buf.try_get_bytes(N)?;
    bytes.first_chunk().copied().ok_or_else(|| anyhow::anyhow!("{N} bytes are {}", bytes.len()))
}

fn boolean<B: ByteBuf>(buf: &mut B) -> anyhow::Result<bool> {
    let [byte] = array(buf)?;
    Ok(byte != 0)
}

fn int32<B: ByteBuf>(buf: &mut B) -> anyhow::Result<i32> {
    array(buf).map(i32::from_be_bytes)
}

fn uuid<B: ByteBuf>(buf: &mut B) -> anyhow::Result<Uuid> {
    array(buf).map(Uuid::from_bytes)
}

fn unsigned_varint<B: ByteBuf>(buf: &mut B) -> anyhow::Result<u32> {
    let mut value = 0;
    for shift in [0, 7, 14, 21, 28] {
        let [byte] = array(buf)?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    anyhow::bail!("a varint is longer than five bytes")
}

fn nullable_text<B: ByteBuf>(buf: &mut B) -> anyhow::Result<Option<StrBytes>> {
    let Some(size) = count(buf)? else { return Ok(None) };
    let bytes = buf.try_get_bytes(usize::try_from(size)?)?;
    Ok(Some(StrBytes::try_from(bytes)?))
}

fn text<B: ByteBuf>(buf: &mut B) -> anyhow::Result<StrBytes> {
    nullable_text(buf)?.ok_or_else(|| anyhow::anyhow!("a text that may not be null is"))
}

/// The count of a compact array; `None` for null.
fn count<B: ByteBuf>(buf: &mut B) -> anyhow::Result<Option<u32>> {
    let count = unsigned_varint(buf)?;
    Ok(count.checked_sub(1))
}

fn tags<B: ByteBuf>(buf: &mut B) -> anyhow::Result<BTreeMap<i32, Bytes>> {
    let mut tags = BTreeMap::new();
    let count = unsigned_varint(buf)?;
    for _ in 0..count {
        let tag = unsigned_varint(buf)?;
        let size = unsigned_varint(buf)?;
        let size = usize::try_from(size)?;
        tags.insert(i32::try_from(tag)?, buf.try_get_bytes(size)?);
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::protocol::Encodable;
    use uuid::Uuid;

    use super::*;

    /// A topic's name of 15 letters is 16 bytes with its size, as an id is: version 9's bodies, with the name's bytes read as an id, are version 10's.
    const NAME: &str = "fifteen-letters";

    fn id_of_name() -> Uuid {
        let mut bytes = [0; 16];
        bytes[0] = 16;
        bytes[1..].copy_from_slice(NAME.as_bytes());
        Uuid::from_bytes(bytes)
    }

    fn encoded(message: &impl Encodable) -> Bytes {
        let mut out = BytesMut::new();
        message.encode(&mut out, BY_NAME).expect("version 9 can say it");
        out.freeze()
    }

    #[test]
    fn a_commit_of_version_10_is_one_of_version_9_with_ids() {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(3)
            .with_committed_offset(42)
            .with_committed_metadata(Some(StrBytes::from_static_str("note")));
        let topic = OffsetCommitRequestTopic::default().with_partitions(vec![partition]);
        let name = kafka_protocol::messages::TopicName(StrBytes::from_static_str(NAME));
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(StrBytes::from_static_str("g")))
            .with_generation_id_or_member_epoch(7)
            .with_member_id(StrBytes::from_static_str("m"))
            .with_unknown_tagged_field(9, Bytes::from_static(b"tag"));
        let mut body = encoded(&request.clone().with_topics(vec![topic.clone().with_name(name)]));
        let wanted = OffsetCommit(request.with_topics(vec![topic.with_topic_id(id_of_name())]));
        assert_eq!(OffsetCommit::decode(&mut body, 10).expect("a body of version 10"), wanted);
        assert!(body.is_empty());
    }

    #[test]
    fn a_fetch_of_version_10_is_one_of_version_9_with_ids() {
        let topic = OffsetFetchRequestTopics::default().with_partition_indexes(vec![0, 5]);
        let name = kafka_protocol::messages::TopicName(StrBytes::from_static_str(NAME));
        let group = OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(StrBytes::from_static_str("g")))
            .with_member_id(Some(StrBytes::from_static_str("m")))
            .with_member_epoch(7);
        let all = group.clone().with_topics(None);
        let ask = |topic| {
            let groups = vec![group.clone().with_topics(Some(vec![topic])), all.clone()];
            OffsetFetchRequest::default().with_groups(groups).with_require_stable(true)
        };
        let mut body = encoded(&ask(topic.clone().with_name(name)));
        let wanted = OffsetFetch(ask(topic.with_topic_id(id_of_name())));
        assert_eq!(OffsetFetch::decode(&mut body, 10).expect("a body of version 10"), wanted);
        assert!(body.is_empty());
    }
}
