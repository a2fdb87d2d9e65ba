//! A connection's byte stream, cut into frames as the server cuts it: no length makes it allocate or read past the end.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use weir_protocol::{Preamble, RequestHeader, frame_size, versions::is_flexible};

/// Small, so that lengths on both sides of it are found.
const LIMIT: usize = 1024;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let Ok(size) = frame_size(*length, LIMIT) else { return };
        assert!(size <= LIMIT);
        let Some(frame) = after.get(..size) else { return };
        let preamble = Preamble::parse(frame).expect("frame_size lets no frame through that is too short for it");
        let flexible = is_flexible(preamble.key, preamble.version);
        if let Ok((header, body)) = RequestHeader::parse(&Bytes::copy_from_slice(frame), flexible) {
            assert_eq!(header.preamble, preamble);
            assert!(frame.ends_with(&body));
        }
        rest = &after[size..];
    }
});
