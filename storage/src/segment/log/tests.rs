use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use weir_model::record_batch::{AssignedBatch, BatchBuilder, BatchHeader, Compression};
use weir_model::{LeaderEpoch, Offset, TimestampType};

use super::super::{SegmentError, SegmentMeta, TimestampMatch, remove_segment, remove_temporary_files};
use super::{LogRead, LogSegment, LogSegmentWriter};

fn at(offset: i64) -> Offset {
    Offset::new(offset).expect("not negative")
}

/// A batch of records one offset apart, with these timestamps.
fn batch(base_offset: i64, codec: Compression, timestamps: &[i64]) -> AssignedBatch {
    let mut builder = BatchBuilder::new(base_offset, codec, TimestampType::CreateTime).leader_epoch(4);
    for (delta, timestamp) in timestamps.iter().enumerate() {
        let value = format!("value {base_offset} {delta} {}", "x".repeat(40));
        builder.push(base_offset + delta as i64, *timestamp, Some(b"key"), Some(value.as_bytes()), None);
    }
    AssignedBatch::from_stored(builder.finish(), true).expect("a batch just built is valid")
}

/// `count` batches of four records, from offset 100 on, one offset left out after each; ten milliseconds a record.
fn batches(count: i64) -> Vec<AssignedBatch> {
    let codecs = [Compression::None, Compression::Zstd, Compression::Lz4];
    (0..count)
        .map(|index| {
            let base_offset = 100 + index * 5;
            let timestamps: Vec<i64> = (0..4).map(|delta| 1_000_000 + (base_offset + delta) * 10).collect();
            batch(base_offset, codecs[(index % 3) as usize], &timestamps)
        })
        .collect()
}

fn write(dir: &Path, batches: &[AssignedBatch]) -> SegmentMeta {
    let mut writer = LogSegmentWriter::create(dir, at(100)).expect("create");
    for batch in batches {
        writer.append(batch).expect("append");
    }
    writer.finish(77).expect("finish")
}

fn sealed(count: i64) -> (tempfile::TempDir, SegmentMeta, Vec<AssignedBatch>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let batches = batches(count);
    let meta = write(dir.path(), &batches);
    (dir, meta, batches)
}

fn bytes_of(read: &LogRead) -> Vec<u8> {
    let mut bytes = vec![0; read.len];
    read.file.read_exact_at(&mut bytes, read.position).expect("read");
    bytes
}

fn joined<'a>(batches: impl IntoIterator<Item = &'a AssignedBatch>) -> Vec<u8> {
    batches.into_iter().flat_map(|batch| batch.to_bytes()).collect()
}

#[test]
fn what_was_appended_is_what_the_file_holds() {
    let (dir, meta, batches) = sealed(500);
    assert_eq!(meta.file, "00000000000000000100.log");
    assert_eq!(std::fs::read(dir.path().join(&meta.file)).expect("read"), joined(&batches));
    assert_eq!((meta.range.start, meta.range.end), (at(100), at(100 + 499 * 5 + 4)));
    assert_eq!((meta.rows, meta.created_ms, meta.min_timestamp), (2000, 77, 1_001_000));
    let segment = LogSegment::open(dir.path(), &meta).expect("open");
    segment.verify().expect("undamaged");
    let back: Result<Vec<_>, _> = segment.batches(Offset::ZERO).expect("batches").collect();
    assert_eq!(joined(&back.expect("undamaged")), joined(&batches));
}

#[test]
fn a_read_starts_with_the_batch_that_holds_the_offset_and_ends_with_a_whole_one() {
    let (dir, meta, batches) = sealed(500);
    let segment = LogSegment::open(dir.path(), &meta).expect("open");
    for from in [0, 100, 101, 104, 105, 733, 1500, 2598] {
        let first = batches.iter().position(|batch| batch.header().last_offset() >= from).expect("there is one");
        for max_bytes in [400, 5_000, 30_000, 100_000, 10_000_000] {
            let read = segment.read(at(from), max_bytes, true).expect("read");
            let bytes = bytes_of(&read);
            let mut fitting = 0;
            let mut size = 0;
            for batch in &batches[first..] {
                if fitting > 0 && size + batch.size() > max_bytes {
                    break;
                }
                size += batch.size();
                fitting += 1;
            }
            assert_eq!(bytes, joined(&batches[first..first + fitting]), "from {from}, {max_bytes} bytes");
            let next = batches.get(first + fitting).map_or(meta.range.end, |batch| at(batch.header().base_offset));
            assert_eq!(read.next, next, "from {from}, {max_bytes} bytes");
        }
    }
}

