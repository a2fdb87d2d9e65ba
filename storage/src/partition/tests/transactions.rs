//! Transactions, seen by clients, columns, the next start and the log that is kept.

use std::collections::BTreeMap;

use weir_model::producer::{TxnMarker, TxnOutcome};
use weir_model::record_batch::{ControlBatch, ControlRecord, MARKER_BATCH_BYTES, RecordIter};

use super::*;
use crate::disk::{CrashStyle, SimulatedDisk};
use crate::partition::compact::{Compaction, CompactionLimits};
use crate::partition::seal::{Stretch, seal_together};
use crate::producers::{MarkerError, SequenceError};
use crate::segment::SegmentKind;

const TABLE: &[(&str, &str)] = &[("weir.schema", ORDERS)];
const KINDS: [(&str, &[(&str, &str)]); 2] = [("raw", &[]), ("table", TABLE)];
const ALL: RowForm = RowForm { columns: None, format: ReadFormat::Rows };

/// The same batch as one of a producer's transaction.
fn transactional(batch: &ValidBatch, producer_id: i64, epoch: i16, sequence: i32) -> ValidBatch {
    let mut bytes = BytesMut::from(&batch.bytes()[..]);
    bytes[22] |= 1 << 4;
    bytes[43..51].copy_from_slice(&producer_id.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[21..]) as u32;
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    ValidBatch::validate(bytes.freeze(), &LIMITS).expect("valid")
}

fn rows(ids: std::ops::Range<usize>) -> ValidBatch {
    batch_of(&orders(ids), Compression::None)
}

fn marker(producer_id: i64, producer_epoch: i16, outcome: TxnOutcome) -> TxnMarker {
    TxnMarker { producer_id, producer_epoch, outcome, coordinator_epoch: 0, timestamp_ms: START_MS + 1_000_000 }
}

async fn end(storage: &Storage, partition: &Partition, marker: &TxnMarker) -> Appended {
    let mut admission = storage.admit([MARKER_BATCH_BYTES]).await.expect("room");
    let appended = partition.append_marker(&mut admission, marker, START_MS).expect("ordered");
    storage.durable(appended.seq.expect("new")).await.expect("durable");
    appended
}

/// Puts what an open transaction holds up aside, as the sealer does when memory runs out.
fn set_aside(partition: &Partition) {
    let partitions = std::slice::from_ref(partition);
    seal_together(&partition.inner.shared, partitions, Stretch::HeldUp).expect("set aside");
}

/// What a client shows its application, reading as the Java consumer does: it moves by the batches it gets, leaves out
/// control batches, and those of aborted transactions by the list it gets. Panics when a fetch brings it no further.
async fn consume(partition: &Partition, isolation: Isolation, max_bytes: usize) -> Vec<(i64, String)> {
    let mut shown = Vec::new();
    let mut position = partition.offsets().log_start();
    loop {
        let limits = ReadLimits { max_bytes, at_least_one: true };
        let read = partition.read_rows(position, limits, isolation, &ALL).await.expect("readable");
        if position >= read.offsets.read_end(isolation) {
            return shown;
        }
        let mut coming: std::collections::VecDeque<_> = read.aborted.iter().copied().collect();
        assert!(read.aborted.is_sorted_by_key(|txn| txn.first_offset));
        assert!(isolation == Isolation::ReadCommitted || coming.is_empty());
        let mut aborting = std::collections::BTreeSet::new();
        let before = position;
        for batch in batches_in(gather(&read)) {
            let header = *batch.header();
            while coming.front().is_some_and(|txn| txn.first_offset.get() <= header.last_offset()) {
                aborting.insert(coming.pop_front().expect("there").producer_id);
            }
            position = Offset::new(header.last_offset()).expect("not negative").next();
            assert!(position <= read.offsets.read_end(isolation), "TXN-1: a row beyond what may be seen");
            if let Some(control) = ControlBatch::parse(&batch).expect("it reads") {
                if matches!(control.record, ControlRecord::EndTxn { outcome: TxnOutcome::Abort, .. }) {
                    aborting.remove(&header.producer_id);
                }
                continue;
            }
            if header.attributes.is_transactional() && aborting.contains(&header.producer_id) {
                continue;
            }
            let records = batch.records(1 << 26).expect("decompresses");
            for record in RecordIter::new(&records, header.record_count) {
                let record = record.expect("framed");
                let offset = header.base_offset + i64::from(record.offset_delta);
                if offset >= before.get() {
                    shown.push((offset, String::from_utf8(record.value.expect("a value").to_vec()).expect("text")));
                }
            }
        }
        assert!(position > before, "a fetch at {before} of {:?} brings the consumer no further", read.offsets);
    }
}

