//! Compressed bytes of strangers: whatever they are, no more than the limit comes out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_model::record_batch::Compression;
use weir_model::record_batch::compression::{compress, decompress};

const LIMIT: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((code, data)) = data.split_first() else { return };
    let Ok(codec) = Compression::from_code(i16::from(code % 5)) else { return };
    if let Ok(out) = decompress(codec, data, LIMIT) {
        assert!(out.len() <= LIMIT);
    }
    let packed = compress(codec, data);
    assert_eq!(decompress(codec, &packed, data.len()).expect("what was compressed here"), data);
});
