//! Compaction, seen by readers, producers, retention and the next start.
//!
//! The cleaner's own threads are off here (`log.cleaner.enable=false`): a test says itself when a pass happens. Those that
//! are about the threads turn them on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use weir_model::Clock;
use weir_model::record_batch::RecordIter;

use super::*;
use crate::disk::{CrashStyle, Disk, SimulatedDisk};
use crate::partition::compact::{Compacted, Compaction, CompactionLimits};

const OFF: (&str, &str) = ("log.cleaner.enable", "false");
const COMPACT: (&str, &str) = ("cleanup.policy", "compact");
/// A pass whenever one row is dirty.
const EAGER: (&str, &str) = ("min.cleanable.dirty.ratio", "0.0");
const MAP_BYTES: u64 = 1 << 20;

fn pass(partition: &Partition) -> Compaction {
    pass_with(partition, MAP_BYTES)
}

fn pass_with(partition: &Partition, map_bytes: u64) -> Compaction {
    let limits = CompactionLimits { map_bytes, load_factor: 0.9, throttle: &|_| {} };
    partition.compact(&limits).expect("compacted")
}

fn done(compaction: Compaction) -> Compacted {
    let Compaction::Done(done) = compaction else { panic!("not done: {compaction:?}") };
    done
}

/// A row: its key and, unless it is a tombstone, its value.
type Row<'a> = (&'a str, Option<&'a str>);

fn batch(rows: &[Row<'_>], timestamp: i64, codec: Compression) -> ValidBatch {
    let mut builder = BatchBuilder::new(0, codec, TimestampType::CreateTime);
    for (position, (key, value)) in (0..).zip(rows) {
        builder.push(position, timestamp + position, Some(key.as_bytes()), value.map(str::as_bytes), None);
    }
    ValidBatch::validate(builder.finish(), &LIMITS).expect("valid")
}

/// Appends rows as one batch and seals them.
async fn sealed(storage: &Storage, partition: &Partition, rows: &[Row<'_>]) {
    append(storage, partition, batch(rows, START_MS, Compression::None)).await.expect("appended");
    partition.seal().expect("sealed").expect("there was something");
}

/// A row as a reader gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    offset: i64,
    timestamp: i64,
    key: String,
    value: Option<String>,
}

/// Every row from `from` on. Each read below the high watermark has to give something, and the reader to get to the end.
async fn got(partition: &Partition, from: i64, max_bytes: usize) -> Vec<Got> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let mut rows = Vec::new();
    let mut position = from;
    let end = partition.offsets().high_watermark().get();
    while position < end {
        let limits = ReadLimits { max_bytes, at_least_one: true };
        let at = Offset::new(position).expect("not negative");
        let read =
            partition.read_rows(at, limits, Isolation::ReadCommitted, &RowForm::default()).await.expect("readable");
        let batches = batches_in(gather(&read));
        assert!(!batches.is_empty(), "an empty answer at {position}, below the high watermark {end}");
        // As a client does: on with the offset after the last batch's last.
        for batch in batches {
            let header = *batch.header();
            let section = batch.records(1 << 26).expect("decompresses");
            for record in RecordIter::new(&section, header.record_count) {
                let record = record.expect("framed");
                let offset = header.base_offset + i64::from(record.offset_delta);
                if offset >= position {
                    rows.push(Got {
                        offset,
                        timestamp: header.base_timestamp + record.timestamp_delta,
                        key: text(record.key.expect("keyed")),
                        value: record.value.map(text),
                    });
                }
            }
            assert!(header.last_offset() >= position, "a batch that was read before");
            position = header.last_offset() + 1;
        }
    }
    assert_eq!(position, end);
    rows
}

async fn keys_and_offsets(partition: &Partition) -> Vec<(String, i64)> {
    got(partition, 0, 1 << 20).await.into_iter().map(|row| (row.key, row.offset)).collect()
}

fn pairs(pairs: &[(&str, i64)]) -> Vec<(String, i64)> {
    pairs.iter().map(|(key, offset)| ((*key).to_owned(), *offset)).collect()
}