/// Offsets of the rows that columns have, as the lake reads them.
async fn columns(partition: &Partition, max_bytes: usize) -> Vec<i64> {
    let mut offsets = Vec::new();
    let mut at = partition.offsets().log_start();
    let end = partition.offsets().last_stable();
    while at < end {
        let read = partition.read_columns(at, Offset::MAX, None, max_bytes).await.expect("readable");
        for batch in &read.batches {
            offsets.extend(batch.column(0).as_primitive::<Int64Type>().values().iter().copied());
        }
        assert!(read.next > at, "columns stop at {at} below {end}");
        at = read.next;
    }
    offsets
}

fn offsets_in(shown: &[(i64, String)]) -> Vec<i64> {
    shown.iter().map(|(offset, _)| *offset).collect()
}

#[tokio::test]
async fn committed_rows_are_seen_with_their_marker_and_aborted_ones_never() {
    for (name, configs) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        append(&storage, &partition, transactional(&rows(0..3), 1, 0, 0)).await.expect("appended");
        append(&storage, &partition, rows(3..5)).await.expect("appended");
        append(&storage, &partition, transactional(&rows(5..8), 2, 0, 0)).await.expect("appended");
        assert_eq!(partition.offsets().last_stable().get(), 0, "{name}");
        assert_eq!(partition.offsets().high_watermark().get(), 8, "{name}");
        assert_eq!(partition.transaction_of(2).map(|txn| txn.first_offset.get()), Some(5));
        assert!(consume(&partition, Isolation::ReadCommitted, 1 << 20).await.is_empty(), "{name}");
        assert_eq!(consume(&partition, Isolation::ReadUncommitted, 1 << 20).await.len(), 8, "{name}");

        assert_eq!(end(&storage, &partition, &marker(1, 0, TxnOutcome::Commit)).await.base_offset.get(), 8);
        assert_eq!(partition.offsets().last_stable().get(), 5, "{name}: the second is still open");
        end(&storage, &partition, &marker(2, 0, TxnOutcome::Abort)).await;
        assert_eq!(partition.offsets().last_stable().get(), 10, "{name}");
        for step in ["tail", "restarted"] {
            let storage;
            let partition = if step == "tail" {
                partition.clone()
            } else {
                let other = Bench { directory: tempfile::tempdir().expect("a directory"), ..Bench::new(&[]) };
                copy_directory(bench.directory.path(), other.directory.path());
                storage = other.open();
                first_partition(&storage, &topic)
            };
            for max_bytes in [1, 300, 1 << 20] {
                let shown = consume(&partition, Isolation::ReadCommitted, max_bytes).await;
                assert_eq!(offsets_in(&shown), [0, 1, 2, 3, 4], "{name} {step}");
            }
            assert_eq!(columns(&partition, 1).await, [0, 1, 2, 3, 4], "{name} {step}");
            assert_eq!(consume(&partition, Isolation::ReadUncommitted, 1 << 20).await.len(), 8, "{name} {step}");
        }
        partition.seal().expect("sealed").expect("there was something");
        for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
            let shown = consume(&partition, isolation, 1).await;
            assert_eq!(offsets_in(&shown), [0, 1, 2, 3, 4], "{name}: aborted rows end at the seal");
        }
        assert_eq!(partition.status().sealed_end.get(), 10, "{name}");
        assert_eq!(columns(&partition, 1 << 20).await, [0, 1, 2, 3, 4], "{name} sealed");
    }
}

