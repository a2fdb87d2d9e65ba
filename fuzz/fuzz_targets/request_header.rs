//! A request header of either version.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_protocol::RequestHeader;

fuzz_target!(|data: &[u8]| {
    let frame = Bytes::copy_from_slice(data);
    for flexible in [false, true] {
        let Ok((header, body)) = RequestHeader::parse(&frame, flexible) else { continue };
        assert!(frame.ends_with(&body));
        for text in header.client_id.iter().chain(&header.extension) {
            assert!(text.len() <= frame.len());
        }
    }
});
