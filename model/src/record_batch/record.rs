//! Records inside a batch, borrowed.

use super::BatchError;
use super::varint::{take_varint, take_varlong};

/// One record, borrowed from the batch's uncompressed record section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// Timestamp minus the batch's base timestamp, in milliseconds.
    pub timestamp_delta: i64,
    /// The key; null and empty differ.
    pub key: Option<&'a [u8]>,
    /// The value; null (a tombstone) and empty differ.
    pub value: Option<&'a [u8]>,
    /// The headers exactly as on the wire: a count, then keys and values.
    pub header_bytes: &'a [u8],
    header_count: i32,
}

impl<'a> Record<'a> {
    /// Number of headers.
    pub fn header_count(&self) -> i32 {
        self.header_count
    }

    /// The headers in order, duplicates kept.
    pub fn headers(&self) -> HeaderIter<'a> {
        HeaderIter::new(self.header_bytes)
    }
}

/// Headers of one record, in order: key bytes, and a value that may be null.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    rest: &'a [u8],
    left: i32,
}

impl<'a> HeaderIter<'a> {
    /// Reads headers from their wire bytes (count first). Empty bytes are no headers.
    pub fn new(header_bytes: &'a [u8]) -> Self {
        let mut rest = header_bytes;
        let left = take_varint(&mut rest).unwrap_or(0).max(0);
        Self { rest, left }
    }
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Result<(&'a [u8], Option<&'a [u8]>), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let header = take_header(&mut self.rest);
        if header.is_err() {
            self.left = 0;
        }
        Some(header)
    }
}

#[inline]
fn take_header<'a>(rest: &mut &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>), BatchError> {
    let key = take_nullable(rest)?.ok_or(BatchError::Malformed("a header key is null"))?;
    Ok((key, take_nullable(rest)?))
}

#[inline]
fn take_nullable<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, BatchError> {
    let length = take_varint(rest)?;
    if length < 0 {
        return if length == -1 { Ok(None) } else { Err(BatchError::Malformed("a length is below -1")) };
    }
    let length = length as usize;
    if length > rest.len() {
        return Err(BatchError::Malformed("a length runs past the batch"));
    }
    let (taken, after) = rest.split_at(length);
    *rest = after;
    Ok(Some(taken))
}

/// Walks the uncompressed record section of a batch.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    left: i32,
}

impl<'a> RecordIter<'a> {
    /// Reads `count` records from `records`, the bytes after the batch header, uncompressed.
    pub fn new(records: &'a [u8], count: i32) -> Self {
        Self { rest: records, left: count.max(0) }
    }

    /// Bytes not yet read.
    pub fn remaining_bytes(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let record = take_record(&mut self.rest);
        if record.is_err() {
            self.left = 0;
        }
        Some(record)
    }
}

#[inline]
fn take_record<'a>(rest: &mut &'a [u8]) -> Result<Record<'a>, BatchError> {
    let length = take_varint(rest)?;
    let length = usize::try_from(length).map_err(|_| BatchError::Malformed("a record length is negative"))?;
    if length > rest.len() {
        return Err(BatchError::Malformed("a record runs past the batch"));
    }
    let (mut body, after) = rest.split_at(length);
    *rest = after;
    // Attributes of a record are unused in v2; Kafka ignores them.
    let Some((_, fields)) = body.split_first() else {
        return Err(BatchError::Malformed("a record is empty"));
    };
    body = fields;
    let timestamp_delta = take_varlong(&mut body)?;
    let offset_delta = take_varint(&mut body)?;
    let key = take_nullable(&mut body)?;
    let value = take_nullable(&mut body)?;
    let header_bytes = body;
    let header_count = take_varint(&mut body)?;
    if header_count < 0 {
        return Err(BatchError::Malformed("a header count is negative"));
    }
    for _ in 0..header_count {
        take_header(&mut body)?;
    }
    if !body.is_empty() {
        return Err(BatchError::Malformed("a record has bytes after its headers"));
    }
    Ok(Record { offset_delta, timestamp_delta, key, value, header_bytes, header_count })
}
