//! Kafka's non-flexible primitive types.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::RecordError;

#[derive(Default)]
pub(super) struct Writer(BytesMut);

impl Writer {
    pub(super) fn i16(&mut self, value: i16) {
        self.0.put_i16(value);
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.0.put_i32(value);
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.0.put_i64(value);
    }

    /// Strings here came in a request as int16-sized strings, or were made by the broker; a longer one is cut at a
    /// character boundary rather than written with a size that lies.
    pub(super) fn string(&mut self, text: &str) {
        let mut end = text.len().min(32_767);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.i16(i16::try_from(end).expect("cut to int16 above"));
        self.0.put_slice(&text.as_bytes()[..end]);
    }

    pub(super) fn nullable_string(&mut self, text: Option<&Arc<str>>) {
        match text {
            Some(text) => self.string(text),
            None => self.i16(-1),
        }
    }

    pub(super) fn count(&mut self, count: usize) {
        self.i32(i32::try_from(count).expect("a request frame cannot hold 2^31 elements"));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.put_slice(bytes);
    }

    pub(super) fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

pub(super) struct Reader<'a> {
    all: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, rest: all }
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], RecordError> {
        let truncated = RecordError::Truncated { size: self.all.len() };
        let (head, tail) = self.rest.split_at_checked(size).ok_or(truncated)?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let truncated = RecordError::Truncated { size: self.all.len() };
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(truncated)?;
        self.rest = tail;
        Ok(*head)
    }

    pub(super) fn i16(&mut self) -> Result<i16, RecordError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, RecordError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn nullable_string(&mut self) -> Result<Option<Arc<str>>, RecordError> {
        let Ok(size) = usize::try_from(self.i16()?) else { return Ok(None) };
        let text = std::str::from_utf8(self.take(size)?).map_err(|_| RecordError::NotUtf8)?;
        Ok(Some(Arc::from(text)))
    }

    pub(super) fn string(&mut self) -> Result<Arc<str>, RecordError> {
        self.nullable_string()?.ok_or(RecordError::UnexpectedNull)
    }

    pub(super) fn count(&mut self) -> Result<usize, RecordError> {
        usize::try_from(self.i32()?).map_err(|_| RecordError::UnexpectedNull)
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, RecordError> {
        let size = self.count()?;
        self.take(size).map(Bytes::copy_from_slice)
    }
}