#[tokio::test]
async fn the_newest_row_of_each_key_stays_at_its_offset() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER]);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]).await;
    sealed(&storage, &partition, &[("c", Some("1")), ("b", Some("2"))]).await;
    append(&storage, &partition, batch(&[("c", Some("2"))], START_MS, Compression::None)).await.expect("appended");
    let first = done(pass(&partition));
    assert_eq!((first.removed_rows, first.end.map(Offset::get)), (2, Some(5)));
    // The row in the tail supersedes nothing yet.
    let expected = pairs(&[("a", 2), ("c", 3), ("b", 4), ("c", 5)]);
    assert_eq!(keys_and_offsets(&partition).await, expected);
    assert_eq!(pass(&partition), Compaction::NotDue);
    assert_eq!(partition.status().local_segments, 1, "what was compacted is one segment");
    storage.close().expect("closes");
    drop((partition, storage));

    let storage = bench.open();
    let partition = first_partition(&storage, &topic);
    assert_eq!(keys_and_offsets(&partition).await, expected);
    assert_eq!(pass(&partition), Compaction::NotDue, "how far it got is known after a restart");
    partition.seal().expect("sealed").expect("the tail");
    assert_eq!(done(pass(&partition)).removed_rows, 1);
    assert_eq!(keys_and_offsets(&partition).await, pairs(&[("a", 2), ("b", 4), ("c", 5)]));
}

#[tokio::test]
async fn a_topic_that_is_not_compacted_is_left_alone() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[EAGER]);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1")), ("a", Some("2"))]).await;
    assert!(!partition.compaction_is_due());
    assert_eq!(pass(&partition), Compaction::NotDue);
}

#[tokio::test]
async fn a_tombstone_stays_for_its_time_and_then_goes_without_new_rows() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER, ("delete.retention.ms", "1000")]);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1")), ("b", Some("1"))]).await;
    sealed(&storage, &partition, &[("a", None), ("c", Some("1"))]).await;
    assert_eq!(done(pass(&partition)).removed_rows, 1);
    let rows = got(&partition, 0, 1 << 20).await;
    let tombstone = Got { offset: 2, timestamp: START_MS, key: "a".into(), value: None };
    assert_eq!(rows[1], tombstone, "its own time is still told");
    assert_eq!(rows.len(), 3);
    // From the first pass on it ages, across a restart too.
    bench.clock.advance(999);
    assert!(!partition.compaction_is_due());
    storage.close().expect("closes");
    drop((partition, storage));
    let storage = bench.open();
    let partition = first_partition(&storage, &topic);
    assert_eq!(pass(&partition), Compaction::NotDue);
    bench.clock.advance(1);
    assert_eq!(done(pass(&partition)).removed_rows, 1);
    assert_eq!(keys_and_offsets(&partition).await, pairs(&[("b", 1), ("c", 3)]));
    assert_eq!(pass(&partition), Compaction::NotDue);
}

#[tokio::test]
async fn the_last_batch_stays_as_a_header_that_readers_get_over() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER, ("delete.retention.ms", "0")]);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1"))]).await;
    sealed(&storage, &partition, &[("a", None)]).await;
    done(pass(&partition));
    assert_eq!(done(pass(&partition)).removed_rows, 1, "the tombstone, which may go at once");
    for from in 0..2 {
        assert_eq!(got(&partition, from, 1).await, [], "from {from}");
    }
    let next = append(&storage, &partition, batch(&[("b", Some("1"))], START_MS, Compression::None)).await;
    assert_eq!(next.expect("appended").base_offset.get(), 2);
    partition.seal().expect("sealed").expect("the tail");
    done(pass(&partition));
    assert_eq!(keys_and_offsets(&partition).await, pairs(&[("b", 2)]));
    let bytes = partition.status().local_bytes;
    assert!(bytes < 2 * 61 + 20, "{bytes}: the header is not needed any more");
}

