//! Merging, seen by readers, retention, producers and the next start.
//!
//! Seals are the partition's own here, which do not ask the merger: a test says itself when a merge happens. The one test of
//! the merger seals through the storage.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::partition::merge::Merge;
use crate::segment::SegmentKind;

const TABLE: &[(&str, &str)] = &[("weir.schema", ORDERS)];
const KINDS: [(&str, &[(&str, &str)], SegmentKind); 2] =
    [("raw", &[], SegmentKind::Log), ("table", TABLE, SegmentKind::Arrow)];

/// Seals `count` stretches of `rows` orders each, from order `first` on. Every second batch is compressed.
async fn seal_stretches(storage: &Storage, partition: &Partition, first: usize, count: usize, rows: usize) {
    for stretch in 0..count {
        let start = first + stretch * rows;
        let codec = if stretch % 2 == 0 { Compression::None } else { Compression::Zstd };
        append(storage, partition, batch_of(&orders(start..start + rows), codec)).await.expect("appended");
        partition.seal().expect("sealed").expect("there was something");
    }
}

/// Merges until nothing is due; how many merges that took.
fn merge_all(partition: &Partition) -> usize {
    let mut merges = 0;
    while let Merge::Done(meta) = partition.merge().expect("merged") {
        assert!(meta.generation > 0);
        merges += 1;
    }
    merges
}

/// Names of the segment files, sidecars left out.
fn files(partition: &Partition) -> Vec<String> {
    let names = std::fs::read_dir(&partition.inner.directory).expect("listed");
    let names = names.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    let mut names: Vec<String> = names.filter(|name| !name.ends_with("index")).collect();
    names.sort();
    names
}

/// A copy of every file of the partition, sidecars included.
fn copy_files(partition: &Partition) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(&partition.inner.directory).expect("listed");
    entries
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.clone(), std::fs::read(path).expect("read")))
        .collect()
}

fn put_back(files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files.iter().filter(|(path, _)| !path.exists()) {
        std::fs::write(path, bytes).expect("written");
    }
}

/// All that a reader can see: rows from every offset, projected rows, Arrow values, columns, and every timestamp's offset.
#[derive(Debug, PartialEq)]
struct Seen {
    rows: Vec<Vec<(i64, Vec<u8>, Vec<u8>)>>,
    projected: Vec<(i64, Vec<u8>, Vec<u8>)>,
    ids: Vec<i64>,
    raw_rows: usize,
    times: Vec<Option<(i64, i64)>>,
}

async fn see(partition: &Partition, table: bool) -> Seen {
    let end = partition.offsets().log_end();
    let mut seen = Seen { rows: Vec::new(), projected: Vec::new(), ids: Vec::new(), raw_rows: 0, times: Vec::new() };
    for from in 0..end.get() {
        seen.rows.push(read_all(partition, from, 900, &RowForm::default()).await);
    }
    if table {
        let form = RowForm { columns: Some(Arc::from([0usize, 2])), format: ReadFormat::Rows };
        seen.projected = read_all(partition, 3, 500, &form).await;
    }
    let mut at = Offset::ZERO;
    while at < end {
        let read = partition.read_columns(at, end, None, 1 << 16).await.expect("readable");
        for columns in &read.batches {
            let schema = partition.topic().columns().log_schema();
            assert_eq!(columns.schema().fields(), schema.fields(), "columns are those of the log schema");
            seen.ids.extend(columns.column(0).as_primitive::<Int64Type>().values().iter().copied());
            let raw = columns.column_by_name("_value_raw").expect("there");
            seen.raw_rows += raw.len() - raw.null_count();
        }
        assert!(read.next > at, "a read moves on");
        at = read.next;
    }
    for delta in 0..12 {
        let hit = partition.offset_for_timestamp(START_MS + delta, Isolation::ReadCommitted).await.expect("readable");
        seen.times.push(hit.map(|hit| (hit.offset.get(), hit.timestamp_ms)));
    }
    seen
}

