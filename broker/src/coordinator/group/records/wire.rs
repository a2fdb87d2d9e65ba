//! Kafka's primitive types: those of the old records, and the flexible ones of KIP-482 that newer records have.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use super::RecordError;

#[derive(Default)]
pub(in crate::coordinator::group) struct Writer(BytesMut);

impl Writer {
    pub(in crate::coordinator::group) fn i16(&mut self, value: i16) {
        self.0.put_i16(value);
    }

    pub(in crate::coordinator::group) fn i32(&mut self, value: i32) {
        self.0.put_i32(value);
    }

    pub(in crate::coordinator::group) fn i64(&mut self, value: i64) {
        self.0.put_i64(value);
    }

    /// Strings here came in a request as int16-sized strings, or were made by the broker; a longer one is cut at a
    /// character boundary rather than written with a size that lies.
    pub(in crate::coordinator::group) fn string(&mut self, text: &str) {
        let mut end = text.len().min(32_767);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.i16(i16::try_from(end).expect("cut to int16 above"));
        self.0.put_slice(&text.as_bytes()[..end]);
    }

    pub(in crate::coordinator::group) fn nullable_string(&mut self, text: Option<&Arc<str>>) {
        match text {
            Some(text) => self.string(text),
            None => self.i16(-1),
        }
    }

    pub(in crate::coordinator::group) fn count(&mut self, count: usize) {
        self.i32(i32::try_from(count).expect("a request frame cannot hold 2^31 elements"));
    }

    pub(in crate::coordinator::group) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.put_slice(bytes);
    }

    pub(in crate::coordinator::group) fn i8(&mut self, value: i8) {
        self.0.put_i8(value);
    }

    pub(in crate::coordinator::group) fn uuid(&mut self, value: Uuid) {
        self.0.put_slice(value.as_bytes());
    }

    pub(in crate::coordinator::group) fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.0.put_u8(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
            value >>= 7;
        }
        self.0.put_u8(u8::try_from(value).expect("seven bits"));
    }

    /// The count of an array or the size of a text, plus one; 0 stands for null.
    pub(in crate::coordinator::group) fn compact_count(&mut self, count: usize) {
        self.unsigned_varint(u32::try_from(count + 1).expect("a request frame cannot hold 2^32 elements"));
    }

    pub(in crate::coordinator::group) fn compact_string(&mut self, text: &str) {
        self.compact_count(text.len());
        self.0.put_slice(text.as_bytes());
    }

    pub(in crate::coordinator::group) fn compact_nullable_string(&mut self, text: Option<&Arc<str>>) {
        match text {
            Some(text) => self.compact_string(text),
            None => self.unsigned_varint(0),
        }
    }

    pub(in crate::coordinator::group) fn compact_bytes(&mut self, bytes: &[u8]) {
        self.compact_count(bytes.len());
        self.0.put_slice(bytes);
    }

    /// The end of a struct that has no tagged fields.
    pub(in crate::coordinator::group) fn no_tags(&mut self) {
        self.unsigned_varint(0);
    }

    /// The end of a struct with one tagged field.
    pub(in crate::coordinator::group) fn one_tag(&mut self, tag: u32, value: &[u8]) {
        self.unsigned_varint(1);
        self.unsigned_varint(tag);
        self.unsigned_varint(u32::try_from(value.len()).expect("a request frame is smaller than 4 GB"));
        self.0.put_slice(value);
    }

    pub(in crate::coordinator::group) fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