#[tokio::test]
async fn lags_and_the_dirty_ratio_say_when() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let lagging = make_topic(&storage, "lagging", &[COMPACT, EAGER, ("min.compaction.lag.ms", "5000")]);
    let partition = first_partition(&storage, &lagging);
    sealed(&storage, &partition, &[("a", Some("1")), ("a", Some("2"))]).await;
    bench.clock.advance(4_999);
    assert_eq!(pass(&partition), Compaction::NotDue);
    bench.clock.advance(3);
    assert_eq!(done(pass(&partition)).removed_rows, 1);

    let lazy = [COMPACT, ("min.cleanable.dirty.ratio", "1.0"), ("max.compaction.lag.ms", "60000")];
    let topic = make_topic(&storage, "lazy", &lazy);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1")), ("a", Some("2"))]).await;
    assert_eq!(pass(&partition), Compaction::NotDue, "no ratio is above 1");
    bench.clock.advance(60_001);
    assert_eq!(done(pass(&partition)).removed_rows, 1, "but no row waits for longer than that");

    let topic = make_topic(&storage, "half", &[COMPACT]);
    let partition = first_partition(&storage, &topic);
    let values: Vec<String> = (0..20).map(|n| format!("k{n}")).collect();
    let rows: Vec<Row<'_>> = values.iter().map(|key| (key.as_str(), Some("a value"))).collect();
    sealed(&storage, &partition, &rows).await;
    done(pass(&partition));
    sealed(&storage, &partition, &rows[..3]).await;
    assert_eq!(pass(&partition), Compaction::NotDue, "less than half is dirty");
    sealed(&storage, &partition, &rows).await;
    assert_eq!(done(pass(&partition)).removed_rows, 23);
}

#[tokio::test]
async fn a_map_that_is_too_small_takes_several_passes() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER]);
    let partition = first_partition(&storage, &topic);
    let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    for round in ["1", "2", "3"] {
        for chunk in keys.chunks(30) {
            let rows: Vec<Row<'_>> = chunk.iter().map(|key| (key.as_str(), Some(round))).collect();
            append(&storage, &partition, batch(&rows, START_MS, Compression::Lz4)).await.expect("appended");
        }
        partition.seal().expect("sealed").expect("there was something");
    }
    let mut passes = 0;
    while let Compaction::Done(done) = pass_with(&partition, 64 * 24) {
        passes += 1;
        assert!(done.end.is_some_and(|end| end.get() > 0));
        // Every pass leaves a log with the same final state.
        let state: BTreeMap<String, Option<String>> =
            got(&partition, 0, 4_000).await.into_iter().map(|row| (row.key, row.value)).collect();
        assert_eq!(state.len(), 200);
        assert!(state.values().all(|value| value.as_deref() == Some("3")));
    }
    assert!(passes > 3, "{passes} with room for 57 keys");
    let rows = got(&partition, 0, 1 << 20).await;
    assert_eq!(rows.iter().map(|row| row.offset).collect::<Vec<_>>(), (400..600).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_retry_is_known_and_the_sequence_goes_on_after_its_rows_were_compacted_away() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER]);
    let partition = first_partition(&storage, &topic);
    let rows = [("a", Some("1")), ("b", Some("1"))];
    let first = idempotent(&batch(&rows, START_MS, Compression::None), 42, 0);
    append(&storage, &partition, first.clone()).await.expect("appended");
    sealed(&storage, &partition, &rows).await;
    assert_eq!(done(pass(&partition)).removed_rows, 2);
    let goes_on = async |storage: &Storage, partition: &Partition, sequence| {
        assert_eq!(append(storage, partition, first.clone()).await.expect("retried").base_offset.get(), 0);
        let hole = idempotent(&batch(&rows, START_MS, Compression::None), 42, 9);
        assert!(matches!(append(storage, partition, hole).await, Err(AppendError::Sequence(_))));
        let next = idempotent(&batch(&rows, START_MS, Compression::None), 42, sequence);
        append(storage, partition, next).await.expect("appended");
    };
    goes_on(&storage, &partition, 2).await;
    storage.close().expect("closes");
    drop((partition, storage));
    let storage = bench.open();
    goes_on(&storage, &first_partition(&storage, &topic), 4).await;
}

