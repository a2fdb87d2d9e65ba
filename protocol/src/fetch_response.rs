//! The Fetch response, encoded without copying record data.
//!
//! `kafka-protocol` copies `records` into its output buffer. Here the fields around the records are written into small buffers and the records stay
//! what they are: the caller says what carries them (`R`: shared bytes, slices of files) and how large they are, and gets back the pieces in wire order.
//!
//! Served versions: 4 to 18. What each brought: 5 log start offset, 7 sessions (KIP-227), 11 preferred read replica (KIP-392), 12 flexible and
//! diverging epoch (KIP-595), 13 topic ids (KIP-516), 16 node endpoints (KIP-951, optional, not sent). Diverging epoch and current leader are optional
//! tagged fields that a broker without replication never has to send.

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::wire::put_unsigned_varint;

/// The first version with compact encodings.
const FIRST_FLEXIBLE: i16 = 12;

/// A whole response.
#[derive(Debug, Clone)]
pub struct FetchResponse<R> {
    /// How long the client is throttled, in milliseconds (KIP-219).
    pub throttle_ms: i32,
    /// An error for the whole request, 0 for none. Sent from v7.
    pub error_code: i16,
    /// The session that the client may go on with (KIP-227), 0 for none. Sent from v7.
    pub session_id: i32,
    /// Answers by topic, in request order.
    pub topics: Vec<FetchedTopic<R>>,
}

/// The answers for one topic.
#[derive(Debug, Clone)]
pub struct FetchedTopic<R> {
    /// The name, sent up to v12.
    pub name: String,
    /// The id, sent from v13.
    pub id: Uuid,
    /// Answers by partition, in request order.
    pub partitions: Vec<FetchedPartition<R>>,
}

/// An aborted transaction that touches the returned records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Who aborted.
    pub producer_id: i64,
    /// The transaction's first offset in this partition.
    pub first_offset: i64,
}

/// The answer for one partition.
#[derive(Debug, Clone)]
pub struct FetchedPartition<R> {
    /// The partition index.
    pub index: i32,
    /// 0 for none.
    pub error_code: i16,
    /// -1 with an error (S-50).
    pub high_watermark: i64,
    /// -1 with an error.
    pub last_stable_offset: i64,
    /// -1 with an error. Sent from v5.
    pub log_start_offset: i64,
    /// `None` for read_uncommitted: an empty list would make some clients filter (S-53).
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// The carriers of the records, in order; empty for no records, which is sent as zero bytes, never as null (S-52).
    pub records: Vec<R>,
}

/// How large a carrier's records are.
pub trait RecordCarrier {
    /// The number of bytes that will go over the wire.
    fn size(&self) -> usize;
}

impl RecordCarrier for Bytes {
    fn size(&self) -> usize {
        self.len()
    }
}

/// One piece of an encoded response.
#[derive(Debug)]
pub enum Piece<R> {
    /// Fields around the records.
    Fields(Bytes),
    /// Records, untouched.
    Records(R),
}

/// Encodes a response in a version from 4 to 18. Returns the pieces in wire order and their total size.
///
/// # Panics
/// When a record set is 2 GiB or larger, or there are more than 2^31 topics: limits far below that were checked when the request was served.
#[must_use]
pub fn encode<R: RecordCarrier>(response: FetchResponse<R>, version: i16) -> (Vec<Piece<R>>, usize) {
    let mut encoder = Encoder {
        out: BytesMut::with_capacity(256),
        pieces: Vec::new(),
        size: 0,
        version,
        flexible: version >= FIRST_FLEXIBLE,
    };
    encoder.response(response);
    encoder.finish()
}

struct Encoder<R> {
    out: BytesMut,
    pieces: Vec<Piece<R>>,
    size: usize,
    version: i16,
    flexible: bool,
}

impl<R: RecordCarrier> Encoder<R> {
    fn response(&mut self, response: FetchResponse<R>) {
        self.out.put_i32(response.throttle_ms);
        if self.version >= 7 {
            self.out.put_i16(response.error_code);
            self.out.put_i32(response.session_id);
        }
        self.count(response.topics.len());
        for topic in response.topics {
            self.topic(topic);
        }
        self.no_tags();
    }

    fn topic(&mut self, topic: FetchedTopic<R>) {
        if self.version >= 13 {
            self.out.put_slice(topic.id.as_bytes());
        } else {
            if self.flexible {
                put_unsigned_varint(&mut self.out, compact(topic.name.len()));
            } else {
                self.out.put_i16(i16::try_from(topic.name.len()).expect("a topic name has at most 249 bytes"));
            }
            self.out.put_slice(topic.name.as_bytes());
        }
        self.count(topic.partitions.len());
        for partition in topic.partitions {
            self.partition(partition);
        }
        self.no_tags();
    }

    fn partition(&mut self, partition: FetchedPartition<R>) {
        self.out.put_i32(partition.index);
        self.out.put_i16(partition.error_code);
        self.out.put_i64(partition.high_watermark);
        self.out.put_i64(partition.last_stable_offset);
        if self.version >= 5 {
            self.out.put_i64(partition.log_start_offset);
        }
        self.aborted(partition.aborted_transactions.as_deref());
        if self.version >= 11 {
            self.out.put_i32(-1); // preferred read replica: a value makes librdkafka drop the data (S-57)
        }
        let size = partition.records.iter().map(RecordCarrier::size).sum();
        if self.flexible {
            put_unsigned_varint(&mut self.out, compact(size));
        } else {
            self.out.put_i32(i32::try_from(size).expect("a record set is smaller than 2 GiB"));
        }
        for records in partition.records {
            self.splice(records);
        }
        self.no_tags();
    }

