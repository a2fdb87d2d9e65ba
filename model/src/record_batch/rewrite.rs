//! Rewriting a stored batch: with some of its records only, as log compaction leaves it.
//!
//! What a reader or a producer's sequence depends on stays: base offset, last offset, producer id, epoch and base sequence,
//! the leader epoch, the kind of timestamps, the codec. So offsets never change, the next batch's sequence still follows, and
//! a fetch that ends in the batch goes on behind it (Kafka's `MemoryRecords.filterTo`).

use bytes::Bytes;

use super::compression::compress;
use super::header::{CRC_START, LOG_OVERHEAD, crc32c};
use super::varint::{put_varint, put_varlong, take_varint, take_varlong, varint_size};
use super::{AssignedBatch, BatchError, BatchHeader, Compression, HEADER_SIZE, RecordIter};
use crate::TimestampType;

impl AssignedBatch {
    /// The batch with those records for which `keep` says so; it is asked with each record's position, in order. `section` is
    /// the batch's record section, uncompressed. With a `delete_horizon_ms` the batch says from when on its tombstones may go
    /// (KIP-534); timestamps of its records stay what they were.
    ///
    /// The max timestamp becomes that of the records kept; where the broker stamped the batch, it stays.
    ///
    /// # Errors
    /// When a record does not read.
    pub fn with_records(
        &self,
        section: &[u8],
        mut keep: impl FnMut(usize) -> bool,
        delete_horizon_ms: Option<i64>,
    ) -> Result<Self, BatchError> {
        let old = *self.header();
        let base_timestamp = delete_horizon_ms.unwrap_or(old.base_timestamp);
        let mut kept = vec![0; HEADER_SIZE];
        let (mut count, mut max_timestamp) = (0, i64::MIN);
        let mut rest = section;
        let mut records = RecordIter::new(section, old.record_count);
        let mut position = 0;
        while let Some(record) = records.next() {
            let record = record?;
            let (bytes, after) = rest.split_at(rest.len() - records.remaining_bytes());
            rest = after;
            if keep(position) {
                let timestamp = old.base_timestamp.wrapping_add(record.timestamp_delta);
                if base_timestamp == old.base_timestamp {
                    kept.extend_from_slice(bytes);
                } else {
                    put_with_delta(&mut kept, bytes, timestamp.wrapping_sub(base_timestamp))?;
                }
                count += 1;
                max_timestamp = max_timestamp.max(timestamp);
            }
            position += 1;
        }
        if count == 0 {
            return Ok(self.emptied());
        }
        let codec = old.attributes.compression()?;
        if codec != Compression::None {
            let compressed = compress(codec, &kept[HEADER_SIZE..]);
            kept.truncate(HEADER_SIZE);
            kept.extend_from_slice(&compressed);
        }
        let stamped = old.attributes.timestamp_type() == TimestampType::LogAppendTime;
        let has_horizon = delete_horizon_ms.is_some() || old.attributes.has_delete_horizon();
        let header = BatchHeader {
            attributes: old.attributes.with_delete_horizon(has_horizon),
            base_timestamp,
            max_timestamp: if stamped { old.max_timestamp } else { max_timestamp },
            record_count: count,
            ..old
        };
        Ok(assemble(header, kept))
    }

    /// The batch without records: 61 bytes that still move a reader on and end the producer's sequence (Kafka's
    /// `DefaultRecordBatch.writeEmptyHeader`).
    #[must_use]
    pub fn emptied(&self) -> Self {
        let old = *self.header();
        let header = BatchHeader {
            attributes: old.attributes.with_delete_horizon(false).with_compression(Compression::None),
            base_timestamp: -1,
            record_count: 0,
            ..old
        };
        assemble(header, vec![0; HEADER_SIZE])
    }
}

/// One record's bytes with another timestamp delta.
fn put_with_delta(out: &mut Vec<u8>, record: &[u8], timestamp_delta: i64) -> Result<(), BatchError> {
    let mut rest = record;
    take_varint(&mut rest)?;
    let (attributes, mut rest) = rest.split_first().ok_or(BatchError::Malformed("a record is empty"))?;
    take_varlong(&mut rest)?;
    put_varint(out, length_of(1 + varint_size(timestamp_delta) + rest.len())?);
    out.push(*attributes);
    put_varlong(out, timestamp_delta);
    out.extend_from_slice(rest);
    Ok(())
}