#[tokio::test]
async fn retention_and_compaction_work_on_the_same_topic() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let both = [("cleanup.policy", "compact,delete"), EAGER, ("retention.ms", "10000")];
    let topic = make_topic(&storage, "t", &both);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]).await;
    assert_eq!(done(pass(&partition)).removed_rows, 1);
    bench.clock.advance(8_000);
    let late = batch(&[("b", Some("2"))], START_MS + 8_000, Compression::None);
    append(&storage, &partition, late).await.expect("appended");
    partition.seal().expect("sealed").expect("there was something");
    bench.clock.advance(3_000);
    storage.retain();
    assert_eq!(partition.offsets().log_start().get(), 3, "the old segment went whole");
    assert_eq!(got(&partition, 3, 1 << 20).await.len(), 1);
    done(pass(&partition));
    assert_eq!(got(&partition, 3, 1 << 20).await.len(), 1);
}

#[tokio::test]
async fn a_pass_that_retention_overtakes_leaves_nothing_behind() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER]);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1")), ("a", Some("2"))]).await;
    sealed(&storage, &partition, &[("b", Some("1")), ("b", Some("2"))]).await;
    let once = std::cell::Cell::new(true);
    let overtake = |_| {
        if once.replace(false) {
            partition.advance_log_start(Offset::new(2).expect("not negative")).expect("moved");
        }
    };
    let limits = CompactionLimits { map_bytes: MAP_BYTES, load_factor: 0.9, throttle: &overtake };
    assert_eq!(partition.compact(&limits).expect("looked"), Compaction::Overtaken);
    assert_eq!(got(&partition, 2, 1 << 20).await.len(), 2);
    assert_eq!(std::fs::read_dir(&partition.inner.directory).expect("listed").count(), 1);
    assert_eq!(done(pass(&partition)).removed_rows, 1);
}

#[tokio::test]
async fn rows_wait_for_the_lake_before_a_newer_one_takes_their_place() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER, ("weir.lake.enable", "true")]);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1")), ("a", Some("2"))]).await;
    sealed(&storage, &partition, &[("b", Some("1")), ("b", Some("2"))]).await;
    assert_eq!(pass(&partition), Compaction::NotDue);
    partition.set_lake_end(Offset::new(3).expect("not negative")).expect("noted");
    assert_eq!(done(pass(&partition)).removed_rows, 1, "LAKE-1: the second segment is not in the lake whole");
    partition.set_lake_end(Offset::new(4).expect("not negative")).expect("noted");
    assert_eq!(done(pass(&partition)).removed_rows, 1);
}

#[tokio::test]
async fn a_damaged_segment_is_reported_and_nothing_goes() {
    let bench = Bench::new(&[OFF]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER]);
    let partition = first_partition(&storage, &topic);
    sealed(&storage, &partition, &[("a", Some("1")), ("a", Some("2"))]).await;
    let path = partition.inner.directory.join(&partition.segments()[0].0.file);
    let mut bytes = std::fs::read(&path).expect("read");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let limits = CompactionLimits { map_bytes: MAP_BYTES, load_factor: 0.9, throttle: &|_| {} };
    let error = partition.compact(&limits).expect_err("damaged");
    assert!(matches!(error, MergeError::Segment(error) if error.is_corrupt()));
    assert_eq!(std::fs::read(&path).expect("still there"), bytes);
}

#[tokio::test]
async fn the_cleaner_seals_an_old_tail_and_compacts_it_by_itself() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let quiet = make_topic(&storage, "quiet", &[("segment.ms", "100")]);
    let topic = make_topic(&storage, "t", &[COMPACT, EAGER, ("segment.ms", "100")]);
    let (partition, other) = (first_partition(&storage, &topic), first_partition(&storage, &quiet));
    for target in [&partition, &other] {
        let rows = batch(&[("a", Some("1")), ("a", Some("2"))], START_MS, Compression::None);
        append(&storage, target, rows).await.expect("appended");
    }
    let patience = Instant::now() + Duration::from_secs(20);
    while got(&partition, 0, 1 << 20).await.len() > 1 {
        assert!(Instant::now() < patience, "the cleaner does nothing");
        // The clock stands still unless it is moved.
        bench.clock.advance(50);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(other.status().local_segments, 0, "a topic that is not compacted is not sealed by time");
    storage.close().expect("closes");
}

