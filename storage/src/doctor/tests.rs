//! A directory is made, spoiled in one place, and the place must be named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::executor::block_on;
use weir_model::config::BrokerConfig;
use weir_model::record_batch::{BatchBuilder, BatchLimits, Compression, ValidBatch};
use weir_model::{ManualClock, Offset, OffsetRange, PartitionId, TimestampType, TopicName};
use weir_table::decode_batch;

use super::*;
use crate::manifest;
use crate::meta::{MetaBatch, MetaStore, RocksMetaStore};
use crate::store::{Storage, StorageOptions};
use crate::topics::{TopicInfo, TopicSpec};

const START_MS: i64 = 1_700_000_000_000;
const ROWS: i64 = 10;

/// Topic `plain` with `.log` segments 0..30 and 30..60, topic `orders` with an `.arrow` segment 0..60; both go on in the WAL to 120.
struct Directory {
    directory: tempfile::TempDir,
    plain: Arc<TopicInfo>,
    orders: Arc<TopicInfo>,
}

impl Directory {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let settings = BTreeMap::from([("weir.wal.segment.bytes".to_owned(), "65536".to_owned())]);
        let config = Arc::new(BrokerConfig::resolve(&settings).expect("accepted"));
        let clock = Arc::new(ManualClock::new(START_MS));
        let storage = Storage::open(StorageOptions::new(directory.path().to_owned(), config, clock)).expect("opens");
        let plain = topic(&storage, "plain", &[]);
        let orders = topic(&storage, "orders", &[("weir.schema", "id BIGINT NOT NULL, item STRING")]);
        for half in 0..2 {
            append(&storage, &plain, 3);
            append(&storage, &orders, 3);
            storage.seal_topic(&plain).expect("sealed");
            if half == 1 {
                storage.seal_topic(&orders).expect("sealed");
            }
        }
        append(&storage, &plain, 6);
        append(&storage, &orders, 6);
        storage.close().expect("closed");
        Self { directory, plain, orders }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn segment(&self, topic: &TopicInfo, file: &str) -> PathBuf {
        let name = crate::partition::topic_directory_name(topic.name().as_str(), topic.id());
        self.path().join("segments").join(name).join("0").join(file)
    }

    fn meta(&self, change: impl FnOnce(MetaBatch) -> MetaBatch) {
        let store = RocksMetaStore::open(self.path().join("meta")).expect("opens");
        store.commit(change(MetaBatch::new())).expect("committed");
    }

    fn check(&self) -> (Summary, Vec<Finding>) {
        let mut findings = Vec::new();
        let summary = check(self.path(), &|_, _| None, &mut |finding| findings.push(finding)).expect("checked");
        (summary, findings)
    }

    /// The findings that are damage.
    fn damages(&self) -> Vec<Finding> {
        let (summary, mut findings) = self.check();
        findings.retain(|finding| finding.level == Level::Damage);
        assert_eq!(summary.damages, findings.len());
        findings
    }

    fn only_damage(&self) -> Finding {
        let mut damages = self.damages();
        assert_eq!(damages.len(), 1, "{damages:#?}");
        damages.remove(0)
    }
}

fn topic(storage: &Storage, name: &str, configs: &[(&str, &str)]) -> Arc<TopicInfo> {
    let configs = configs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let spec = TopicSpec { name: TopicName::new(name).expect("legal"), partitions: 1, configs, internal: false };
    storage.create_topic(spec).expect("made")
}

/// Appends batches of ten rows, each durable before the next: each is a group of the WAL, in a block of its own.
fn append(storage: &Storage, topic: &TopicInfo, batches: usize) {
    let partition = storage.partition(PartitionId { topic: topic.id(), index: 0 }).expect("there");
    for _ in 0..batches {
        let mut builder = BatchBuilder::new(0, Compression::None, TimestampType::CreateTime);
        for row in 0..ROWS {
            builder.push(
                row,
                START_MS + row,
                None,
                Some(format!("{{\"id\": {row}, \"item\": \"tea\"}}").as_bytes()),
                None,
            );
        }
        let limits = BatchLimits { max_bytes: 1 << 20, max_decompressed_bytes: 1 << 20 };
        let batch = ValidBatch::validate(builder.finish(), &limits).expect("valid");
        let columns = topic.table.as_ref().map(|schema| {
            let values: Vec<_> = batch.iter().map(|record| record.expect("framed").value).collect();
            decode_batch(schema, values.into_iter()).expect("rows fit")
        });
        let size = batch.bytes().len();
        let mut admission = block_on(storage.admit([size])).expect("room");
        let seq = partition.append(&mut admission, batch, columns, size, START_MS).expect("appended").seq;
        block_on(storage.durable(seq.expect("new"))).expect("durable");
    }
}

