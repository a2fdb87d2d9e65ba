//! A request of any API and version, through the guard and then the decoder, as the broker reads it: whatever the bytes
//! are, neither panics, and what the guard lets through costs no more memory than the limit of scripts/fuzz.
//!
//! That what clients really send is read to the last byte, and written again to the same bytes, is a test of
//! `weir-protocol`; a hostile request need not be written again, and Weir writes none.
#![no_main]

use std::hint::black_box;

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, RequestKind};
use libfuzzer_sys::fuzz_target;
use weir_protocol::offsets_by_id::{OffsetCommit, OffsetFetch};
use weir_protocol::{Preamble, RequestHeader, decode_request, schema, versions::is_flexible};

const OFFSET_COMMIT: i16 = 8;
const OFFSET_FETCH: i16 = 9;

fuzz_target!(|data: &[u8]| {
    let frame = Bytes::copy_from_slice(data);
    let Ok(Preamble { key, version, .. }) = Preamble::parse(&frame) else { return };
    let Ok((_, body)) = RequestHeader::parse(&frame, is_flexible(key, version)) else { return };
    match key {
        OFFSET_COMMIT => drop(black_box(decode_request::<OffsetCommit>(key, version, body))),
        OFFSET_FETCH => drop(black_box(decode_request::<OffsetFetch>(key, version, body))),
        _ => {
            let Ok(api) = ApiKey::try_from(key) else { return };
            // What the guard refuses never reaches the decoder.
            if schema::guard(key, version, &body).is_ok() {
                drop(black_box(RequestKind::decode(api, &mut body.clone(), version)));
            }
        }
    }
});