    fn aborted(&mut self, aborted: Option<&[AbortedTransaction]>) {
        let Some(aborted) = aborted else {
            if self.flexible {
                self.out.put_u8(0);
            } else {
                self.out.put_i32(-1);
            }
            return;
        };
        self.count(aborted.len());
        for transaction in aborted {
            self.out.put_i64(transaction.producer_id);
            self.out.put_i64(transaction.first_offset);
            self.no_tags();
        }
    }

    fn splice(&mut self, records: R) {
        if records.size() == 0 {
            return;
        }
        self.flush();
        self.size += records.size();
        self.pieces.push(Piece::Records(records));
    }

    fn flush(&mut self) {
        if !self.out.is_empty() {
            let fields = self.out.split().freeze();
            self.size += fields.len();
            self.pieces.push(Piece::Fields(fields));
        }
    }

    fn count(&mut self, count: usize) {
        if self.flexible {
            put_unsigned_varint(&mut self.out, compact(count));
        } else {
            self.out.put_i32(
                i32::try_from(count).expect("no more answers than the request had elements, which the guard bounds"),
            );
        }
    }

    fn no_tags(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        }
    }

    fn finish(mut self) -> (Vec<Piece<R>>, usize) {
        self.flush();
        (self.pieces, self.size)
    }
}

fn compact(size: usize) -> u32 {
    u32::try_from(size + 1).expect("a compact size is smaller than 4 GiB")
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::FetchResponse as Decoded;
    use kafka_protocol::protocol::Decodable;

    use super::*;

    fn sample(aborted: Option<Vec<AbortedTransaction>>) -> FetchResponse<Bytes> {
        let partition = |index, records: Vec<Bytes>| FetchedPartition {
            index,
            error_code: 0,
            high_watermark: 10,
            last_stable_offset: 9,
            log_start_offset: 2,
            aborted_transactions: aborted.clone(),
            records,
        };
        FetchResponse {
            throttle_ms: 3,
            error_code: 0,
            session_id: 9,
            topics: vec![
                FetchedTopic {
                    name: "orders".to_owned(),
                    id: Uuid::from_u128(77),
                    partitions: vec![
                        partition(0, vec![Bytes::from_static(b"first batch"), Bytes::from_static(b"second batch")]),
                        partition(1, vec![]),
                        partition(2, vec![Bytes::from(vec![7; 300])]),
                    ],
                },
                FetchedTopic { name: "empty".to_owned(), id: Uuid::from_u128(78), partitions: vec![] },
            ],
        }
    }

    fn joined(response: FetchResponse<Bytes>, version: i16) -> Bytes {
        let (pieces, size) = encode(response, version);
        let mut out = BytesMut::new();
        for piece in pieces {
            match piece {
                Piece::Fields(bytes) | Piece::Records(bytes) => out.put_slice(&bytes),
            }
        }
        assert_eq!(out.len(), size);
        out.freeze()
    }

    #[test]
    fn every_version_reads_back_as_it_was_meant() {
        for version in 4..=18 {
            for aborted in [None, Some(vec![]), Some(vec![AbortedTransaction { producer_id: 5, first_offset: 3 }])] {
                let mut bytes = joined(sample(aborted.clone()), version);
                let decoded = Decoded::decode(&mut bytes, version).expect("the crate reads what we wrote");
                assert!(bytes.is_empty(), "version {version} left {} bytes", bytes.len());
                assert_eq!(decoded.responses.len(), 2);
                assert_eq!(decoded.throttle_time_ms, 3);
                assert_eq!(decoded.session_id, if version >= 7 { 9 } else { 0 });
                let topic = &decoded.responses[0];
                if version >= 13 {
                    assert_eq!(topic.topic_id, Uuid::from_u128(77));
                } else {
                    assert_eq!(topic.topic.as_str(), "orders");
                }
                let partition = &topic.partitions[0];
                assert_eq!(partition.records.as_deref(), Some(&b"first batchsecond batch"[..]));
                assert_eq!((partition.high_watermark, partition.last_stable_offset), (10, 9));
                if version >= 5 {
                    assert_eq!(partition.log_start_offset, 2);
                }
                if version >= 11 {
                    assert_eq!(partition.preferred_read_replica.0, -1);
                }
                assert_eq!(partition.aborted_transactions.as_ref().map(Vec::len), aborted.as_ref().map(Vec::len));
                assert_eq!(topic.partitions[2].records.as_ref().map(Bytes::len), Some(300));
            }
        }
    }

    #[test]
    fn no_records_are_zero_bytes_and_never_null() {
        for version in 4..=18 {
            let mut bytes = joined(sample(None), version);
            let decoded = Decoded::decode(&mut bytes, version).expect("readable");
            assert_eq!(decoded.responses[0].partitions[1].records.as_deref(), Some(&b""[..]), "version {version}");
        }
    }

    #[test]
    fn records_are_the_same_memory_they_were() {
        let records = Bytes::from(vec![1; 64]);
        let pointer = records.as_ptr();
        let mut response = sample(None);
        response.topics[0].partitions[0].records = vec![records];
        let (pieces, _) = encode(response, 12);
        assert!(pieces.iter().any(|piece| matches!(piece, Piece::Records(bytes) if bytes.as_ptr() == pointer)));
    }
}
