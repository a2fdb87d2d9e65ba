use weir_model::TimestampType;
use weir_model::record_batch::{Attributes, Compression};

use super::*;

fn batch(epoch: i16, first: i32, count: i32, base_offset: i64) -> BatchHeader {
    BatchHeader {
        base_offset,
        batch_length: 100,
        leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes: Attributes::of(Compression::None, TimestampType::CreateTime),
        last_offset_delta: count - 1,
        base_timestamp: 0,
        max_timestamp: 9,
        producer_id: 7,
        producer_epoch: epoch,
        base_sequence: first,
        record_count: count,
    }
}

fn table_with(batches: &[BatchHeader]) -> ProducerTable {
    let mut table = ProducerTable::default();
    for header in batches {
        table.record_data(header, 1);
    }
    table
}

#[test]
fn a_retry_of_any_of_the_last_five_batches_is_answered_with_its_offset() {
    let table = table_with(&(0..6).map(|n| batch(0, n * 2, 2, i64::from(n) * 2)).collect::<Vec<_>>());
    assert!(matches!(table.check(&batch(0, 0, 2, 0), None), Err(SequenceError::OutOfOrder { expected: 12, .. })));
    for n in 1..6 {
        let Ok(Verdict::Duplicate(known)) = table.check(&batch(0, n * 2, 2, 0), None) else {
            panic!("batch {n} forgotten")
        };
        assert_eq!(known.base_offset.get(), i64::from(n) * 2);
    }
    assert_eq!(table.check(&batch(0, 12, 1, 0), None), Ok(Verdict::Append));
}

#[test]
fn a_hole_in_the_sequence_is_refused() {
    let table = table_with(&[batch(0, 0, 3, 0)]);
    assert_eq!(
        table.check(&batch(0, 4, 1, 0), None),
        Err(SequenceError::OutOfOrder { producer_id: 7, epoch: 0, got: 4, expected: 3 })
    );
}

#[test]
fn a_newer_epoch_starts_at_zero_and_fences_the_older() {
    let mut table = table_with(&[batch(0, 0, 3, 0)]);
    assert!(matches!(table.check(&batch(1, 3, 1, 0), None), Err(SequenceError::OutOfOrder { expected: 0, .. })));
    assert_eq!(table.check(&batch(1, 0, 1, 0), None), Ok(Verdict::Append));
    table.record_data(&batch(1, 0, 1, 3), 2);
    assert!(matches!(table.check(&batch(0, 3, 1, 0), None), Err(SequenceError::StaleEpoch { got: 0, current: 1, .. })));
}

#[test]
fn sequences_wrap_from_the_largest_to_zero() {
    let table = table_with(&[batch(0, i32::MAX - 1, 2, 0)]);
    assert_eq!(table.check(&batch(0, 0, 1, 0), None), Ok(Verdict::Append));
}

#[test]
fn a_forgotten_producer_may_continue_anywhere() {
    let mut table = table_with(&[batch(3, 0, 3, 0)]);
    table.expire(2);
    assert!(table.is_empty());
    assert_eq!(table.check(&batch(3, 17, 1, 0), None), Ok(Verdict::Append));
}

fn transactional(epoch: i16, first: i32, count: i32, base_offset: i64) -> BatchHeader {
    let plain = batch(epoch, first, count, base_offset);
    BatchHeader { attributes: Attributes(plain.attributes.0 | 1 << 4), ..plain }
}

fn marker(epoch: i16, outcome: TxnOutcome, coordinator_epoch: i32) -> TxnMarker {
    TxnMarker { producer_id: 7, producer_epoch: epoch, outcome, coordinator_epoch, timestamp_ms: 20 }
}

fn end(table: &mut ProducerTable, marker: &TxnMarker, offset: i64) -> Option<CompletedTxn> {
    table.check_marker(marker).expect("not fenced");
    table.record(&ControlBatch::of_marker(marker, offset, 0), 5).expect("it reads")
}

#[test]
fn a_transaction_is_open_from_its_first_batch_to_its_marker() {
    let mut table = ProducerTable::default();
    table.record_data(&transactional(0, 0, 2, 10), 1);
    table.record_data(&transactional(0, 2, 3, 12), 3);
    let open = OngoingTxn { producer_epoch: 0, first_offset: at(10), last_seen_ms: 3 };
    assert_eq!(table.transaction_of(7), Some(open));
    assert_eq!(table.first_ongoing(), Some(at(10)));
    let ended = end(&mut table, &marker(0, TxnOutcome::Commit, 4), 15).expect("it was open");
    assert_eq!((ended.first_offset, ended.last_offset, ended.outcome), (at(10), at(15), TxnOutcome::Commit));
    assert_eq!((table.transaction_of(7), table.first_ongoing()), (None, None));
    assert_eq!(table.aborted_between(at(0), at(100)), []);
    let (_, entry) = table.iter().next().expect("the producer stays");
    assert_eq!((entry.coordinator_epoch, entry.last_timestamp(), entry.last_sequence()), (4, 20, Some(4)));
    // Under the first version of transactions the epoch stays, and so does the sequence.
    assert_eq!(table.check(&transactional(0, 5, 1, 0), None), Ok(Verdict::Append));
}