#[test]
fn a_batch_over_the_limit_is_given_only_when_one_is_due() {
    let (dir, meta, batches) = sealed(5);
    let segment = LogSegment::open(dir.path(), &meta).expect("open");
    let due = segment.read(at(105), 1, true).expect("read");
    assert_eq!((due.len, due.next), (batches[1].size(), at(110)));
    let not_due = segment.read(at(105), 1, false).expect("read");
    assert_eq!((not_due.len, not_due.next), (0, at(105)));
}

#[test]
fn a_read_past_the_last_batch_is_empty() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut writer = LogSegmentWriter::create(dir.path(), at(100)).expect("create");
    writer.append(&batches(1)[0]).expect("append");
    writer.cover_to(at(200));
    let meta = writer.finish(0).expect("finish");
    let segment = LogSegment::open(dir.path(), &meta).expect("open");
    let read = segment.read(at(150), 1000, true).expect("read");
    assert_eq!((read.len, read.next), (0, at(200)));
}

#[test]
fn a_timestamp_is_found_inside_compressed_batches() {
    let (dir, meta, _) = sealed(500);
    let segment = LogSegment::open(dir.path(), &meta).expect("open");
    let find = |timestamp, from| segment.offset_for_timestamp(timestamp, at(from)).expect("search");
    for offset in [100, 101, 106, 733, 2598] {
        let timestamp = 1_000_000 + offset * 10;
        let expected = TimestampMatch { offset: at(offset), timestamp, leader_epoch: Some(LeaderEpoch(4)) };
        assert_eq!(find(timestamp, 0), Some(expected));
        assert_eq!(find(timestamp - 9, 0), Some(expected));
    }
    assert_eq!(find(0, 733).map(|found| found.offset), Some(at(733)), "records below `from` do not count");
    assert_eq!(find(meta.max_timestamp + 1, 0), None);
}

#[test]
fn out_of_order_timestamps_are_found_in_offset_order() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let all: Vec<_> = (0..300)
        .map(|index| {
            let late = if index == 200 { 9_000 } else { 0 };
            batch(100 + index * 3, Compression::Zstd, &[5_000 - index, late + 100 + index, 7])
        })
        .collect();
    let meta = write(dir.path(), &all);
    let segment = LogSegment::open(dir.path(), &meta).expect("open");
    for target in [1, 7, 101, 301, 4_900, 5_000, 5_001, 9_300, 9_301] {
        let naive = (0..300_i64).find_map(|index| {
            let late = if index == 200 { 9_000 } else { 0 };
            let at = [5_000 - index, late + 100 + index, 7].iter().position(|timestamp| *timestamp >= target)?;
            Some(100 + index * 3 + at as i64)
        });
        let found = segment.offset_for_timestamp(target, Offset::ZERO).expect("search");
        assert_eq!(found.map(|found| found.offset.get()), naive, "timestamp {target}");
    }
}

#[test]
fn the_indexes_are_what_kafka_dump_log_checks() {
    let (dir, meta, batches) = sealed(2000);
    let log = std::fs::read(dir.path().join(&meta.file)).expect("read");
    let path = dir.path().join(&meta.file);
    let index = std::fs::read(path.with_extension("index")).expect("read");
    assert!(index.len() >= 8 * 5, "{} bytes", index.len());
    for entry in index.chunks(8) {
        let relative = i32::from_be_bytes(entry[..4].try_into().expect("4 bytes"));
        let position = i32::from_be_bytes(entry[4..].try_into().expect("4 bytes"));
        let header = BatchHeader::parse(&log[position as usize..]).expect("a batch begins there");
        assert_eq!(header.last_offset(), 100 + i64::from(relative));
    }
    let times = std::fs::read(path.with_extension("timeindex")).expect("read");
    let mut previous = -1;
    for entry in times.chunks(12) {
        let timestamp = i64::from_be_bytes(entry[..8].try_into().expect("8 bytes"));
        let offset = 100 + i64::from(i32::from_be_bytes(entry[8..].try_into().expect("4 bytes")));
        let batch = batches.iter().find(|batch| batch.header().last_offset() == offset).expect("a last offset");
        assert_eq!(batch.header().max_timestamp, timestamp);
        assert!(timestamp > previous);
        previous = timestamp;
    }
    assert_eq!(previous, meta.max_timestamp);
}