/// The WAL of an open storage is on the real disk, and what was acknowledged is synced: a copy is what kill -9 leaves.
fn copy_directory(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            std::fs::create_dir_all(&target).expect("made");
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[tokio::test]
async fn markers_and_batches_of_fenced_epochs_are_refused() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    append(&storage, &partition, transactional(&rows(0..2), 7, 3, 0)).await.expect("appended");
    let inside = append(&storage, &partition, idempotent_of(&rows(2..3), 7, 3, 2)).await;
    assert!(matches!(inside, Err(AppendError::Sequence(SequenceError::OutsideTransaction { .. }))), "{inside:?}");
    let guard = partition.txn_guard(7);
    let of_coordinator =
        |epoch, coordinator_epoch| TxnMarker { coordinator_epoch, ..marker(7, epoch, TxnOutcome::Commit) };
    end(&storage, &partition, &of_coordinator(4, 2)).await;
    let late = append(&storage, &partition, transactional(&rows(2..3), 7, 3, 2)).await;
    assert!(matches!(late, Err(AppendError::Sequence(SequenceError::StaleEpoch { got: 3, current: 4, .. }))));
    let refused = [(of_coordinator(3, 2), "epoch"), (of_coordinator(4, 1), "coordinator")];
    for (old, what) in refused {
        let mut admission = storage.admit([MARKER_BATCH_BYTES]).await.expect("room");
        let answer = partition.append_marker(&mut admission, &old, START_MS);
        match (what, answer) {
            ("epoch", Err(AppendError::Marker(MarkerError::StaleEpoch { .. })))
            | ("coordinator", Err(AppendError::Marker(MarkerError::CoordinatorFenced { .. }))) => {}
            (what, answer) => panic!("{what}: {answer:?}"),
        }
    }
    let batch = transactional(&rows(2..3), 7, 4, 0);
    let mut admission = storage.admit([batch.bytes().len()]).await.expect("room");
    let unguarded = partition.append_guarded(&mut admission, batch, None, 1, START_MS, Some(&guard));
    assert!(matches!(unguarded, Err(AppendError::Sequence(SequenceError::TransactionEnded { .. }))), "{unguarded:?}");
    assert_eq!(partition.offsets().log_end().get(), 3, "nothing that was refused has an offset");
    let (_, entry) = {
        let table = partition.producers();
        let (id, entry) = table.iter().next().expect("one");
        (id, entry.clone())
    };
    assert_eq!((entry.epoch, entry.coordinator_epoch, entry.last_sequence()), (4, 2, None));
}

fn idempotent_of(batch: &ValidBatch, producer_id: i64, epoch: i16, sequence: i32) -> ValidBatch {
    let mut bytes = BytesMut::from(&transactional(batch, producer_id, epoch, sequence).bytes()[..]);
    bytes[22] &= !(1 << 4);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[21..]) as u32;
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    ValidBatch::validate(bytes.freeze(), &LIMITS).expect("valid")
}

#[tokio::test]
async fn a_parked_reader_wakes_when_the_last_stable_offset_moves() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    append(&storage, &partition, transactional(&rows(0..2), 7, 0, 0)).await.expect("appended");
    let signal = crate::ReadSignal::new();
    partition.subscribe(&signal);
    assert_eq!(partition.offsets().last_stable().get(), 0);
    let reader = {
        let partition = partition.clone();
        tokio::spawn(async move {
            signal.raised().await;
            partition.offsets().last_stable().get()
        })
    };
    end(&storage, &partition, &marker(7, 0, TxnOutcome::Commit)).await;
    assert_eq!(reader.await.expect("woken"), 3);
}

#[tokio::test]
async fn a_marker_that_is_not_durable_ends_nothing() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    append(&storage, &partition, transactional(&rows(0..2), 7, 0, 0)).await.expect("appended");
    end(&storage, &partition, &marker(7, 0, TxnOutcome::Commit)).await;
    // As it is between the order and the sync: the marker at offset 2 has its place and is not durable.
    let high_watermark = &partition.inner.high_watermark;
    high_watermark.store(2, Ordering::Release);
    let offsets = partition.offsets();
    assert_eq!((offsets.last_stable().get(), offsets.high_watermark().get()), (0, 2), "LOG-2");
    assert_eq!(partition.seal().expect("looked"), None);
    high_watermark.store(3, Ordering::Release);
    assert_eq!(partition.offsets().last_stable().get(), 3);
}