#[test]
fn a_marker_of_a_higher_epoch_fences_and_starts_the_sequence_anew() {
    let mut table = ProducerTable::default();
    table.record_data(&transactional(3, 0, 2, 0), 1);
    end(&mut table, &marker(4, TxnOutcome::Commit, 0), 2).expect("it was open");
    let stale = Err(SequenceError::StaleEpoch { producer_id: 7, got: 3, current: 4 });
    assert_eq!(table.check(&transactional(3, 2, 1, 0), None), stale);
    assert_eq!(table.check(&transactional(3, 0, 2, 0), None), stale, "also what was stored once");
    let hole = Err(SequenceError::OutOfOrder { producer_id: 7, epoch: 4, got: 2, expected: 0 });
    assert_eq!(table.check(&transactional(4, 2, 1, 0), None), hole);
    assert_eq!(table.check(&transactional(4, 0, 1, 0), None), Ok(Verdict::Append));
}

#[test]
fn a_marker_without_a_transaction_still_moves_the_epoch() {
    let mut table = ProducerTable::default();
    assert_eq!(end(&mut table, &marker(2, TxnOutcome::Abort, 1), 0), None);
    assert_eq!(table.aborted_between(at(0), at(100)), []);
    assert!(matches!(
        table.check(&transactional(1, 0, 1, 0), None),
        Err(SequenceError::StaleEpoch { got: 1, current: 2, .. })
    ));
}

#[test]
fn markers_of_older_epochs_are_refused() {
    let mut table = ProducerTable::default();
    end(&mut table, &marker(2, TxnOutcome::Abort, 5), 0);
    assert_eq!(
        table.check_marker(&marker(1, TxnOutcome::Abort, 5)),
        Err(MarkerError::StaleEpoch { producer_id: 7, got: 1, current: 2 })
    );
    assert_eq!(
        table.check_marker(&marker(2, TxnOutcome::Abort, 4)),
        Err(MarkerError::CoordinatorFenced { producer_id: 7, got: 4, current: 5 })
    );
    assert_eq!(table.check_marker(&marker(2, TxnOutcome::Abort, 5)), Ok(()));
}

#[test]
fn a_plain_batch_inside_a_transaction_is_refused_and_its_retry_is_not() {
    let mut table = table_with(&[batch(0, 0, 1, 0)]);
    table.record_data(&transactional(0, 1, 1, 1), 1);
    assert_eq!(
        table.check(&batch(0, 2, 1, 0), None),
        Err(SequenceError::OutsideTransaction { producer_id: 7, first_offset: at(1) })
    );
    assert!(matches!(table.check(&batch(0, 0, 1, 0), None), Ok(Verdict::Duplicate(_))));
    end(&mut table, &marker(0, TxnOutcome::Abort, 0), 2);
    assert_eq!(table.check(&batch(0, 2, 1, 0), None), Ok(Verdict::Append));
}

#[test]
fn a_batch_verified_before_a_marker_does_not_open_the_next_transaction() {
    let mut table = ProducerTable::default();
    table.record_data(&transactional(0, 0, 1, 0), 1);
    let guard = table.guard(7);
    assert_eq!(table.check(&transactional(0, 1, 1, 0), Some(&guard)), Ok(Verdict::Append));
    end(&mut table, &marker(0, TxnOutcome::Abort, 0), 1);
    assert_eq!(
        table.check(&transactional(0, 1, 1, 0), Some(&guard)),
        Err(SequenceError::TransactionEnded { producer_id: 7 })
    );
    let guard = table.guard(7);
    assert_eq!(table.check(&transactional(0, 1, 1, 0), Some(&guard)), Ok(Verdict::Append));
    let unknown = ProducerTable::default();
    let guard = unknown.guard(7).from_zero();
    assert!(matches!(
        unknown.check(&transactional(0, 3, 1, 0), Some(&guard)),
        Err(SequenceError::OutOfOrder { expected: 0, .. })
    ));
}

#[test]
fn an_open_transaction_keeps_its_producer_from_being_forgotten() {
    let mut table = ProducerTable::default();
    table.record_data(&transactional(0, 0, 1, 0), 1);
    table.expire(1_000);
    assert!(table.transaction_of(7).is_some());
}