#[tokio::test]
async fn rows_columns_and_timestamps_read_the_same_after_a_merge_and_after_a_restart() {
    for (name, configs, kind) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        seal_stretches(&storage, &partition, 0, 9, 10).await;
        append(&storage, &partition, batch_of(&orders(90..95), Compression::None)).await.expect("appended");
        let before = see(&partition, kind == SegmentKind::Arrow).await;
        assert_eq!(values_of(&before.rows[0]), orders(0..95), "{name}");
        let stored = read_all(&partition, 0, 1 << 20, &RowForm::default()).await;

        let Merge::Done(meta) = partition.merge().expect("merged") else {
            panic!("{name}: nine small ones are merged")
        };
        assert_eq!((meta.kind, meta.rows, meta.range.start.get(), meta.range.end.get()), (kind, 90, 0, 90), "{name}");
        assert_eq!(partition.merge().expect("looked"), Merge::NotDue);
        let extension = if kind == SegmentKind::Log { "log" } else { "arrow" };
        assert_eq!(files(&partition), [format!("00000000000000000000.1.{extension}")], "{name}: the inputs are gone");
        let status = partition.status();
        assert_eq!((status.local_segments, status.local_bytes), (1, meta.size_bytes), "{name}");
        assert_eq!(storage.counters().merged_segments.load(Ordering::Relaxed), 9);
        assert_eq!(see(&partition, kind == SegmentKind::Arrow).await, before, "{name}: merged");
        storage.close().expect("closes");
        drop((partition, storage));

        let storage = bench.open();
        let partition = first_partition(&storage, &topic);
        assert_eq!(partition.status().local_segments, 1, "{name}");
        assert_eq!(see(&partition, kind == SegmentKind::Arrow).await, before, "{name}: restarted");
        assert_eq!(read_all(&partition, 0, 1 << 20, &RowForm::default()).await, stored, "{name}: restarted");
        // What follows joins, and a merge of a merged segment has the next generation.
        seal_stretches(&storage, &partition, 95, 40, 10).await;
        assert!(merge_all(&partition) > 0, "{name}");
        assert_eq!(values_of(&read_all(&partition, 0, 5000, &RowForm::default()).await), orders(0..495), "{name}");
    }
}

#[tokio::test]
async fn a_log_segment_is_merged_byte_for_byte() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    // Batches over 64 KB take their CRC along, smaller ones have it computed.
    let large: Vec<String> = (0..10).map(|index| format!("{index}").repeat(9_000)).collect();
    append(&storage, &partition, batch_of(&large, Compression::None)).await.expect("appended");
    seal_stretches(&storage, &partition, 10, 40, 40).await;
    let mut expected = Vec::new();
    for (meta, _) in partition.segments() {
        expected.extend(std::fs::read(partition.inner.directory.join(&meta.file)).expect("read"));
    }
    assert!(merge_all(&partition) > 0);
    let mut found = Vec::new();
    for (meta, _) in partition.segments() {
        found.extend(std::fs::read(partition.inner.directory.join(&meta.file)).expect("read"));
    }
    assert!(found == expected, "the batches lie as they lay");
}

#[tokio::test]
async fn blocks_are_filled_and_a_decoded_block_is_not_taken_for_another_generations() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "orders", TABLE);
    let partition = first_partition(&storage, &topic);
    seal_stretches(&storage, &partition, 0, 8, 20).await;
    // The first input's block 0 is in the cache now, under the base offset that the merged segment also has.
    assert_eq!(read_all(&partition, 0, 100, &RowForm::default()).await.len(), 160);
    assert_eq!(merge_all(&partition), 1);
    let Some(Segment::Arrow(segment)) = partition.inner.state.lock().segments.values().next().cloned() else {
        panic!("one segment of columns")
    };
    assert_eq!(segment.blocks().expect("undamaged").len(), 1, "eight blocks of 20 rows became one");
    assert_eq!(values_of(&read_all(&partition, 0, 100, &RowForm::default()).await), orders(0..160));
}