#[tokio::test]
async fn a_transaction_of_aborted_rows_alone_lets_a_consumer_reach_the_end() {
    for (name, configs) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        append(&storage, &partition, transactional(&rows(0..4), 7, 0, 0)).await.expect("appended");
        end(&storage, &partition, &marker(7, 0, TxnOutcome::Abort)).await;
        for tier in ["tail", "segment", "after restart"] {
            for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
                // Panics when a fetch brings it no further.
                let shown = consume(&partition, isolation, 100).await;
                assert!(isolation == Isolation::ReadUncommitted || shown.is_empty(), "{name} {tier}: {shown:?}");
            }
            assert_eq!(columns(&partition, 1).await, [] as [i64; 0], "{name} {tier}");
            for form in [
                RowForm { columns: Some(Arc::from([0usize])), format: ReadFormat::Rows },
                RowForm { columns: None, format: ReadFormat::Arrow },
            ] {
                if name == "raw" && form.format == ReadFormat::Rows {
                    continue;
                }
                let limits = ReadLimits { max_bytes: 100, at_least_one: true };
                let read = partition.read_rows(Offset::ZERO, limits, Isolation::ReadCommitted, &form).await;
                let read = read.expect("readable");
                let batches = batches_in(gather(&read));
                let last = batches.last().expect("a consumer is brought to the end").header();
                assert_eq!((batches.len(), last.last_offset(), last.attributes.is_control()), (1, 4, true), "{tier}");
            }
            let newest = partition.offset_of_max_timestamp().await.expect("readable");
            assert!(newest.is_none_or(|hit| hit.offset.get() < 4), "{name} {tier}: a marker is found by no time");
            let late = partition.offset_for_timestamp(START_MS + 500_000, Isolation::ReadCommitted).await;
            assert_eq!(late.expect("readable"), None, "{name} {tier}");
            partition.seal().expect("sealed");
        }
    }
}

#[tokio::test]
async fn what_is_undecided_is_not_sealed_and_is_set_aside_instead() {
    for (name, configs) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        append(&storage, &partition, rows(0..2)).await.expect("appended");
        append(&storage, &partition, transactional(&rows(2..4), 1, 0, 0)).await.expect("appended");
        append(&storage, &partition, transactional(&rows(4..6), 2, 0, 0)).await.expect("appended");
        end(&storage, &partition, &marker(2, 1, TxnOutcome::Abort)).await;
        append(&storage, &partition, transactional(&rows(7..9), 2, 1, 0)).await.expect("appended");
        end(&storage, &partition, &marker(2, 2, TxnOutcome::Commit)).await;
        assert_eq!(partition.seal().expect("sealed").expect("two rows").range.end.get(), 2, "{name}");
        assert_eq!(partition.seal().expect("looked"), None, "{name}: the rest is undecided");

        let uncommitted = consume(&partition, Isolation::ReadUncommitted, 1).await;
        set_aside(&partition);
        let status = partition.status();
        assert_eq!((status.sealed_end.get(), status.tail_bytes, status.undecided_segments), (10, 0, 1), "{name}");
        assert_eq!(status.offsets.last_stable().get(), 2, "{name}");
        assert_eq!(offsets_in(&consume(&partition, Isolation::ReadCommitted, 1).await), [0, 1], "{name}");
        assert_eq!(consume(&partition, Isolation::ReadUncommitted, 1).await, uncommitted, "{name}");
        let producers = partition.producers();
        append(&storage, &partition, transactional(&rows(10..11), 3, 0, 0)).await.expect("appended");
        end(&storage, &partition, &marker(3, 0, TxnOutcome::Abort)).await;
        storage.close().expect("closes");
        drop((partition, storage));

        let mut said = String::new();
        let summary = crate::doctor::check(bench.directory.path(), &|_, _| None, &mut |finding| {
            said.push_str(&format!("{finding:?}\n"));
        });
        assert_eq!(summary.expect("checked").damages, 0, "{name}: {said}");
        assert!(said.contains("1 of them held up by a transaction"), "{name}: {said}");

        let storage = bench.open();
        let partition = first_partition(&storage, &topic);
        let known =
            |table: &ProducerTable| table.iter().map(|(id, entry)| (id, entry.clone())).take(2).collect::<Vec<_>>();
        assert_eq!(known(&partition.producers()), known(&producers), "{name}: restarted");
        assert_eq!(partition.offsets().last_stable().get(), 2, "{name}: restarted");
        end(&storage, &partition, &marker(1, 1, TxnOutcome::Commit)).await;
        let committed = [0, 1, 2, 3, 7, 8];
        // The sealer was asked by the marker, and may settle before or after the first look.
        for max_bytes in [1, 200, 1 << 20] {
            let shown = consume(&partition, Isolation::ReadCommitted, max_bytes).await;
            assert_eq!(offsets_in(&shown), committed, "{name}");
            assert_eq!(columns(&partition, max_bytes).await, committed, "{name}");
        }
        partition.seal().expect("sealed");
        let status = partition.status();
        assert_eq!((status.sealed_end.get(), status.undecided_segments), (13, 0), "{name}");
        for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
            assert_eq!(offsets_in(&consume(&partition, isolation, 1).await), committed, "{name}: settled");
        }
        let kinds: Vec<SegmentKind> = partition.segments().iter().map(|(meta, _)| meta.kind).collect();
        let kind = if name == "raw" { SegmentKind::Log } else { SegmentKind::Arrow };
        assert!(kinds.iter().all(|found| *found == kind), "{name}: {kinds:?}");
        storage.close().expect("closes");
        drop((partition, storage));

        let storage = bench.open();
        let partition = first_partition(&storage, &topic);
        assert_eq!(offsets_in(&consume(&partition, Isolation::ReadCommitted, 1).await), committed, "{name}: restarted");
        assert_eq!(columns(&partition, 1).await, committed, "{name}: restarted");
    }
}