fn flip(path: &Path, position: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[position] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

fn range(start: i64, end: i64) -> OffsetRange {
    OffsetRange::new(Offset::new(start).expect("legal"), Offset::new(end).expect("legal"))
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(directory).expect("listed").map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| path.extension().is_some_and(|found| found == extension));
    found.sort();
    found
}

/// Every file with its content and the time of its last change.
fn everything(directory: &Path, found: &mut BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)>) {
    for entry in std::fs::read_dir(directory).expect("listed") {
        let path = entry.expect("an entry").path();
        let changed = path.metadata().and_then(|metadata| metadata.modified()).expect("a time");
        if path.is_dir() {
            everything(&path, found);
            found.insert(path, (Vec::new(), changed));
        } else {
            let bytes = std::fs::read(&path).expect("read");
            found.insert(path, (bytes, changed));
        }
    }
}

#[test]
fn a_healthy_directory_has_no_damage_and_is_left_as_it_was() {
    let directory = Directory::new();
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    everything(directory.path(), &mut before);
    let (summary, findings) = directory.check();
    everything(directory.path(), &mut after);
    assert!(before == after, "something was changed");
    assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:#?}");
    assert_eq!((summary.topics, summary.partitions, summary.segments, summary.damages), (2, 2, 3, 0));
    for name in ["plain-0", "orders-0"] {
        let finding = findings.iter().find(|finding| finding.partition.as_deref() == Some(name)).expect(name);
        assert_eq!(finding.offsets, [(range(0, 120), Fate::Intact)]);
    }
}

#[test]
fn a_flipped_bit_in_an_arrow_segment_is_named_with_its_offsets() {
    let directory = Directory::new();
    let path = directory.segment(&directory.orders, "00000000000000000000.arrow");
    let size = std::fs::metadata(&path).expect("there").len();
    let mut lost = 0;
    for part in 1..8 {
        let position = usize::try_from(size * part / 8).expect("small");
        flip(&path, position);
        let damage = directory.only_damage();
        assert_eq!((&damage.path, damage.partition.as_deref()), (&path, Some("orders-0")), "{damage}");
        assert!(!damage.offsets.is_empty() && !damage.to_string().contains("weir doctor"), "{damage}");
        lost += usize::from(damage.offsets == [(range(0, 60), Fate::Lost)]);
        flip(&path, position);
    }
    assert!(lost > 0, "some of these bytes hold rows");
}

#[test]
fn a_flipped_bit_in_a_log_segment_loses_its_batch_alone() {
    let directory = Directory::new();
    let path = directory.segment(&directory.plain, "00000000000000000030.log");
    let batch = usize::try_from(std::fs::metadata(&path).expect("there").len()).expect("small") / 3;
    flip(&path, batch + 80);
    let damage = directory.only_damage();
    assert_eq!((&damage.path, damage.partition.as_deref()), (&path, Some("plain-0")), "{damage}");
    assert_eq!(
        damage.offsets,
        [(range(30, 40), Fate::Intact), (range(40, 50), Fate::Lost), (range(50, 60), Fate::Intact)]
    );
    flip(&path, batch + 80);
    // The base offset lies outside the batch's CRC.
    flip(&path, batch + 7);
    assert_eq!(directory.only_damage().offsets, [(range(30, 40), Fate::Intact), (range(40, 60), Fate::Lost)]);
}

#[test]
fn a_damaged_index_is_a_note_because_the_broker_does_without() {
    let directory = Directory::new();
    let path = directory.segment(&directory.plain, "00000000000000000000.timeindex");
    flip(&path, 0);
    let (summary, findings) = directory.check();
    assert_eq!((summary.damages, summary.notes), (0, 1), "{findings:#?}");
}

