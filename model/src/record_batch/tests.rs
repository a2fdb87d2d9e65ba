use std::io::Write;

use bytes::Bytes;
use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
use proptest::prelude::*;

use super::*;
use crate::TimestampType;

const LIMITS: BatchLimits = BatchLimits { max_bytes: 1 << 20, max_decompressed_bytes: 1 << 22 };
const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

fn batch_of(codec: Compression, values: &[&[u8]]) -> Bytes {
    let mut builder = BatchBuilder::new(0, codec, TimestampType::CreateTime);
    for (index, value) in values.iter().enumerate() {
        builder.push(index as i64, 1_000 + index as i64, Some(b"k"), Some(value), None);
    }
    builder.finish()
}

#[test]
fn every_codec_round_trips() {
    let long = b"weir ".repeat(20_000);
    for codec in CODECS {
        let batch = ValidBatch::validate(batch_of(codec, &[b"a", &long, b""]), &LIMITS).expect("valid");
        let values: Vec<_> =
            batch.iter().map(|record| record.expect("framed").value.expect("not null").to_vec()).collect();
        assert_eq!(values, [b"a".to_vec(), long.clone(), Vec::new()], "{codec:?}");
    }
}

#[test]
fn duplicate_header_keys_and_null_values_are_kept() {
    let mut builder = BatchBuilder::new(7, Compression::None, TimestampType::CreateTime);
    builder.push_with_headers(7, 5, None, None, &[("h", Some(b"1")), ("h", None), ("", Some(b""))]);
    let batch = ValidBatch::validate(builder.finish(), &LIMITS).expect("valid");
    let record = batch.iter().next().expect("one").expect("framed");
    assert_eq!((record.key, record.value, record.header_count()), (None, None, 3));
    let headers: Result<Vec<_>, _> = record.headers().collect();
    assert_eq!(headers.expect("framed"), [(&b"h"[..], Some(&b"1"[..])), (b"h", None), (b"", Some(b""))]);
}

#[test]
fn assigning_changes_only_the_first_sixteen_bytes() {
    let sent = batch_of(Compression::Lz4, &[b"a", b"b"]);
    let assigned = ValidBatch::validate(sent.clone(), &LIMITS).expect("valid").assign(42, 3);
    let stored = assigned.to_bytes();
    assert_eq!(stored[16..], sent[16..]);
    let back = AssignedBatch::from_stored(stored, true).expect("the CRC still holds");
    assert_eq!((back.header().base_offset, back.header().leader_epoch, back.header().last_offset()), (42, 3, 43));
}

#[test]
fn the_body_crc_is_that_of_the_bytes() {
    let long = b"weir ".repeat(20_000);
    let assigned = ValidBatch::validate(batch_of(Compression::None, &[&long]), &LIMITS).expect("valid").assign(7, 0);
    assert_eq!(assigned.body_crc32c(), super::header::crc32c(assigned.body()));
}

#[test]
fn a_wrong_max_timestamp_is_put_right() {
    let mut bytes = batch_of(Compression::None, &[b"a", b"b"]).to_vec();
    bytes[35..43].copy_from_slice(&5i64.to_be_bytes());
    let crc = super::header::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    let batch = ValidBatch::validate(bytes.into(), &LIMITS).expect("valid");
    assert_eq!(batch.header().max_timestamp, 1_001);
    assert_eq!(BatchHeader::parse(batch.bytes()).expect("parses").max_timestamp, 1_001);
}

#[test]
fn a_damaged_byte_is_a_crc_error() {
    let mut bytes = batch_of(Compression::None, &[b"abc"]).to_vec();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    assert!(matches!(ValidBatch::validate(bytes.into(), &LIMITS), Err(BatchError::Crc { .. })));
}

#[test]
fn a_batch_with_bytes_after_it_is_refused() {
    let mut bytes = batch_of(Compression::None, &[b"abc"]).to_vec();
    bytes.push(0);
    assert!(matches!(ValidBatch::validate(bytes.into(), &LIMITS), Err(BatchError::Length { .. })));
}