fn length_of(size: usize) -> Result<i32, BatchError> {
    i32::try_from(size).map_err(|_| BatchError::Malformed("a record passes 2 GiB"))
}

/// `bytes` have room for the header in front.
fn assemble(header: BatchHeader, mut bytes: Vec<u8>) -> AssignedBatch {
    let batch_length = i32::try_from(bytes.len() - LOG_OVERHEAD).expect("a batch is under 2 GiB");
    let mut header = BatchHeader { batch_length, ..header };
    let (head, _) = bytes.split_first_chunk_mut::<HEADER_SIZE>().expect("the header's room is in front");
    header.write(head);
    header.crc = crc32c(&bytes[CRC_START..]);
    bytes[17..CRC_START].copy_from_slice(&header.crc.to_be_bytes());
    AssignedBatch::from_stored(Bytes::from(bytes), false).expect("a header that was just written reads")
}

#[cfg(test)]
mod tests {
    use super::super::{BatchBuilder, Record};
    use super::*;

    fn batch(codec: Compression) -> AssignedBatch {
        let mut builder = BatchBuilder::new(100, codec, TimestampType::CreateTime).leader_epoch(3);
        for n in 0..5_i64 {
            let (key, value) = (format!("k{n}"), format!("v{n}"));
            let value = (n != 3).then_some(value.as_bytes());
            builder.push(100 + n, 5_000 + 10 * n, Some(key.as_bytes()), value, None);
        }
        AssignedBatch::from_stored(builder.finish(), true).expect("whole")
    }

    fn seen(batch: &AssignedBatch) -> Vec<(i64, i64, Vec<u8>, Option<Vec<u8>>)> {
        let header = *batch.header();
        let section = batch.records(1 << 20).expect("decompresses");
        let row = |record: Record<'_>| {
            (
                header.base_offset + i64::from(record.offset_delta),
                header.base_timestamp + record.timestamp_delta,
                record.key.unwrap_or_default().to_vec(),
                record.value.map(<[u8]>::to_vec),
            )
        };
        RecordIter::new(&section, header.record_count).map(|record| row(record.expect("framed"))).collect()
    }

    #[test]
    fn a_batch_with_fewer_records_keeps_offsets_times_and_its_place_in_the_sequence() {
        for codec in [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
            let whole = batch(codec);
            let section = whole.records(1 << 20).expect("decompresses");
            for horizon in [None, Some(9_000_000)] {
                let part = whole.with_records(&section, |position| position % 2 == 1, horizon).expect("rewritten");
                let stored = AssignedBatch::from_stored(part.to_bytes(), true).expect("its CRC holds");
                let expected: Vec<_> = seen(&whole).into_iter().skip(1).step_by(2).collect();
                assert_eq!(seen(&stored), expected, "{codec:?} {horizon:?}");
                let (old, new) = (whole.header(), stored.header());
                assert_eq!((new.base_offset, new.last_offset(), new.leader_epoch), (100, 104, 3));
                assert_eq!((new.record_count, new.max_timestamp), (2, 5_030));
                assert_eq!(new.attributes.compression(), old.attributes.compression());
                assert_eq!(new.delete_horizon_ms(), horizon);
            }
        }
    }

    #[test]
    fn a_horizon_once_set_stays_when_more_records_go() {
        let whole = batch(Compression::None);
        let section = whole.records(1 << 20).expect("plain");
        let first = whole.with_records(&section, |_| true, Some(7)).expect("rewritten");
        let section = first.records(1 << 20).expect("plain");
        let second = first.with_records(&section, |position| position == 3, None).expect("rewritten");
        assert_eq!(second.header().delete_horizon_ms(), Some(7));
        assert_eq!(seen(&second), [(103, 5_030, b"k3".to_vec(), None)]);
    }

    #[test]
    fn an_emptied_batch_is_a_header_that_spans_the_same_offsets() {
        let whole = batch(Compression::Zstd);
        let section = whole.records(1 << 20).expect("decompresses");
        let empty = whole.with_records(&section, |_| false, None).expect("rewritten");
        let stored = AssignedBatch::from_stored(empty.to_bytes(), true).expect("its CRC holds");
        assert_eq!((stored.size(), stored.header().record_count), (HEADER_SIZE, 0));
        assert_eq!((stored.header().base_offset, stored.header().last_offset()), (100, 104));
        assert_eq!(stored.header().max_timestamp, 5_040);
        assert!(seen(&stored).is_empty());
    }
}