#[tokio::test]
async fn a_crash_before_the_undecided_file_goes_leaves_nothing_that_counts() {
    for (name, configs) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        append(&storage, &partition, transactional(&rows(0..2), 1, 0, 0)).await.expect("appended");
        set_aside(&partition);
        let directory = partition.inner.directory.clone();
        let undecided = directory.join("00000000000000000000.log");
        let bytes = std::fs::read(&undecided).expect("it was set aside");
        end(&storage, &partition, &marker(1, 0, TxnOutcome::Commit)).await;
        partition.seal().expect("sealed");
        assert!(!undecided.exists(), "{name}");
        storage.close().expect("closes");
        drop((partition, storage));

        std::fs::write(&undecided, bytes).expect("put back");
        let storage = bench.open();
        let partition = first_partition(&storage, &topic);
        assert_eq!(offsets_in(&consume(&partition, Isolation::ReadCommitted, 1).await), [0, 1], "{name}");
        assert!(!undecided.exists(), "{name}: what it became has all its rows");
    }
}

#[tokio::test]
async fn a_long_transaction_pins_neither_the_wal_nor_the_tail() {
    for (name, configs) in KINDS {
        let bench = Bench::new(&[("weir.tail.bytes", "65536")]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        append(&storage, &partition, transactional(&rows(0..1), 1, 0, 0)).await.expect("appended");
        let filler = orders(0..50);
        // Sixteen times the tail's budget; without a way out this waits for ever.
        let work = async {
            for _ in 0..350 {
                append(&storage, &partition, batch_of(&filler, Compression::None)).await.expect("appended");
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), work).await.expect("writers are not held up");
        assert!(storage.tail_bytes() <= 2 * 65_536, "{name}: {} bytes in the tail", storage.tail_bytes());
        let (_, wal_bytes) = storage.wal_stats();
        assert!(wal_bytes <= 8 * 65_536, "{name}: the WAL has {wal_bytes} bytes");
        assert!(partition.status().undecided_segments > 0, "{name}");
        assert_eq!(partition.offsets().last_stable().get(), 0, "{name}");
        end(&storage, &partition, &marker(1, 0, TxnOutcome::Abort)).await;
        assert_eq!(consume(&partition, Isolation::ReadCommitted, 1 << 20).await.len(), 17_500, "{name}");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while partition.status().undecided_segments > 0 {
            assert!(std::time::Instant::now() < deadline, "{name}: the sealer does not settle");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(consume(&partition, Isolation::ReadCommitted, 1 << 20).await.len(), 17_500, "{name}: settled");
    }
}

#[tokio::test]
async fn retention_leaves_undecided_rows_and_delete_records_does_not_wait_for_them() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[("retention.ms", "10000")]);
    let partition = first_partition(&storage, &topic);
    append(&storage, &partition, rows(0..2)).await.expect("appended");
    append(&storage, &partition, transactional(&rows(2..4), 1, 0, 0)).await.expect("appended");
    partition.seal().expect("sealed");
    set_aside(&partition);
    append(&storage, &partition, rows(4..6)).await.expect("appended");
    bench.clock.advance(60_000);
    storage.retain();
    let offsets = partition.offsets();
    assert_eq!((offsets.log_start().get(), offsets.last_stable().get()), (2, 2));
    assert_eq!(consume(&partition, Isolation::ReadUncommitted, 1).await.len(), 4);

    // Kafka's DeleteRecords goes up to the high watermark; the last stable offset is never below the log start.
    partition.advance_log_start(Offset::new(5).expect("not negative")).expect("moved");
    let offsets = partition.offsets();
    assert_eq!((offsets.log_start().get(), offsets.last_stable().get(), offsets.high_watermark().get()), (5, 5, 6));
    assert!(consume(&partition, Isolation::ReadCommitted, 1).await.is_empty());
    end(&storage, &partition, &marker(1, 0, TxnOutcome::Commit)).await;
    assert_eq!(offsets_in(&consume(&partition, Isolation::ReadCommitted, 1).await), [5]);
    partition.seal().expect("sealed");
    assert_eq!(offsets_in(&consume(&partition, Isolation::ReadCommitted, 1).await), [5]);
}