#[tokio::test]
async fn a_reader_that_holds_an_input_reads_on() {
    use std::os::unix::fs::FileExt;
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    seal_stretches(&storage, &partition, 0, 8, 10).await;
    let limits = ReadLimits { max_bytes: 100, at_least_one: true };
    let read =
        partition.read_rows(Offset::ZERO, limits, Isolation::ReadCommitted, &RowForm::default()).await.expect("read");
    assert_eq!(merge_all(&partition), 1);
    let [Chunk::File { file, position, len }] = &read.chunks[..] else { panic!("a slice of the file") };
    let mut bytes = vec![0; *len];
    file.read_exact_at(&mut bytes, *position).expect("the removed file can still be read");
    assert_eq!(batches_in(Bytes::from(bytes)).len(), 1);
    assert_eq!(values_of(&read_all(&partition, read.next.get(), 100, &RowForm::default()).await), orders(10..80));
}

#[tokio::test]
async fn retention_that_takes_an_input_overtakes_the_merge() {
    for (name, configs, _) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        seal_stretches(&storage, &partition, 0, 9, 10).await;
        let prepared = partition.prepare_merge().expect("written").expect("due");
        partition.advance_log_start(Offset::new(15).expect("not negative")).expect("moved");
        let before = files(&partition);
        assert_eq!(before.len(), 8 + 1, "{name}: eight inputs are left, and the merged file");
        assert_eq!(partition.publish_merge(prepared).expect("looked"), Merge::Overtaken, "{name}");
        assert_eq!(files(&partition).len(), 8, "{name}: the merged file was dropped");
        assert_eq!(values_of(&read_all(&partition, 15, 900, &RowForm::default()).await), orders(15..90), "{name}");
        // The rest is merged; its first segment lies partly below the log start.
        assert_eq!(merge_all(&partition), 1, "{name}");
        assert_eq!(values_of(&read_all(&partition, 15, 900, &RowForm::default()).await), orders(15..90), "{name}");
        storage.close().expect("closes");
        drop((partition, storage));
        let storage = bench.open();
        let partition = first_partition(&storage, &topic);
        assert_eq!(values_of(&read_all(&partition, 15, 900, &RowForm::default()).await), orders(15..90), "{name}");
        partition.advance_log_start(Offset::new(90).expect("not negative")).expect("moved");
        assert!(files(&partition).is_empty(), "{name}: the merged file goes whole");
    }
}

#[tokio::test]
async fn retention_stays_exact_where_segments_are_merged() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    // A stretch is about 1 KB, so without a limit all of them would be one segment, and retention would keep all or nothing.
    let topic = make_topic(&storage, "t", &[("retention.bytes", "60000")]);
    let partition = first_partition(&storage, &topic);
    for stretch in 0..200 {
        seal_stretches(&storage, &partition, stretch * 10, 1, 10).await;
        merge_all(&partition);
    }
    storage.retain();
    let status = partition.status();
    assert!((60_000..=60_000 + 60_000 / 8).contains(&status.local_bytes), "{status:?}");
    assert!(status.local_segments <= 60, "{status:?}");
}

#[tokio::test]
async fn a_seal_during_a_merge_is_kept() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    seal_stretches(&storage, &partition, 0, 8, 10).await;
    let prepared = partition.prepare_merge().expect("written").expect("due");
    seal_stretches(&storage, &partition, 80, 1, 10).await;
    assert!(matches!(partition.publish_merge(prepared).expect("named"), Merge::Done(_)));
    assert_eq!(partition.status().local_segments, 2);
    assert_eq!(values_of(&read_all(&partition, 0, 900, &RowForm::default()).await), orders(0..90));
}