#[test]
fn a_missing_segment_file_is_named_and_so_is_one_that_nobody_names() {
    let directory = Directory::new();
    let path = directory.segment(&directory.plain, "00000000000000000000.log");
    let moved = directory.segment(&directory.plain, "00000000000000000777.log");
    std::fs::rename(&path, &moved).expect("moved");
    let damage = directory.only_damage();
    assert_eq!(damage.path, path);
    assert!(damage.text.contains("missing"), "{damage}");
    assert_eq!(damage.offsets, [(range(0, 30), Fate::Lost)]);
    let (_, findings) = directory.check();
    assert!(findings.iter().any(|finding| finding.level == Level::Note && finding.path == moved), "{findings:#?}");
}

#[test]
fn a_flipped_bit_in_the_middle_of_the_wal_is_named_with_what_follows() {
    let directory = Directory::new();
    let wal = files(&directory.path().join("wal"), "wal");
    // The last twelve entries are in no segment: six of plain, then six of orders.
    let blocks: Vec<(PathBuf, usize)> = wal
        .iter()
        .flat_map(|path| {
            let bytes = std::fs::read(path).expect("read");
            let groups = (0..bytes.len()).step_by(4096).filter(|at| &bytes[*at..at + 4] == b"WWL1").collect::<Vec<_>>();
            groups.into_iter().map(|at| (path.clone(), at))
        })
        .collect();
    assert_eq!(blocks.len(), 24, "every batch is a group");
    let (path, position) = &blocks[14];
    flip(path, position + 100);
    let damages = directory.damages();
    assert_eq!(damages.len(), 2, "{damages:#?}");
    assert_eq!(&damages[0].path, path);
    for part in [
        format!("byte {position}:"),
        "plain-0".to_owned(),
        "entries 15..16 ".to_owned(),
        "entries 16..25 follow".to_owned(),
    ] {
        assert!(damages[0].text.contains(&part), "{part}: {}", damages[0]);
    }
    assert_eq!(damages[1].partition.as_deref(), Some("plain-0"));
    assert_eq!(damages[1].offsets, [(range(80, 90), Fate::Lost)]);
    // The header gone too, and another place further on.
    flip(path, position + 3);
    flip(&blocks[20].0, blocks[20].1 + 100);
    let damages = directory.damages();
    assert_eq!(damages.len(), 4, "{damages:#?}");
    assert!(damages[0].text.contains("entries 16..21 follow"), "{}", damages[0]);
    assert_eq!(damages[2].partition.as_deref().min(damages[3].partition.as_deref()), Some("orders-0"));
}

#[test]
fn a_torn_tail_is_normal() {
    let directory = Directory::new();
    let path = files(&directory.path().join("wal"), "wal").pop().expect("one");
    let mut bytes = std::fs::read(&path).expect("read");
    // As a kill leaves it: no end mark, the last group half written.
    let end = (0..bytes.len()).step_by(4096).find(|at| &bytes[*at..at + 4] == b"WWLX").expect("an end mark");
    bytes[end..].fill(0);
    bytes[end - 4096 + 100..end].fill(0);
    std::fs::write(&path, bytes).expect("written");
    let (summary, findings) = directory.check();
    assert_eq!(summary.damages, 0, "{findings:#?}");
    let note = findings.iter().find(|finding| finding.level == Level::Note).expect("a note");
    assert!(note.path == path && note.text.contains("torn tail"), "{note}");
}

#[test]
fn a_missing_wal_file_leaves_a_hole_that_is_named() {
    let directory = Directory::new();
    let wal = files(&directory.path().join("wal"), "wal");
    assert!(wal.len() > 1, "the log has several files");
    std::fs::remove_file(wal.last().expect("one")).expect("removed");
    assert!(directory.check().0.damages == 0, "nothing says that there was more");
    std::fs::remove_dir_all(directory.path().join("wal")).expect("removed");
    assert_eq!(directory.only_damage().path, directory.path().join("wal"));
}