#[test]
fn a_decompression_bomb_is_refused() {
    let zeros = vec![0u8; 8 << 20];
    for codec in CODECS.into_iter().skip(1) {
        let bomb = batch_of(codec, &[&zeros]);
        let limits = BatchLimits { max_bytes: 1 << 24, ..LIMITS };
        assert!(
            matches!(ValidBatch::validate(bomb, &limits), Err(BatchError::DecompressedTooLarge { limit: 4_194_304 })),
            "{codec:?}"
        );
    }
}

#[test]
fn lz4_blocks_that_depend_on_each_other_are_refused_as_kafka_refuses_them() {
    let long = b"weir ".repeat(40_000);
    let plain = batch_of(Compression::None, &[&long]);
    for (mode, readable) in [(BlockMode::Independent, true), (BlockMode::Linked, false)] {
        let info = FrameInfo::new().block_mode(mode).block_size(lz4_flex::frame::BlockSize::Max64KB);
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&plain[HEADER_SIZE..]).expect("memory");
        let mut bytes = [&plain[..HEADER_SIZE], &encoder.finish().expect("memory")].concat();
        let length = i32::try_from(bytes.len() - 12).expect("small");
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[21..23].copy_from_slice(&Compression::Lz4.code().to_be_bytes());
        let crc = super::header::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let answer = ValidBatch::validate(Bytes::from(bytes), &LIMITS);
        assert_eq!(answer.is_ok(), readable, "{:?}", answer.err());
    }
}

#[test]
fn a_batch_stamped_by_the_broker_checks_out() {
    let batch = ValidBatch::validate(batch_of(Compression::Zstd, &[b"a"]), &LIMITS).expect("valid");
    let stamped = ValidBatch::validate(batch.with_log_append_time(99).bytes().clone(), &LIMITS).expect("valid");
    assert_eq!(stamped.header().max_timestamp, 99);
    assert_eq!(stamped.header().attributes.timestamp_type(), TimestampType::LogAppendTime);
}

proptest! {
    #[test]
    fn records_survive_the_wire(
        rows in prop::collection::vec(
            (any::<i32>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..40)), prop::option::of(prop::collection::vec(any::<u8>(), 0..200))),
            1..40,
        ),
        codec in prop::sample::select(CODECS.to_vec()),
    ) {
        let mut builder = BatchBuilder::new(0, codec, TimestampType::CreateTime);
        for (index, (time, key, value)) in rows.iter().enumerate() {
            builder.push(index as i64, i64::from(*time), key.as_deref(), value.as_deref(), None);
        }
        let batch = ValidBatch::validate(builder.finish(), &LIMITS).expect("valid");
        let base = batch.header().base_timestamp;
        prop_assert_eq!(batch.header().max_timestamp, rows.iter().map(|row| i64::from(row.0)).max().expect("some"));
        for (record, (time, key, value)) in batch.iter().zip(&rows) {
            let record = record.expect("framed");
            prop_assert_eq!(base + record.timestamp_delta, i64::from(*time));
            prop_assert_eq!(record.key, key.as_deref());
            prop_assert_eq!(record.value, value.as_deref());
        }
    }

    #[test]
    fn combined_crcs_are_those_of_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..5_000), at in any::<prop::sample::Index>()) {
        let (first, second) = bytes.split_at(at.index(bytes.len() + 1));
        let crc = super::header::crc32c;
        prop_assert_eq!(combine_crc32c(crc(first), crc(second), second.len()), crc(&bytes));
    }

    #[test]
    fn hostile_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), flip in any::<u16>()) {
        let _ = ValidBatch::validate(bytes.clone().into(), &LIMITS);
        // The same with a right envelope, so that the record walk is reached.
        let mut good = batch_of(Compression::None, &[b"abcdefgh", b"xyz"]).to_vec();
        bytes.truncate(20);
        for (index, byte) in bytes.iter().enumerate() {
            let at = HEADER_SIZE + (usize::from(flip) + index * 7) % (good.len() - HEADER_SIZE);
            good[at] = *byte;
        }
        let crc = super::header::crc32c(&good[21..]);
        good[17..21].copy_from_slice(&crc.to_be_bytes());
        let _ = ValidBatch::validate(good.into(), &LIMITS);
    }
}