#[tokio::test]
async fn a_deleted_topic_ends_its_merge() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    seal_stretches(&storage, &partition, 0, 8, 10).await;
    let prepared = partition.prepare_merge().expect("written").expect("due");
    storage.delete_topic(topic.id()).expect("deleted");
    assert_eq!(partition.publish_merge(prepared).expect("looked"), Merge::Overtaken);
    assert_eq!(partition.merge().expect("looked"), Merge::NotDue);
    assert!(!partition.inner.directory.exists());
}

#[tokio::test]
async fn a_crash_before_the_commit_leaves_the_inputs_in_place() {
    for (name, configs, _) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        seal_stretches(&storage, &partition, 0, 8, 10).await;
        let prepared = partition.prepare_merge().expect("written").expect("due");
        std::fs::write(partition.inner.directory.join("00000000000000000000.1.log.tmp"), b"half").expect("written");
        storage.close().expect("closes");
        drop((prepared, partition, storage));

        // The merger of this start finishes the work, at once or in a moment: rows are the same meanwhile.
        let storage = bench.open();
        let partition = first_partition(&storage, &topic);
        assert_eq!(values_of(&read_all(&partition, 0, 900, &RowForm::default()).await), orders(0..80), "{name}");
        merge_all(&partition);
        assert_eq!(partition.status().local_segments, 1, "{name}");
        assert_eq!(files(&partition).len(), 1, "{name}: the leftover of the same name was replaced, the .tmp removed");
        assert_eq!(values_of(&read_all(&partition, 0, 900, &RowForm::default()).await), orders(0..80), "{name}");
    }
}

#[tokio::test]
async fn a_crash_after_the_commit_leaves_inputs_that_the_next_start_removes() {
    for (name, configs, _) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        seal_stretches(&storage, &partition, 0, 8, 10).await;
        let inputs = copy_files(&partition);
        assert_eq!(merge_all(&partition), 1);
        seal_stretches(&storage, &partition, 80, 1, 10).await;
        let expected = files(&partition);
        put_back(&inputs);
        storage.close().expect("closes");
        drop((partition, storage));

        let storage = bench.open();
        let partition = first_partition(&storage, &topic);
        assert_eq!(files(&partition), expected, "{name}");
        let sidecars = copy_files(&partition).len() - expected.len();
        // The merged segment has its two; the stretch after it is too small for any.
        assert_eq!(sidecars, if name == "raw" { 2 } else { 0 }, "{name}: the inputs' sidecars went with them");
        assert_eq!(values_of(&read_all(&partition, 0, 900, &RowForm::default()).await), orders(0..90), "{name}");
    }
}

#[tokio::test]
async fn a_file_that_no_manifest_names_stays_unless_a_whole_merged_segment_covers_it() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    seal_stretches(&storage, &partition, 0, 8, 10).await;
    let inputs = copy_files(&partition);
    seal_stretches(&storage, &partition, 80, 1, 10).await;
    let Merge::Done(merged) = partition.merge().expect("merged") else { panic!("due") };
    let directory = partition.inner.directory.clone();
    let stray = |name: &str, bytes: &[u8]| {
        std::fs::write(directory.join(name), bytes).expect("written");
        name.to_owned()
    };
    let input = |name: &str| inputs.iter().find(|(path, _)| path.ends_with(name)).expect("an input").1.clone();
    let whole = std::fs::read(directory.join(&merged.file)).expect("read");
    let mut strays = [
        // A file above what is named, one of no lower generation, one that reaches past the merged segment, one that does
        // not read, and one that is none of ours.
        stray("00000000000000000900.log", &input("00000000000000000000.log")),
        stray("00000000000000000000.2.log", &input("00000000000000000000.log")),
        stray("00000000000000000010.log", b"not a batch at all, but somebody's bytes"),
        stray("notes.txt", b"of an operator"),
    ]
    .to_vec();
    strays.push(merged.file.clone());
    strays.sort();
    storage.close().expect("closes");
    drop((partition, storage));
    let storage = bench.open();
    let partition = first_partition(&storage, &topic);
    assert_eq!(files(&partition), strays);
    storage.close().expect("closes");
    drop((partition, storage));

    // The merged segment is damaged: what may be the last good copy stays.
    put_back(&inputs);
    let mut damaged = whole;
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::write(directory.join(&merged.file), damaged).expect("written");
    let storage = bench.open();
    let partition = first_partition(&storage, &topic);
    let found = files(&partition);
    // 0 and 20 to 70 were put back, 10 was there.
    assert_eq!(found.iter().filter(|name| name.len() == "00000000000000000000.log".len()).count(), 8 + 1, "{found:?}");
}

