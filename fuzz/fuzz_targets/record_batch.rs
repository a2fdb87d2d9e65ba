//! A record batch on its way in and out: validated, walked, given its place, stored, read back.
//!
//! Length, magic and CRC are put right first: otherwise nothing would ever be found behind them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_model::record_batch::{AssignedBatch, BatchError, BatchHeader, BatchLimits, HEADER_SIZE, ValidBatch};

const LIMITS: BatchLimits = BatchLimits { max_bytes: 1 << 16, max_decompressed_bytes: 1 << 20 };

fn mended(data: &[u8]) -> Bytes {
    let mut bytes = data.to_vec();
    if bytes.len() >= HEADER_SIZE {
        let length = i32::try_from(bytes.len() - 12).expect("small");
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = 2;
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[21..]);
        bytes[17..21].copy_from_slice(&u32::try_from(crc).expect("32 bits").to_be_bytes());
    }
    Bytes::from(bytes)
}

fuzz_target!(|data: &[u8]| {
    let _ = BatchHeader::parse(data);
    let _ = ValidBatch::validate(Bytes::copy_from_slice(data), &LIMITS);
    let bytes = mended(data);
    let valid = match ValidBatch::validate_internal(bytes.clone(), &LIMITS) {
        Ok(valid) => valid,
        Err(error) => {
            assert!(!matches!(error, BatchError::Crc { .. } | BatchError::Magic { .. }), "{error}");
            return;
        }
    };
    assert!(valid.records().len() <= LIMITS.max_decompressed_bytes.max(bytes.len()));
    let mut count = 0;
    for record in valid.iter() {
        let record = record.expect("validation has walked these records");
        count += 1;
        let headers = record.headers().filter(Result::is_ok).count();
        assert_eq!(Ok(headers), usize::try_from(record.header_count()), "validation has counted these headers");
    }
    assert_eq!(count, valid.header().record_count);

    let records = valid.records().clone();
    let assigned = valid.assign(1_000_000, 7);
    let stored = AssignedBatch::from_stored(assigned.to_bytes(), true).expect("its CRC is right");
    assert_eq!(stored.header().base_offset, 1_000_000);
    assert_eq!(stored.records(LIMITS.max_decompressed_bytes.max(records.len())).expect("it was read before"), records);
});
