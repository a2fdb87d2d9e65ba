//! Byte for byte what Kafka 4.2's `TransactionLog.keyToBytes` and `valueToBytes` write.

use std::sync::Arc;

use super::super::machine::TransactionMetadata;
use super::super::records::{RecordError, TransactionRecord};
use super::super::state::{ClientVersion, Partitions, TransactionState};

const KEY: &str = "0000000a7061796d656e74732d31";
const ONGOING: &str = "00010000000000000fa100030000ea600103135f5f636f6e73756d65725f6f666673657473020000000700076f72646572730300000000000000020000000199c82cc1f400000199c82cc0000102020002";
const EMPTY: &str = "00010000000000000fa100000000ea60000000000199c82cc1f4ffffffffffffffff00";
const EMPTY_V0: &str = "00000000000000000fa100000000ea6000ffffffff00000199c82cc1f4ffffffffffffffff";
const COMPLETE_ABORT: &str = "00010000000000000fa200000000ea60050100000199c82cc38400000199c82cc0000102020002";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn partitions() -> Partitions {
    let named = [("orders", 0), ("orders", 2), ("__consumer_offsets", 7)];
    named.into_iter().map(|(topic, partition)| (Arc::from(topic), partition)).collect()
}

fn ongoing() -> TransactionMetadata {
    TransactionMetadata {
        producer_id: 4001,
        previous_producer_id: None,
        next_producer_id: None,
        producer_epoch: 3,
        last_producer_epoch: None,
        timeout_ms: 60_000,
        state: TransactionState::Ongoing,
        partitions: partitions(),
        started_wall_ms: Some(1_760_000_000_000),
        updated_wall_ms: 1_760_000_000_500,
        client_version: ClientVersion::V2,
    }
}

fn empty() -> TransactionMetadata {
    TransactionMetadata {
        producer_epoch: 0,
        state: TransactionState::Empty,
        partitions: Partitions::default(),
        started_wall_ms: None,
        client_version: ClientVersion::V0,
        ..ongoing()
    }
}

fn complete_abort() -> TransactionMetadata {
    TransactionMetadata {
        producer_id: 4002,
        producer_epoch: 0,
        state: TransactionState::CompleteAbort,
        partitions: Partitions::default(),
        updated_wall_ms: 1_760_000_000_900,
        ..ongoing()
    }
}

fn record(metadata: Option<TransactionMetadata>) -> TransactionRecord {
    TransactionRecord { id: Arc::from("payments-1"), metadata }
}

#[test]
fn records_are_written_as_kafka_writes_them() {
    for (metadata, expected) in [(ongoing(), ONGOING), (empty(), EMPTY), (complete_abort(), COMPLETE_ABORT)] {
        let record = record(Some(metadata));
        assert_eq!(record.key_bytes(), bytes(KEY));
        assert_eq!(record.value_bytes().expect("not a tombstone"), bytes(expected), "{record:?}");
    }
    assert_eq!(record(None).value_bytes(), None);
}

#[test]
fn records_of_both_versions_are_read() {
    let cases = [(ONGOING, ongoing()), (EMPTY, empty()), (EMPTY_V0, empty()), (COMPLETE_ABORT, complete_abort())];
    for (value, expected) in cases {
        assert_eq!(TransactionRecord::parse(&bytes(KEY), Some(&bytes(value))), Ok(record(Some(expected))));
    }
    assert_eq!(TransactionRecord::parse(&bytes(KEY), None), Ok(record(None)));
}

#[test]
fn a_change_of_producer_ids_survives_the_log() {
    let metadata = TransactionMetadata {
        previous_producer_id: Some(4000),
        next_producer_id: Some(4002),
        producer_epoch: i16::MAX,
        state: TransactionState::PrepareCommit,
        ..ongoing()
    };
    let written = record(Some(metadata));
    let value = written.value_bytes().expect("not a tombstone");
    assert_eq!(TransactionRecord::parse(&written.key_bytes(), Some(&value)), Ok(written));
}

#[test]
fn tags_of_later_versions_are_passed_over() {
    // Kafka 4.2's tag 3, the next producer's epoch.
    let mut value = bytes(EMPTY);
    value.pop();
    value.extend_from_slice(&[1, 3, 2, 0, 9]);
    assert_eq!(TransactionRecord::parse(&bytes(KEY), Some(&value)), Ok(record(Some(empty()))));
}

#[test]
fn damaged_records_are_errors() {
    let whole = bytes(ONGOING);
    for size in 0..whole.len() {
        assert!(TransactionRecord::parse(&bytes(KEY), Some(&whole[..size])).is_err(), "cut to {size}");
    }
    let mut newer = whole.clone();
    newer[1] = 2;
    let found = TransactionRecord::parse(&bytes(KEY), Some(&newer));
    assert_eq!(found, Err(RecordError::UnknownVersion { version: 2 }));
    let mut lost = whole;
    lost[16] = 9;
    assert_eq!(TransactionRecord::parse(&bytes(KEY), Some(&lost)), Err(RecordError::UnknownState { id: 9 }));
}