#[tokio::test]
async fn compaction_sees_committed_rows_only_and_ends_at_an_open_transaction() {
    let bench = Bench::new(&[("log.cleaner.enable", "false")]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.0")]);
    let partition = first_partition(&storage, &topic);
    let compact = || {
        let limits = CompactionLimits { map_bytes: 1 << 20, load_factor: 0.9, throttle: &|_| {} };
        assert!(matches!(partition.compact(&limits).expect("compacted"), Compaction::Done(_)));
    };
    // The keys of a batch are k0, k1 and so on.
    append(&storage, &partition, rows(0..3)).await.expect("appended");
    append(&storage, &partition, transactional(&rows(10..12), 1, 0, 0)).await.expect("appended");
    end(&storage, &partition, &marker(1, 0, TxnOutcome::Abort)).await;
    append(&storage, &partition, transactional(&rows(20..21), 2, 0, 0)).await.expect("appended");
    end(&storage, &partition, &marker(2, 0, TxnOutcome::Commit)).await;
    append(&storage, &partition, transactional(&rows(30..32), 3, 0, 0)).await.expect("appended");
    append(&storage, &partition, rows(40..41)).await.expect("appended");
    partition.seal().expect("sealed").expect("eight offsets");
    set_aside(&partition);
    assert_eq!(partition.status().undecided_segments, 1);
    compact();
    // k0 of offset 6 has taken the place of that of 0, and the aborted k1 of 4 has not taken that of 1.
    assert_eq!(offsets_in(&consume(&partition, Isolation::ReadCommitted, 1).await), [1, 2, 6]);
    assert_eq!(offsets_in(&consume(&partition, Isolation::ReadUncommitted, 1).await), [1, 2, 6, 8, 9, 10]);
    end(&storage, &partition, &marker(3, 0, TxnOutcome::Commit)).await;
    partition.seal().expect("sealed").expect("the marker");
    compact();
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        assert_eq!(offsets_in(&consume(&partition, isolation, 1).await), [2, 9, 10]);
    }
}

/// What the log should hold, kept apart from it.
#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
    /// Epoch and next sequence by producer.
    producers: BTreeMap<i64, (i16, i32)>,
}

struct Entry {
    start: i64,
    values: Vec<String>,
    /// Whose transaction; `None` outside.
    producer: Option<i64>,
    /// How it ends the producer's transaction.
    ends: Option<TxnOutcome>,
    epoch: i16,
    batch: AssignedBatch,
}

impl Entry {
    fn end(&self) -> i64 {
        self.start + if self.ends.is_some() { 1 } else { self.values.len() as i64 }
    }
}

impl Model {
    fn end(&self) -> i64 {
        self.entries.last().map_or(0, Entry::end)
    }

    /// Loses what a crash took, and counts the producers' epochs and sequences anew.
    fn cut(&mut self, end: i64) {
        self.entries.retain(|entry| entry.end() <= end);
        assert_eq!(self.end(), end, "the log ends between two batches");
        self.producers.clear();
        for entry in &self.entries {
            let Some(id) = entry.producer else { continue };
            let known = self.producers.entry(id).or_insert((entry.epoch, 0));
            if known.0 != entry.epoch {
                *known = (entry.epoch, 0);
            }
            if entry.ends.is_none() {
                known.1 += entry.values.len() as i32;
            }
        }
    }

    fn open(&self, id: i64) -> Option<i64> {
        let of = self.entries.iter().filter(|entry| entry.producer == Some(id));
        of.fold(None, |open, entry| if entry.ends.is_some() { None } else { open.or(Some(entry.start)) })
    }