#[test]
fn damaged_or_missing_indexes_change_no_answer() {
    let (dir, meta, _) = sealed(500);
    let path = dir.path().join(&meta.file);
    let expected = LogSegment::open(dir.path(), &meta).expect("open").read(at(1500), 1000, true).expect("read");
    for damage in ["missing", "flipped", "short"] {
        let index = path.with_extension("index");
        let mut bytes = std::fs::read(&index).unwrap_or_default();
        match damage {
            "missing" => std::fs::remove_file(&index).expect("remove"),
            "flipped" => {
                bytes = vec![9; 80];
                std::fs::write(&index, &bytes).expect("write");
            }
            _ => std::fs::write(&index, &bytes[..5]).expect("write"),
        }
        let segment = LogSegment::open(dir.path(), &meta).expect("open");
        let read = segment.read(at(1500), 1000, true).expect("read");
        assert_eq!((read.position, read.len, read.next), (expected.position, expected.len, expected.next), "{damage}");
        assert!(segment.offset_for_timestamp(1_015_000, Offset::ZERO).expect("search").is_some());
        assert!(segment.verify().expect_err("verify names the index").is_corrupt());
    }
}

#[test]
fn offsets_that_go_back_are_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut writer = LogSegmentWriter::create(dir.path(), at(100)).expect("create");
    let batches = batches(2);
    writer.append(&batches[1]).expect("append");
    assert!(matches!(writer.append(&batches[0]), Err(SegmentError::OffsetsNotRising { previous: 108, found: 100 })));
    assert!(matches!(writer.append(&batches[1]), Err(SegmentError::OffsetsNotRising { .. })));
}

#[test]
fn an_offset_too_far_from_the_base_needs_another_segment() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut writer = LogSegmentWriter::create(dir.path(), at(0)).expect("create");
    let far = batch(i64::from(i32::MAX) + 1, Compression::None, &[1]);
    assert!(!writer.fits(&far));
    assert!(matches!(writer.append(&far), Err(SegmentError::Full { .. })));
    assert!(matches!(writer.finish(0), Err(SegmentError::Empty)));
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0, "nothing is left behind");
}

#[test]
fn leftovers_and_segments_are_removed_whole() {
    let (dir, meta, _) = sealed(10);
    std::fs::write(dir.path().join("00000000000000000900.log.tmp"), b"half").expect("write");
    assert_eq!(remove_temporary_files(dir.path()).expect("remove"), 1);
    remove_segment(dir.path(), &meta).expect("remove");
    remove_segment(dir.path(), &meta).expect("a second time is fine");
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
}

#[test]
fn the_meta_survives_json() {
    let (_dir, meta, _) = sealed(3);
    let text = serde_json::to_string(&meta).expect("encode");
    assert_eq!(serde_json::from_str::<SegmentMeta>(&text).expect("decode"), meta);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_flipped_bit_is_found_by_verify_and_no_read_panics(place in 0.0..1.0_f64, bit in 0..8_u8, from in 90..700_i64) {
        let (dir, meta, _) = sealed(100);
        let path = dir.path().join(&meta.file);
        let mut bytes = std::fs::read(&path).expect("read");
        let position = ((bytes.len() as f64) * place) as usize;
        bytes[position] ^= 1 << bit;
        std::fs::write(&path, &bytes).expect("write");
        let segment = LogSegment::open(dir.path(), &meta).expect("the size is the same");
        prop_assert!(segment.verify().is_err());
        // Not all damage shows in headers; whatever is answered, no panic and no endless walk.
        let _ = segment.read(at(from), 2_000, true);
        let _ = segment.offset_for_timestamp(1_000_000 + from * 10, at(from));
        std::fs::remove_file(path.with_extension("index")).expect("remove");
        let _ = LogSegment::open(dir.path(), &meta).expect("open").read(at(from), 2_000, true);
        for batch in segment.batches(at(from)).into_iter().flatten() {
            let _: Result<Bytes, ()> = batch.map(|batch| batch.to_bytes()).map_err(|_| ());
        }
    }

    #[test]
    fn a_cut_file_does_not_open(place in 0.0..1.0_f64) {
        let (dir, meta, _) = sealed(50);
        let path = dir.path().join(&meta.file);
        let bytes = std::fs::read(&path).expect("read");
        std::fs::write(&path, &bytes[..((bytes.len() as f64) * place) as usize]).expect("write");
        prop_assert!(LogSegment::open(dir.path(), &meta).expect_err("too short").is_corrupt());
    }
}
