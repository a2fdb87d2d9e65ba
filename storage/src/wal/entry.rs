//! The bytes of one WAL entry.
//!
//! ```text
//!  byte   0        4        8        12       16               24                32
//!         +--------+--------+--------+--------+----------------+-----------------+
//!         | magic  | CRC-32C| total  | parti- | seq            | synced through  |
//!         | "WWL1" | of 8.. | length | tion   |                |                 |
//!         +--------+--------+--------+--------+----------------+-----------------+
//!         | log id          | topic id (uuid)                  | payload| zero   |
//!         |                 |                                  | length |        |
//!         +-----------------+----------------------------------+--------+--------+
//!  byte   32                40                                 56       60       64
//!         | payload: one Kafka record batch, base offset and leader epoch patched in ...
//! ```
//!
//! Integers are little-endian. Entries of a group follow each other without padding; a group starts on a 4 KiB boundary
//! and is filled up with zeros. `seq` grows by one from entry to entry, across files; `log id` is drawn once per WAL, so
//! that neither a recycled file's old entries nor a payload that imitates an entry is ever taken for one. `synced through`
//! is the highest seq known to be durable when the group was written: an unreadable entry at or below the `synced through` of
//! a later entry is damage; above it, a write that the crash cut short.
//!
//! A log that was closed ends with an *end mark* in a block of its own: the same header with magic "WWLX", no payload, and both seqs
//! those of the last entry. It proves the last group synced, which no later entry does.

use crc_fast::crc32_iscsi;
use uuid::Uuid;
use weir_model::{PartitionId, TopicId};

/// Bytes before the payload.
pub(super) const HEADER_SIZE: usize = 64;

const MAGIC: [u8; 4] = *b"WWL1";
const END_MAGIC: [u8; 4] = *b"WWLX";

/// Where the checksummed part starts.
pub(super) const CHECKED_FROM: usize = 8;

/// The header of an entry, as parsed or to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHeader {
    pub(super) crc: u32,
    pub(super) partition: PartitionId,
    pub(super) seq: u64,
    pub(super) synced_through: u64,
    pub(super) log_id: u64,
    pub(super) payload_size: u32,
}

impl EntryHeader {
    /// Parses a header that is plausible: right magic, lengths that agree, reserved bytes zero. Says nothing about the CRC.
    pub(super) fn parse(bytes: &[u8; HEADER_SIZE]) -> Option<EntryHeader> {
        if bytes[..4] != MAGIC || bytes[60..] != [0; 4] {
            return None;
        }
        let payload_size = u32_at(bytes, 56);
        if u64::from(u32_at(bytes, 8)) != u64::from(payload_size) + 64 {
            return None;
        }
        let topic: [u8; 16] = array_at(bytes, 40);
        Some(EntryHeader {
            crc: u32_at(bytes, 4),
            partition: PartitionId {
                topic: TopicId::from_uuid(Uuid::from_bytes(topic)),
                index: i32::from_le_bytes(array_at(bytes, 12)),
            },
            seq: u64_at(bytes, 16),
            synced_through: u64_at(bytes, 24),
            log_id: u64_at(bytes, 32),
            payload_size,
        })
    }

    /// The header's bytes with `crc` as it stands in `self`.
    pub(super) fn to_bytes(self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        let total = self.payload_size.checked_add(64).expect("payloads are limited to 4 GiB - 64 when pushed");
        bytes[8..12].copy_from_slice(&total.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.partition.index.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seq.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.synced_through.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[40..56].copy_from_slice(self.partition.topic.as_uuid().as_bytes());
        bytes[56..60].copy_from_slice(&self.payload_size.to_le_bytes());
        bytes
    }

    /// Header and payload, without the group's padding.
    pub(super) fn total_size(&self) -> u64 {
        u64::from(self.payload_size) + 64
    }

    /// True when `entry` (header and payload) has the CRC its header claims.
    pub(super) fn matches(&self, entry: &[u8]) -> bool {
        crc32_iscsi(&entry[CHECKED_FROM..]) == self.crc
    }
}

/// Says that a log was closed with everything up to `synced_through` on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndMark {
    pub(super) log_id: u64,
    pub(super) synced_through: u64,
}

impl EndMark {
    /// The mark in these bytes, if there is one and its CRC is right.
    pub(super) fn parse(bytes: &[u8; HEADER_SIZE]) -> Option<EndMark> {
        let whole = bytes[..4] == END_MAGIC && crc32_iscsi(&bytes[CHECKED_FROM..]) == u32_at(bytes, 4);
        whole.then(|| EndMark { log_id: u64_at(bytes, 32), synced_through: u64_at(bytes, 24) })
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_SIZE] {
        let header = EntryHeader {
            crc: 0,
            partition: PartitionId { topic: TopicId::from_uuid(Uuid::nil()), index: 0 },
            seq: self.synced_through,
            synced_through: self.synced_through,
            log_id: self.log_id,
            payload_size: 0,
        };
        let mut bytes = header.to_bytes();
        bytes[..4].copy_from_slice(&END_MAGIC);
        let crc = crc32_iscsi(&bytes[CHECKED_FROM..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn array_at<const N: usize>(bytes: &[u8; HEADER_SIZE], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn u32_at(bytes: &[u8; HEADER_SIZE], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8; HEADER_SIZE], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> EntryHeader {
        EntryHeader {
            crc: 7,
            partition: PartitionId { topic: TopicId::from_uuid(Uuid::from_u128(5)), index: 3 },
            seq: 11,
            synced_through: 9,
            log_id: 42,
            payload_size: 100,
        }
    }

    #[test]
    fn a_header_survives_its_bytes() {
        assert_eq!(EntryHeader::parse(&header().to_bytes()), Some(header()));
    }

    #[test]
    fn a_header_whose_lengths_disagree_is_none() {
        let mut bytes = header().to_bytes();
        bytes[8] ^= 1;
        assert_eq!(EntryHeader::parse(&bytes), None);
    }

    #[test]
    fn an_end_mark_survives_its_bytes_and_is_no_entry() {
        let mark = EndMark { log_id: 42, synced_through: 9 };
        let mut bytes = mark.to_bytes();
        assert_eq!(EndMark::parse(&bytes), Some(mark));
        assert_eq!(EntryHeader::parse(&bytes), None);
        bytes[24] ^= 1;
        assert_eq!(EndMark::parse(&bytes), None);
    }

    #[test]
    fn zeros_are_no_header() {
        assert_eq!(EntryHeader::parse(&[0; HEADER_SIZE]), None);
        assert_eq!(EndMark::parse(&[0; HEADER_SIZE]), None);
    }
}
