//! Request and response headers.
//!
//! | header | fields |
//! |---|---|
//! | request v0 | key, version, correlation id (only ControlledShutdown v0, which nobody sends any more) |
//! | request v1 | + client id, an int16-length nullable string |
//! | request v2 | + tagged fields; the client id stays as it is in v1 (not compact) |
//! | response v0 | correlation id |
//! | response v1 | + tagged fields |
//!
//! Flexible versions use request v2 and response v1, with one exception: ApiVersions is always answered with response v0 (KIP-511),
//! because the client does not yet know what the broker speaks.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;

use crate::wire::{Cursor, Short};

/// The API key of ApiVersions, whose responses never carry tagged fields in their header.
pub const API_VERSIONS: i16 = 18;

/// The tag of Weir's extension text in request header v2: the same grammar as after the `;` of a client id.
pub const EXTENSION_TAG: u32 = 10_001;

/// More tagged fields than any client sends in a header.
const MAX_HEADER_TAGS: u32 = 64;

/// Why a header was not accepted. The answer is to close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The frame ends inside the header.
    #[error("the request ends inside its header")]
    Truncated,
    /// The client id, or the extension text, is not UTF-8.
    #[error("the client id or extension text in the request header is not UTF-8")]
    NotUtf8,
    /// More tagged fields than a header can sensibly have.
    #[error("the request header claims {0} tagged fields, more than {MAX_HEADER_TAGS}")]
    TooManyTags(u32),
}

impl From<Short> for HeaderError {
    fn from(Short: Short) -> Self {
        Self::Truncated
    }
}

/// The first eight bytes of every request: enough to find its version range, and to answer an ApiVersions request of a version nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// Which API. May be any number.
    pub key: i16,
    /// Which version of it. May be any number.
    pub version: i16,
    /// Echoed in the response.
    pub correlation_id: i32,
}

impl Preamble {
    /// Reads the preamble of a frame.
    ///
    /// # Errors
    /// [`HeaderError::Truncated`] for fewer than eight bytes.
    pub fn parse(frame: &[u8]) -> Result<Self, HeaderError> {
        let mut cursor = Cursor::new(frame);
        Ok(Self { key: cursor.i16()?, version: cursor.i16()?, correlation_id: cursor.i32()? })
    }
}

/// A whole request header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// Key, version and correlation id.
    pub preamble: Preamble,
    /// Null and empty are both legal (S-9).
    pub client_id: Option<StrBytes>,
    /// The text of tagged field [`EXTENSION_TAG`], when the client sent one.
    pub extension: Option<StrBytes>,
}

impl RequestHeader {
    /// Reads the header of a frame and returns it with the body, which shares the frame's memory.
    ///
    /// `flexible` says whether this version of this API uses header v2.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn parse(frame: &Bytes, flexible: bool) -> Result<(Self, Bytes), HeaderError> {
        let preamble = Preamble::parse(frame)?;
        let mut cursor = Cursor::new(frame);
        cursor.take(crate::frame::SMALLEST_REQUEST)?;
        let client_id = match cursor.i16()? {
            length if length < 0 => None,
            length => {
                let size = usize::try_from(length).map_err(|_| HeaderError::Truncated)?;
                Some(text(frame, &mut cursor, size)?)
            }
        };
        let mut extension = None;
        if flexible {
            let tags = cursor.unsigned_varint()?;
            if tags > MAX_HEADER_TAGS {
                return Err(HeaderError::TooManyTags(tags));
            }
            for _ in 0..tags {
                let tag = cursor.unsigned_varint()?;
                let size = cursor.varint_size()?;
                if tag == EXTENSION_TAG {
                    extension = Some(text(frame, &mut cursor, size)?);
                } else {
                    cursor.take(size)?;
                }
            }
        }
        let body = frame.slice(cursor.position()..);
        Ok((Self { preamble, client_id, extension }, body))
    }
}

