//! Requests as stock clients sent them to Apache Kafka (compat-tests/captured): each is read, and written again to the same bytes.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::{RequestHeader, versions::is_flexible};

/// A line of a captured file: `key version note hex`.
struct Captured {
    client: String,
    frame: Bytes,
}

fn captured() -> Vec<Captured> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compat-tests/captured");
    let mut frames = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("the captured frames are part of the checkout") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let client = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("text");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let hex = line.rsplit(' ').next().expect("four words");
            frames.push(Captured { client: client.clone(), frame: unhex(hex) });
        }
    }
    frames
}

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> =
        text.chars().map(|digit| u8::try_from(digit.to_digit(16).expect("hex")).expect("a digit")).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The header as its client wrote it, when it has no tags.
fn header_bytes(header: &RequestHeader, flexible: bool) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_i16(header.preamble.key);
    out.put_i16(header.preamble.version);
    out.put_i32(header.preamble.correlation_id);
    match &header.client_id {
        None => out.put_i16(-1),
        Some(id) => {
            out.put_i16(i16::try_from(id.len()).expect("short"));
            out.put_slice(id.as_bytes());
        }
    }
    if flexible {
        out.put_u8(0);
    }
    out
}

#[test]
fn captured_requests_are_read_and_written_again_to_the_same_bytes() {
    let frames = captured();
    let families: BTreeSet<&str> = frames.iter().map(|captured| captured.client.as_str()).collect();
    assert!(families.len() >= 10, "{families:?}");
    let mut proven = BTreeSet::new();
    for Captured { client, frame } in &frames {
        let preamble = crate::Preamble::parse(frame).expect("a request");
        let (key, version) = (preamble.key, preamble.version);
        if find(key).is_none() || version > codec(key).versions.max {
            continue; // an API that is not served, or a version newer than the message crate
        }
        let what = format!("{client}: api key {key} version {version}");
        let flexible = is_flexible(key, version);
        let (header, body) = RequestHeader::parse(frame, flexible).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(header_bytes(&header, flexible), frame[..frame.len() - body.len()], "{what}: header");
        assert_eq!(guard(key, version, &body), Ok(()), "{what}");
        assert_eq!((codec(key).decode)(version, &body), Ok(0), "{what}: bytes left");
        assert_eq!((codec(key).again)(version, &body), Ok(body), "{what}");
        proven.insert((key, version));
    }
    assert!(proven.len() > 80, "only {} of the captured APIs and versions were read", proven.len());
}