    fn last_stable(&self) -> i64 {
        (0..PRODUCERS).filter_map(|id| self.open(id)).min().unwrap_or(self.end())
    }

    /// Rows that are committed, below the last stable offset.
    fn committed(&self) -> Vec<(i64, String)> {
        let mut rows = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let outcome = entry.producer.map(|id| {
                let later = self.entries[index..].iter().filter(|later| later.producer == Some(id));
                later.filter_map(|later| later.ends).next()
            });
            if entry.ends.is_none() && matches!(outcome, None | Some(Some(TxnOutcome::Commit))) {
                rows.extend(entry.values.iter().enumerate().map(|(n, value)| (entry.start + n as i64, value.clone())));
            }
        }
        rows.retain(|(offset, _)| *offset < self.last_stable());
        rows
    }

    fn all(&self) -> Vec<(i64, String)> {
        let rows = self.entries.iter().filter(|entry| entry.ends.is_none()).flat_map(|entry| {
            entry.values.iter().enumerate().map(|(n, value)| (entry.start + n as i64, value.clone()))
        });
        rows.collect()
    }
}

const PRODUCERS: i64 = 4;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

struct Life<'a> {
    bench: &'a Bench,
    disk: SimulatedDisk,
    topic: Arc<TopicInfo>,
    storage: Storage,
    partition: Partition,
    model: Model,
    what: String,
    next_id: usize,
}

impl Life<'_> {
    /// Orders a batch without waiting for it.
    async fn append(&mut self, producer: Option<i64>, count: usize) {
        let values = orders(self.next_id..self.next_id + count);
        self.next_id += count;
        let codec = if self.next_id % 3 == 0 { Compression::Zstd } else { Compression::None };
        let mut batch = batch_of(&values, codec);
        let mut epoch = 0;
        if let Some(id) = producer {
            let known = self.model.producers.entry(id).or_insert((0, 0));
            epoch = known.0;
            batch = transactional(&batch, id, known.0, known.1);
            known.1 += count as i32;
        }
        let columns =
            self.topic.table.as_ref().map(|schema| {
                decode_batch(schema, values.iter().map(|value| Some(value.as_bytes()))).expect("rows fit")
            });
        let size = batch.bytes().len();
        let mut admission = self.storage.admit([size]).await.expect("room");
        let appended = self.partition.append(&mut admission, batch.clone(), columns, size, START_MS);
        let appended = appended.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        let start = appended.base_offset.get();
        assert_eq!(start, self.model.end(), "{}", self.what);
        let batch = batch.assign(start, LEADER_EPOCH);
        self.model.entries.push(Entry { start, values, producer, ends: None, epoch, batch });
    }

    async fn end(&mut self, id: i64, outcome: TxnOutcome, raises_epoch: bool) {
        let known = self.model.producers.entry(id).or_insert((0, 0));
        if raises_epoch {
            *known = (known.0 + 1, 0);
        }
        let epoch = known.0;
        let marker = marker(id, epoch, outcome);
        let mut admission = self.storage.admit([MARKER_BATCH_BYTES]).await.expect("room");
        let appended = self.partition.append_marker(&mut admission, &marker, START_MS).expect("ordered");
        let start = appended.base_offset.get();
        let batch = ControlBatch::of_marker(&marker, start, LEADER_EPOCH);
        let (values, producer, ends) = (Vec::new(), Some(id), Some(outcome));
        self.model.entries.push(Entry { start, values, producer, ends, epoch, batch });
    }

    /// Waits until all that was ordered is durable.
    async fn settle(&self) {
        let last = self.partition.inner.state.lock().tail.iter().last().map(|entry| entry.seq);
        if let Some(seq) = last {
            self.storage.durable(seq).await.expect("durable");
        }
    }

    async fn check(&self, max_bytes: usize) {
        self.settle().await;
        let (what, model) = (&self.what, &self.model);
        let offsets = self.partition.offsets();
        assert_eq!(offsets.high_watermark().get(), model.end(), "{what}");
        assert_eq!(offsets.last_stable().get(), model.last_stable(), "{what}");
        let committed = model.committed();
        assert_eq!(consume(&self.partition, Isolation::ReadCommitted, max_bytes).await, committed, "TXN-1: {what}");
        assert_eq!(columns(&self.partition, max_bytes).await, offsets_in(&committed), "TXN-1, columns: {what}");
        // What is decided but was not settled was read so above; from here on the sealer has nothing to do.
        self.partition.settle().expect("settled");
        let decided_end = self.partition.inner.state.lock().decided_end().get();
        let mut uncommitted: Vec<_> = committed.into_iter().filter(|(offset, _)| *offset < decided_end).collect();
        uncommitted.extend(model.all().into_iter().filter(|(offset, _)| *offset >= decided_end));
        assert_eq!(consume(&self.partition, Isolation::ReadUncommitted, max_bytes).await, uncommitted, "{what}");
        let mut producers = ProducerTable::default();
        for entry in &model.entries {
            producers.record(&entry.batch, START_MS).expect("it reads");
        }
        producers.forget_aborted_below(Offset::new(decided_end).expect("not negative"));
        assert_eq!(self.partition.producers(), producers, "{what}");
    }

    fn open(bench: &Bench, disk: &SimulatedDisk) -> Storage {
        let config = BrokerConfig::resolve(&bench.settings).expect("settings are accepted");
        let clock: Arc<ManualClock> = Arc::clone(&bench.clock);
        let mut options = StorageOptions::new(bench.directory.path().to_owned(), Arc::new(config), clock);
        options.disk = Arc::new(disk.restarted());
        options.on_fatal = Some(Arc::new(|_| {}));
        Storage::open(options).expect("storage opens")
    }

    fn restart(self, crash: Option<CrashStyle>) -> Self {
        let Self { bench, disk, topic, storage, partition, mut model, what, next_id } = self;
        match crash {
            Some(style) => {
                let durable = partition.offsets().high_watermark().get();
                disk.crash(style);
                // The process is gone: its threads only notice.
                drop(storage.close());
                drop((partition, storage));
                let storage = Self::open(bench, &disk);
                let partition = first_partition(&storage, &topic);
                let end = partition.offsets().log_end().get();
                assert!(end >= durable, "LOG-2: {what}: {durable} was durable, {end} is the end");
                model.cut(end);
                Self { bench, disk, topic, storage, partition, model, what, next_id }
            }
            None => {
                storage.close().expect("closes");
                drop((partition, storage));
                let storage = Self::open(bench, &disk);
                let partition = first_partition(&storage, &topic);
                Self { bench, disk, topic, storage, partition, model, what, next_id }
            }
        }
    }

    fn seals(&self, random: &mut Random) {
        match random.below(4) {
            0 => drop(self.partition.seal().expect("sealed")),
            1 => set_aside(&self.partition),
            2 => drop(self.partition.settle().expect("settled")),
            _ => drop(self.partition.merge().expect("merged")),
        }
    }
}