#[test]
fn a_dirty_tail_is_sealed_before_it_is_large() {
    let config = |settings: &[(&str, &str)]| {
        let given = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        weir_model::config::TopicConfig::resolve(&given, &BrokerConfig::default()).expect("valid")
    };
    let bytes = |settings: &[(&str, &str)], sealed| super::super::compact::seal_bytes(&config(settings), sealed);
    assert_eq!(bytes(&[], 0), 4 << 20);
    assert_eq!(bytes(&[], 10 << 20), 10 << 20);
    assert_eq!(bytes(&[], 1 << 40), 64 << 20, "weir.seal.bytes at most");
    assert_eq!(bytes(&[("segment.bytes", "1048576")], 1 << 40), 1 << 20);
    assert_eq!(bytes(&[("min.cleanable.dirty.ratio", "1")], 0), 64 << 20);
    assert_eq!(bytes(&[("min.compaction.lag.ms", "1")], 0), 64 << 20);
}

/// What a test does to a partition.
#[derive(Clone, Debug)]
enum Step {
    /// Rows of keys 0 to 7 as one batch; no value is a tombstone.
    Append(Vec<(u8, Option<u16>)>, u8),
    Seal,
    Compact(u64),
    Advance(i64),
    DeleteTo(u8),
    Restart,
    Crash(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rows = prop::collection::vec((0..8_u8, prop::option::weighted(0.7, any::<u16>())), 1..6);
    let step = prop_oneof![
        8 => (rows, 0..5_u8).prop_map(|(rows, codec)| Step::Append(rows, codec)),
        4 => Just(Step::Seal),
        5 => prop_oneof![Just(0), Just(MAP_BYTES)].prop_map(Step::Compact),
        2 => (1..800_i64).prop_map(Step::Advance),
        1 => (0..200_u8).prop_map(Step::DeleteTo),
        1 => Just(Step::Restart),
        1 => any::<bool>().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..60)
}

/// A partition and what it should hold.
struct World {
    bench: Bench,
    disk: SimulatedDisk,
    /// `None` between two lives.
    open: Option<(Storage, Partition)>,
    topic: Arc<TopicInfo>,
    /// Every row there ever was, by offset.
    rows: Vec<Got>,
    /// Sequence of the next batch, and the last one.
    sequence: i32,
    last: Option<(ValidBatch, i64)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let bench = Bench::new(&[OFF]);
        let disk = SimulatedDisk::new(seed);
        let storage = Self::open(&bench, &disk);
        let topic = make_topic(&storage, "t", &[COMPACT, EAGER, ("delete.retention.ms", "500")]);
        let partition = first_partition(&storage, &topic);
        Self { bench, disk, open: Some((storage, partition)), topic, rows: Vec::new(), sequence: 0, last: None }
    }

    fn open(bench: &Bench, disk: &SimulatedDisk) -> Storage {
        let config = BrokerConfig::resolve(&bench.settings).expect("settings are accepted");
        let clock = Arc::clone(&bench.clock);
        let mut options = StorageOptions::new(bench.directory.path().to_owned(), Arc::new(config), clock);
        options.disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
        options.on_fatal = Some(Arc::new(|_| {}));
        Storage::open(options).expect("storage opens")
    }

    fn storage(&self) -> &Storage {
        &self.open.as_ref().expect("it is open").0
    }

    fn partition(&self) -> &Partition {
        &self.open.as_ref().expect("it is open").1
    }