fn text(frame: &Bytes, cursor: &mut Cursor<'_>, size: usize) -> Result<StrBytes, HeaderError> {
    let start = cursor.position();
    cursor.take(size)?;
    StrBytes::from_utf8(frame.slice(start..start + size)).map_err(|_| HeaderError::NotUtf8)
}

/// The length prefix and header of a response whose body has `body_size` bytes.
///
/// # Panics
/// Never for bodies under 2 GiB, which every limit of the broker keeps far away.
#[must_use]
pub fn response_header(preamble: &Preamble, flexible: bool, body_size: usize) -> Bytes {
    let tagged = flexible && preamble.key != API_VERSIONS;
    let header_size = if tagged { 5 } else { 4 };
    let mut out = BytesMut::with_capacity(4 + header_size);
    out.put_i32(
        i32::try_from(header_size + body_size).expect("a response is smaller than 2 GiB: fetch.max.bytes bounds it"),
    );
    out.put_i32(preamble.correlation_id);
    if tagged {
        out.put_u8(0);
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(parts: &[&[u8]]) -> Bytes {
        let mut out = vec![0, 3, 0, 9, 0, 0, 0, 42];
        for part in parts {
            out.extend_from_slice(part);
        }
        Bytes::from(out)
    }

    #[test]
    fn a_null_client_id_is_not_an_empty_one() {
        let (header, body) = RequestHeader::parse(&frame(&[&[0xff, 0xff], b"body"]), false).expect("legal");
        assert_eq!(header.client_id, None);
        assert_eq!(&body[..], b"body");
        let (header, _) = RequestHeader::parse(&frame(&[&[0, 0]]), false).expect("legal");
        assert_eq!(header.client_id.as_deref(), Some(""));
    }

    #[test]
    fn header_v2_keeps_the_client_id_uncompact_and_skips_unknown_tags() {
        let (header, body) = RequestHeader::parse(
            &frame(&[&[0, 2], b"me", &[2, 7, 3], b"abc", &[0x91, 0x4e, 4], b"a=b;", b"rest"]),
            true,
        )
        .expect("legal");
        assert_eq!(header.client_id.as_deref(), Some("me"));
        assert_eq!(header.extension.as_deref(), Some("a=b;"));
        assert_eq!(&body[..], b"rest");
        assert_eq!(header.preamble, Preamble { key: 3, version: 9, correlation_id: 42 });
    }

    #[test]
    fn a_header_that_ends_early_is_refused() {
        for size in 0..8 {
            assert_eq!(Preamble::parse(&frame(&[])[..size]), Err(HeaderError::Truncated));
        }
        assert_eq!(RequestHeader::parse(&frame(&[&[0, 9], b"short"]), false), Err(HeaderError::Truncated));
        assert_eq!(RequestHeader::parse(&frame(&[&[0, 0, 1, 5, 200]]), true), Err(HeaderError::Truncated));
    }

    #[test]
    fn a_header_with_a_million_tags_is_refused_before_they_are_read() {
        assert_eq!(
            RequestHeader::parse(&frame(&[&[0, 0, 0xc0, 0x84, 0x3d]]), true),
            Err(HeaderError::TooManyTags(1_000_000))
        );
    }

    #[test]
    fn api_versions_is_answered_without_tags_in_its_header() {
        let api_versions = Preamble { key: API_VERSIONS, version: 3, correlation_id: 7 };
        assert_eq!(&response_header(&api_versions, true, 10)[..], &[0, 0, 0, 14, 0, 0, 0, 7]);
        let metadata = Preamble { key: 3, version: 9, correlation_id: 7 };
        assert_eq!(&response_header(&metadata, true, 10)[..], &[0, 0, 0, 15, 0, 0, 0, 7, 0]);
        assert_eq!(&response_header(&metadata, false, 10)[..], &[0, 0, 0, 14, 0, 0, 0, 7]);
    }
}