async fn random_life(seed: u64, name: &str, configs: &[(&str, &str)]) {
    let bench = Bench::new(&[]);
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let disk = SimulatedDisk::new(seed);
    let storage = Life::open(&bench, &disk);
    let topic = make_topic(&storage, name, configs);
    let partition = first_partition(&storage, &topic);
    let what = format!("seed {seed} {name}");
    let mut life = Life {
        bench: &bench,
        disk,
        topic,
        storage,
        partition,
        model: Model::default(),
        what: what.clone(),
        next_id: 0,
    };
    for step in 0..60 {
        life.what = format!("{what} step {step}");
        let id = random.below(PRODUCERS as u64) as i64;
        match random.below(20) {
            0..=6 => life.append(Some(id), 1 + random.below(4) as usize).await,
            7 | 8 => life.append(None, 1 + random.below(3) as usize).await,
            9..=12 => {
                let outcome = if random.below(2) == 0 { TxnOutcome::Commit } else { TxnOutcome::Abort };
                // One in eight ends a transaction that has nothing here.
                if life.model.open(id).is_some() || random.below(8) == 0 {
                    life.end(id, outcome, random.below(2) == 0).await;
                }
            }
            13..=16 => life.seals(&mut random),
            17 => life = life.restart(None),
            18 => {
                let style = if random.below(2) == 0 { CrashStyle::Torn } else { CrashStyle::LoseUnsynced };
                life = life.restart(Some(style));
            }
            _ => life.check(1 + random.below(2_000) as usize).await,
        }
    }
    life.check(1 << 20).await;
    life = life.restart(None);
    life.check(1).await;
    life.storage.close().expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_interleaving_of_transactions_seals_and_crashes_reads_as_the_model_says() {
    for seed in 1..=30 {
        for (name, configs) in KINDS {
            random_life(seed, name, configs).await;
        }
    }
}