#[test]
fn a_raised_epoch_goes_on_with_the_open_transaction() {
    let mut table = ProducerTable::default();
    table.record_data(&transactional(0, 0, 1, 4), 1);
    table.record_data(&transactional(1, 0, 1, 5), 1);
    assert_eq!(table.transaction_of(7).map(|txn| (txn.producer_epoch, txn.first_offset)), Some((1, at(4))));
}

#[test]
fn aborted_transactions_are_found_by_the_rows_and_markers_they_have_in_a_range() {
    let mut table = ProducerTable::default();
    let of = |id: i64, header: BatchHeader| BatchHeader { producer_id: id, ..header };
    let abort = |id: i64| TxnMarker { producer_id: id, ..marker(0, TxnOutcome::Abort, 0) };
    // 1 is open from 0 to 6; 2 from 2 to 4; 3 from 8 to 9.
    table.record_data(&of(1, transactional(0, 0, 2, 0)), 1);
    table.record_data(&of(2, transactional(0, 0, 2, 2)), 1);
    end(&mut table, &abort(2), 4);
    table.record_data(&of(1, transactional(0, 2, 1, 5)), 1);
    end(&mut table, &abort(1), 6);
    table.record_data(&of(3, transactional(0, 0, 1, 8)), 1);
    end(&mut table, &abort(3), 9);
    let found =
        |from, to| table.aborted_between(at(from), at(to)).iter().map(|txn| txn.producer_id).collect::<Vec<_>>();
    assert_eq!(found(0, 10), [2, 1, 3]);
    assert_eq!(found(0, 1), [1]);
    assert_eq!(found(5, 6), [1]);
    assert_eq!(found(7, 8), Vec::<i64>::new());
    assert_eq!(found(9, 10), [3]);
    let decided = table.decided(at(0), at(10));
    let shown = |id, base| decided.shows(&of(id, transactional(0, 0, 1, base)), weir_model::Isolation::ReadCommitted);
    assert!(!shown(1, 0) && !shown(1, 5) && !shown(2, 3) && shown(1, 7) && shown(2, 5));
    let mut rest = table.clone();
    rest.forget_aborted_below(at(6));
    assert_eq!(rest.aborted_between(at(0), at(10)).len(), 2);
}

#[test]
fn the_table_is_the_same_after_it_was_stored_and_old_ones_still_read() {
    let mut table = ProducerTable::default();
    table.record_data(&transactional(0, 0, 1, 4), 1);
    let abort = TxnMarker { producer_id: 9, ..marker(1, TxnOutcome::Abort, 3) };
    table.record_data(&BatchHeader { producer_id: 9, ..transactional(1, 0, 1, 5) }, 1);
    end(&mut table, &abort, 6);
    let read: ProducerTable = serde_json::from_slice(&serde_json::to_vec(&table).expect("stored")).expect("read");
    assert_eq!(read, table);
    assert_eq!(read.first_ongoing(), Some(at(4)));
    let old = r#"{"producers":{"7":{"epoch":1,"batches":[{"first_sequence":0,"last_sequence":2,"base_offset":0,"last_offset":2,"timestamp":9}],"last_seen_ms":5}}}"#;
    let old: ProducerTable = serde_json::from_str(old).expect("read");
    let (_, entry) = old.iter().next().expect("one");
    assert_eq!((entry.coordinator_epoch, entry.current_txn_first_offset, entry.last_timestamp()), (-1, None, 9));
}

#[test]
fn a_transaction_counts_as_open_until_its_marker_is_durable() {
    let mut deciding = Deciding::default();
    deciding.push(at(5), at(2), at(0));
    deciding.push(at(8), at(1), at(0));
    assert_eq!(deciding.first(at(5)), Some(at(1)));
    assert_eq!(deciding.first(at(6)), Some(at(1)));
    assert_eq!(deciding.first(at(9)), None);
    deciding.push(at(9), at(7), at(9));
    assert_eq!(deciding.first(at(9)), Some(at(7)));
}

#[test]
fn a_coordinators_batch_has_no_sequence_and_is_held_to_its_epoch() {
    let mut table = ProducerTable::default();
    table.record_data(&transactional(2, -1, 1, 0), 1);
    assert_eq!(table.check(&transactional(2, -1, 3, 0), None), Ok(Verdict::Append));
    assert!(matches!(table.check(&transactional(1, -1, 1, 0), None), Err(SequenceError::StaleEpoch { .. })));
    assert_eq!(table.transaction_of(7).map(|txn| txn.first_offset), Some(at(0)));
    end(&mut table, &marker(3, TxnOutcome::Commit, 0), 1).expect("it was open");
    assert!(matches!(table.check(&transactional(2, -1, 1, 0), None), Err(SequenceError::StaleEpoch { .. })));
}