pub(in crate::coordinator::group) struct Reader<'a> {
    all: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(in crate::coordinator::group) fn new(all: &'a [u8]) -> Self {
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

    pub(in crate::coordinator::group) fn i16(&mut self) -> Result<i16, RecordError> {
        self.array().map(i16::from_be_bytes)
    }

    pub(in crate::coordinator::group) fn i32(&mut self) -> Result<i32, RecordError> {
        self.array().map(i32::from_be_bytes)
    }

    pub(in crate::coordinator::group) fn i64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_be_bytes)
    }

    pub(in crate::coordinator::group) fn nullable_string(&mut self) -> Result<Option<Arc<str>>, RecordError> {
        let Ok(size) = usize::try_from(self.i16()?) else { return Ok(None) };
        let text = std::str::from_utf8(self.take(size)?).map_err(|_| RecordError::NotUtf8)?;
        Ok(Some(Arc::from(text)))
    }

    pub(in crate::coordinator::group) fn string(&mut self) -> Result<Arc<str>, RecordError> {
        self.nullable_string()?.ok_or(RecordError::UnexpectedNull)
    }

    pub(in crate::coordinator::group) fn count(&mut self) -> Result<usize, RecordError> {
        usize::try_from(self.i32()?).map_err(|_| RecordError::UnexpectedNull)
    }

    pub(in crate::coordinator::group) fn bytes(&mut self) -> Result<Bytes, RecordError> {
        let size = self.count()?;
        self.take(size).map(Bytes::copy_from_slice)
    }

    pub(in crate::coordinator::group) fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, RecordError> {
        let Ok(size) = usize::try_from(self.i32()?) else { return Ok(None) };
        self.take(size).map(Some)
    }

    pub(in crate::coordinator::group) fn i8(&mut self) -> Result<i8, RecordError> {
        self.array().map(i8::from_be_bytes)
    }

    pub(in crate::coordinator::group) fn uuid(&mut self) -> Result<Uuid, RecordError> {
        self.array().map(Uuid::from_bytes)
    }

    pub(in crate::coordinator::group) fn unsigned_varint(&mut self) -> Result<u32, RecordError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array::<1>()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(RecordError::Truncated { size: self.all.len() })
    }

    /// The count of an array or the size of a text; `None` for null. No larger than the bytes that are left, which every
    /// element takes at least one of.
    pub(in crate::coordinator::group) fn compact_count(&mut self) -> Result<Option<usize>, RecordError> {
        let Some(count) = self.unsigned_varint()?.checked_sub(1) else { return Ok(None) };
        let count = usize::try_from(count).map_err(|_| RecordError::UnexpectedNull)?;
        if count > self.rest.len() {
            return Err(RecordError::Truncated { size: self.all.len() });
        }
        Ok(Some(count))
    }

    pub(in crate::coordinator::group) fn array_count(&mut self) -> Result<usize, RecordError> {
        self.compact_count()?.ok_or(RecordError::UnexpectedNull)
    }

    pub(in crate::coordinator::group) fn compact_nullable_string(&mut self) -> Result<Option<Arc<str>>, RecordError> {
        let Some(size) = self.compact_count()? else { return Ok(None) };
        let text = std::str::from_utf8(self.take(size)?).map_err(|_| RecordError::NotUtf8)?;
        Ok(Some(Arc::from(text)))
    }

    pub(in crate::coordinator::group) fn compact_string(&mut self) -> Result<Arc<str>, RecordError> {
        self.compact_nullable_string()?.ok_or(RecordError::UnexpectedNull)
    }

    pub(in crate::coordinator::group) fn compact_bytes(&mut self) -> Result<Bytes, RecordError> {
        let size = self.array_count()?;
        self.take(size).map(Bytes::copy_from_slice)
    }

    /// The tagged fields at the end of a struct, each given to `known` with its tag. Unknown ones are passed over, as
    /// Kafka does with what a newer version wrote.
    pub(in crate::coordinator::group) fn tags(
        &mut self,
        mut known: impl FnMut(u32, &[u8]) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        for _ in 0..self.unsigned_varint()? {
            let tag = self.unsigned_varint()?;
            let size = usize::try_from(self.unsigned_varint()?).map_err(|_| RecordError::UnexpectedNull)?;
            known(tag, self.take(size)?)?;
        }
        Ok(())
    }

    pub(in crate::coordinator::group) fn skip_tags(&mut self) -> Result<(), RecordError> {
        self.tags(|_, _| Ok(()))
    }
}