#[tokio::test]
async fn producers_are_known_as_before_after_a_merge() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    let batches: Vec<ValidBatch> = (0..10i32)
        .map(|index| {
            let start = usize::try_from(index).expect("small") * 3;
            idempotent(&batch_of(&orders(start..start + 3), Compression::None), 42, index * 3)
        })
        .collect();
    for batch in &batches {
        append(&storage, &partition, batch.clone()).await.expect("appended");
        partition.seal().expect("sealed");
    }
    assert_eq!(merge_all(&partition), 1);
    assert_eq!(append(&storage, &partition, batches[9].clone()).await.expect("retried").base_offset.get(), 27);
    storage.close().expect("closes");
    drop((partition, storage));

    let storage = bench.open();
    let partition = first_partition(&storage, &topic);
    assert_eq!(append(&storage, &partition, batches[8].clone()).await.expect("retried").base_offset.get(), 24);
    let hole = idempotent(&batch_of(&orders(0..1), Compression::None), 42, 99);
    assert!(matches!(append(&storage, &partition, hole).await, Err(AppendError::Sequence(_))));
    let next = idempotent(&batch_of(&orders(30..31), Compression::None), 42, 30);
    assert_eq!(append(&storage, &partition, next).await.expect("appended").base_offset.get(), 30);
    assert_eq!(values_of(&read_all(&partition, 0, 900, &RowForm::default()).await), orders(0..31));
}

#[tokio::test]
async fn a_hundred_small_seals_leave_few_files() {
    for (name, configs, _) in KINDS {
        let bench = Bench::new(&[]);
        let storage = bench.open();
        let topic = make_topic(&storage, name, configs);
        let partition = first_partition(&storage, &topic);
        let mut most = 0;
        for stretch in 0..100 {
            seal_stretches(&storage, &partition, stretch * 10, 1, 10).await;
            merge_all(&partition);
            most = most.max(files(&partition).len());
        }
        // Up to seven of each of three sizes: as sealed, eight times that, sixty-four times that.
        assert!(most <= 21, "{name}: {most} files at a time");
        assert_eq!(values_of(&read_all(&partition, 0, 5000, &RowForm::default()).await), orders(0..1000), "{name}");
    }
}

#[tokio::test]
async fn the_merger_is_asked_after_a_seal() {
    let bench = Bench::new(&[]);
    let storage = bench.open();
    let topic = make_topic(&storage, "t", &[]);
    let partition = first_partition(&storage, &topic);
    for start in 0..8 {
        append(&storage, &partition, batch_of(&orders(start * 10..start * 10 + 10), Compression::None))
            .await
            .expect("appended");
        storage.seal_topic(&topic).expect("sealed");
    }
    let patience = Instant::now() + Duration::from_secs(20);
    while partition.status().local_segments > 1 {
        assert!(Instant::now() < patience, "the merger does not merge");
        tokio::task::yield_now().await;
    }
    assert_eq!(values_of(&read_all(&partition, 0, 900, &RowForm::default()).await), orders(0..80));
    storage.close().expect("closes");
    assert_eq!(partition.merge().expect("looked"), Merge::NotDue, "nothing is merged after the end");
}