    /// All that held the directory has gone.
    fn reopen(&mut self) {
        self.open = None;
        let storage = Self::open(&self.bench, &self.disk);
        let partition = first_partition(&storage, &self.topic);
        self.open = Some((storage, partition));
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Append(rows, codec) => {
                let now_ms = self.bench.clock.now_ms();
                let rows: Vec<(String, Option<String>)> =
                    rows.iter().map(|(key, value)| (format!("k{key}"), value.map(|value| value.to_string()))).collect();
                let given: Vec<Row<'_>> = rows.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
                let codec = Compression::from_code(i16::from(*codec)).expect("a codec");
                let batch = idempotent(&batch(&given, now_ms, codec), 7, self.sequence);
                let base = append(self.storage(), self.partition(), batch.clone()).await.expect("appended").base_offset;
                assert_eq!(base.get(), self.rows.len() as i64, "LOG-4: offsets go on without gaps at the end");
                self.sequence += i32::try_from(rows.len()).expect("few");
                self.last = Some((batch, base.get()));
                for (position, (key, value)) in (0..).zip(rows) {
                    self.rows.push(Got { offset: base.get() + position, timestamp: now_ms + position, key, value });
                }
            }
            Step::Seal => {
                self.partition().seal().expect("sealed");
            }
            Step::Compact(map_bytes) => {
                pass_with(self.partition(), *map_bytes);
            }
            Step::Advance(ms) => self.bench.clock.advance(*ms),
            Step::DeleteTo(offset) => {
                let to = i64::from(*offset).min(self.rows.len() as i64);
                self.partition().advance_log_start(Offset::new(to).expect("not negative")).expect("moved");
            }
            Step::Restart => {
                self.storage().close().expect("closes");
                self.reopen();
            }
            Step::Crash(torn) => {
                // All was acknowledged, so all of it comes back.
                self.disk.crash(if *torn { CrashStyle::Torn } else { CrashStyle::LoseUnsynced });
                let _dead_wal = self.storage().close();
                self.disk = self.disk.restarted();
                self.reopen();
            }
        }
    }

    async fn check(&self) {
        let start = self.partition().offsets().log_start().get();
        let seen = got(self.partition(), start, 300).await;
        let sealed_end = self.partition().status().sealed_end.get();
        let mut state: BTreeMap<&str, &str> = BTreeMap::new();
        let mut before = -1;
        for row in &seen {
            assert!(row.offset > before, "order is kept");
            before = row.offset;
            assert_eq!(
                row,
                &self.rows[usize::try_from(row.offset).expect("not negative")],
                "LOG-3: a row is what it was"
            );
            match &row.value {
                Some(value) => state.insert(&row.key, value),
                None => state.remove(row.key.as_str()),
            };
        }
        let mut expected: BTreeMap<&str, (i64, Option<&str>)> = BTreeMap::new();
        for row in &self.rows {
            expected.insert(&row.key, (row.offset, row.value.as_deref()));
        }
        // Rows below the log start are gone, and with them the keys that were not written again.
        let live =
            expected.iter().filter_map(|(key, (offset, value))| value.filter(|_| *offset >= start).map(|v| (*key, v)));
        assert_eq!(state, live.collect(), "the final state is that of the whole log");
        let tail = self.rows.iter().filter(|row| row.offset >= sealed_end.max(start));
        let kept: Vec<&Got> = seen.iter().filter(|row| row.offset >= sealed_end).collect();
        assert_eq!(kept, tail.collect::<Vec<_>>(), "the tail is not compacted");
        // From anywhere one reads the same rows.
        for from in (start..self.rows.len() as i64).step_by(7) {
            let rest: Vec<Got> = seen.iter().filter(|row| row.offset >= from).cloned().collect();
            assert_eq!(got(self.partition(), from, 1).await, rest, "from {from}");
        }
        if let Some((batch, base)) = &self.last {
            let again = append(self.storage(), self.partition(), batch.clone()).await.expect("retried");
            assert_eq!(again.base_offset.get(), *base, "IDEM-1");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_compacted_log_has_the_final_state_of_the_whole_one(steps in steps(), seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new(seed);
            for step in &steps {
                world.take(step).await;
                if matches!(step, Step::Compact(_) | Step::Restart | Step::Crash(_)) {
                    world.check().await;
                }
            }
            world.take(&Step::Seal).await;
            for _ in 0..3 {
                world.take(&Step::Advance(501)).await;
                world.take(&Step::Compact(MAP_BYTES)).await;
                world.check().await;
            }
            // Once all is clean and old, each key has its newest row alone, and no tombstone is left.
            let rows = got(world.partition(), world.partition().offsets().log_start().get(), 1 << 20).await;
            let keys: std::collections::BTreeSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
            prop_assert_eq!(keys.len(), rows.len());
            prop_assert!(rows.iter().all(|row| row.value.is_some()));
            world.storage().close().expect("closes");
            Ok(())
        })?;
    }
}