#[test]
fn values_that_do_not_decode_are_named_with_their_key() {
    let directory = Directory::new();
    let plain = PartitionId { topic: directory.plain.id(), index: 0 };
    let keys = [
        manifest::topic_key(plain.topic),
        manifest::partition_key(plain),
        manifest::producers_key(plain),
        manifest::segment_key(plain, Offset::new(30).expect("legal")),
    ];
    let store = RocksMetaStore::open(directory.path().join("meta")).expect("opens");
    let values: Vec<_> = keys.iter().map(|key| store.get(key.as_bytes()).expect("read").expect("there")).collect();
    drop(store);
    for (key, value) in keys.iter().zip(values) {
        let mut damaged = value.to_vec();
        damaged[0] ^= 1;
        directory.meta(|batch| batch.put(key.clone(), damaged));
        let damage = directory.only_damage();
        assert_eq!(damage.path, directory.path().join("meta"));
        assert!(damage.text.contains(key) || damage.offsets == [(range(30, 60), Fate::InDoubt)], "{key}: {damage}");
        let (_, findings) = directory.check();
        assert!(!findings.iter().any(|finding| finding.text.contains("left over")), "{findings:#?}");
        directory.meta(|batch| batch.put(key.clone(), value));
    }
    directory.meta(|batch| batch.put("elsewhere/key", "value"));
    let (summary, findings) = directory.check();
    assert_eq!((summary.damages, summary.notes), (0, 1), "{findings:#?}");
}

#[test]
fn a_flipped_bit_in_rocksdb_is_damage_of_the_metadata() {
    let directory = Directory::new();
    let meta = directory.path().join("meta");
    let log = files(&meta, "log").into_iter().max_by_key(|path| path.metadata().expect("there").len()).expect("one");
    let middle = std::fs::read(&log).expect("read").len() / 2;
    flip(&log, middle);
    let damages = directory.damages();
    assert!(damages.iter().any(|damage| damage.path == meta), "{damages:#?}");
}

#[test]
fn segments_that_do_not_join_are_named() {
    let directory = Directory::new();
    let plain = PartitionId { topic: directory.plain.id(), index: 0 };
    directory.meta(|batch| batch.delete(manifest::segment_key(plain, Offset::ZERO)));
    let damage = directory.only_damage();
    assert_eq!(
        (damage.partition.as_deref(), &damage.offsets[..]),
        (Some("plain-0"), &[(range(0, 30), Fate::Lost)][..])
    );
    directory.meta(|batch| batch.delete(manifest::segment_key(plain, Offset::new(30).expect("legal"))));
    assert_eq!(directory.only_damage().offsets, [(range(0, 60), Fate::Lost)]);
}

#[test]
fn a_local_copy_dropped_before_the_lake_has_it_is_damage() {
    let directory = Directory::new();
    let plain = PartitionId { topic: directory.plain.id(), index: 0 };
    let key = manifest::segment_key(plain, Offset::ZERO);
    let store = RocksMetaStore::open(directory.path().join("meta")).expect("opens");
    let read = |key: &str| store.get(key.as_bytes()).expect("read").expect("there");
    let segment: manifest::SegmentRecord = manifest::decode(&key, &read(&key)).expect("decodes");
    let record: manifest::PartitionRecord =
        manifest::decode("", &read(&manifest::partition_key(plain))).expect("decodes");
    drop(store);
    directory.meta(|batch| batch.put(key, manifest::encode(&manifest::SegmentRecord { local: false, ..segment })));
    let lake_end = |end| manifest::encode(&manifest::PartitionRecord { lake_end: Offset::new(end), ..record });
    directory.meta(|batch| batch.put(manifest::partition_key(plain), lake_end(20)));
    let damage = directory.only_damage();
    assert!(damage.text.contains("LAKE-2"), "{damage}");
    assert_eq!(damage.offsets, [(range(20, 30), Fate::Lost)]);
    directory.meta(|batch| batch.put(manifest::partition_key(plain), lake_end(30)));
    let (summary, findings) = directory.check();
    assert_eq!((summary.damages, summary.notes), (0, 3), "the files are left over: {findings:#?}");
}

#[test]
fn a_directory_without_weir_in_it_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = check(directory.path(), &|_, _| None, &mut |_| {}).expect_err("refused");
    assert!(matches!(refused, DoctorError::NoData(_)));
}
