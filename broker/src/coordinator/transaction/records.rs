//! The records of `__transaction_state`, in Kafka's own format (`TransactionLogKey`, `TransactionLogValue`).
//!
//! Key: int16 version (0), the transactional id (string). A null value removes the id. Value:
//!
//! | field | v0, read | v1, written |
//! |---|---|---|
//! | version | int16 | int16 |
//! | producer id | int64 | int64 |
//! | producer epoch | int16 | int16 |
//! | transaction timeout, ms | int32 | int32 |
//! | state | int8 | int8 |
//! | partitions, null for none | array of (string, array of int32) | the same, compact; each with tagged fields |
//! | last update, ms | int64 | int64 |
//! | start, ms; -1 for none | int64 | int64 |
//! | tag 0: previous producer id | | int64 |
//! | tag 1: next producer id | | int64 |
//! | tag 2: the client's transaction version | | int16 |
//!
//! Other tags are passed over. Kafka 4.2 knows tags 0 and 1 and leaves them out; we write them while they say something (after a change of ids, and while
//! one is prepared), because without them a restart in the middle of such a change would forget the id that the client was already told.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::machine::TransactionMetadata;
use super::state::{ClientVersion, Partitions, TransactionState};

const KEY_VERSION: i16 = 0;
const VALUE_VERSION: i16 = 1;
const PREVIOUS_PRODUCER_ID: u32 = 0;
const NEXT_PRODUCER_ID: u32 = 1;
const CLIENT_VERSION: u32 = 2;

/// A record of a transactional id; without metadata it removes the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionRecord {
    /// The transactional id.
    pub id: Arc<str>,
    /// All that is kept of it.
    pub metadata: Option<TransactionMetadata>,
}

/// Why a record of `__transaction_state` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It ends too early.
    #[error("record ends after {size} bytes, in the middle of a field")]
    Truncated {
        /// Its size.
        size: usize,
    },
    /// A text is not UTF-8.
    #[error("a text of the record is not UTF-8")]
    NotUtf8,
    /// A required text or list is null.
    #[error("a required field of the record is null")]
    UnexpectedNull,
    /// The key's or value's version is unknown.
    #[error("version {version} is newer than this broker knows")]
    UnknownVersion {
        /// The version.
        version: i16,
    },
    /// There is no such state.
    #[error("there is no transaction state {id}")]
    UnknownState {
        /// Its number.
        id: i8,
    },
}

impl TransactionRecord {
    /// The key's bytes.
    pub fn key_bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(4 + self.id.len());
        out.put_i16(KEY_VERSION);
        // The id came in a request as a string of that size at most.
        out.put_i16(i16::try_from(self.id.len()).unwrap_or(i16::MAX));
        out.put_slice(&self.id.as_bytes()[..self.id.len().min(i16::MAX.unsigned_abs().into())]);
        out.freeze()
    }

    /// The value's bytes; `None` removes the id.
    pub fn value_bytes(&self) -> Option<Bytes> {
        self.metadata.as_ref().map(encode)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`]: the bytes are not what their version says.
    pub fn parse(key: &[u8], value: Option<&[u8]>) -> Result<Self, RecordError> {
        let mut input = Reader::new(key, false);
        let version = input.i16()?;
        if version != KEY_VERSION {
            return Err(RecordError::UnknownVersion { version });
        }
        Ok(Self { id: input.string()?, metadata: value.map(decode).transpose()? })
    }
}

fn encode(metadata: &TransactionMetadata) -> Bytes {
    let mut out = BytesMut::with_capacity(64);
    out.put_i16(VALUE_VERSION);
    out.put_i64(metadata.producer_id);
    out.put_i16(metadata.producer_epoch);
    out.put_i32(metadata.timeout_ms);
    out.put_i8(metadata.state.id());
    if metadata.partitions.is_empty() && metadata.state == TransactionState::Empty {
        // Kafka: null in Empty, a list in every other state.
        put_varint(&mut out, 0);
    } else {
        put_count(&mut out, metadata.partitions.topics().count());
        for (topic, partitions) in metadata.partitions.topics() {
            put_count(&mut out, topic.len());
            out.put_slice(topic.as_bytes());
            put_count(&mut out, partitions.len());
            partitions.iter().for_each(|partition| out.put_i32(*partition));
            put_varint(&mut out, 0);
        }
    }
    out.put_i64(metadata.updated_wall_ms);
    out.put_i64(metadata.started_wall_ms.unwrap_or(-1));
    let previous = metadata.previous_producer_id.filter(|previous| *previous != metadata.producer_id);
    let mut tags: Vec<(u32, Bytes)> = Vec::new();
    for (tag, id) in [(PREVIOUS_PRODUCER_ID, previous), (NEXT_PRODUCER_ID, metadata.next_producer_id)] {
        tags.extend(id.map(|id| (tag, Bytes::copy_from_slice(&id.to_be_bytes()))));
    }
    let level = metadata.client_version.level();
    if level != 0 {
        tags.push((CLIENT_VERSION, Bytes::copy_from_slice(&level.to_be_bytes())));
    }
    put_varint(&mut out, size_u32(tags.len()));
    for (tag, bytes) in tags {
        put_varint(&mut out, tag);
        put_varint(&mut out, size_u32(bytes.len()));
        out.put_slice(&bytes);
    }
    out.freeze()
}

fn decode(value: &[u8]) -> Result<TransactionMetadata, RecordError> {
    let version = Reader::new(value, false).i16()?;
    if !(0..=VALUE_VERSION).contains(&version) {
        return Err(RecordError::UnknownVersion { version });
    }
    let mut input = Reader::new(&value[2..], version >= 1);
    let (producer_id, producer_epoch, timeout_ms) = (input.i64()?, input.i16()?, input.i32()?);
    let id = input.i8()?;
    let state = TransactionState::from_id(id).ok_or(RecordError::UnknownState { id })?;
    let mut partitions = Partitions::default();
    for _ in 0..input.nullable_count()?.unwrap_or(0) {
        let topic = input.string()?;
        for _ in 0..input.nullable_count()?.ok_or(RecordError::UnexpectedNull)? {
            partitions.insert(topic.clone(), input.i32()?);
        }
        input.tags(|_, _| Ok(()))?;
    }
    let (updated_wall_ms, started) = (input.i64()?, input.i64()?);
    let (mut previous_producer_id, mut next_producer_id, mut level) = (None, None, 0);
    input.tags(|tag, field| {
        match tag {
            PREVIOUS_PRODUCER_ID => previous_producer_id = Some(field.i64()?).filter(|id| *id >= 0),
            NEXT_PRODUCER_ID => next_producer_id = Some(field.i64()?).filter(|id| *id >= 0),
            CLIENT_VERSION => level = field.i16()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(TransactionMetadata {
        producer_id,
        previous_producer_id,
        next_producer_id,
        producer_epoch,
        last_producer_epoch: None,
        timeout_ms,
        state,
        partitions,
        started_wall_ms: Some(started).filter(|started| *started >= 0),
        updated_wall_ms,
        client_version: ClientVersion::from_level(level),
    })
}

/// A compact count or size: one more than it is, since 0 stands for null.
fn put_count(out: &mut BytesMut, count: usize) {
    put_varint(out, size_u32(count) + 1);
}

fn size_u32(size: usize) -> u32 {
    u32::try_from(size).expect("a request frame holds less than 2^31 of anything")
}

fn put_varint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

struct Reader<'a> {
    size: usize,
    rest: &'a [u8],
    flexible: bool,
}

impl<'a> Reader<'a> {
    fn new(all: &'a [u8], flexible: bool) -> Self {
        Self { size: all.len(), rest: all, flexible }
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], RecordError> {
        let (head, tail) = self.rest.split_at_checked(size).ok_or(RecordError::Truncated { size: self.size })?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(RecordError::Truncated { size: self.size })?;
        self.rest = tail;
        Ok(*head)
    }

    fn i8(&mut self) -> Result<i8, RecordError> {
        self.array().map(i8::from_be_bytes)
    }

    fn i16(&mut self) -> Result<i16, RecordError> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, RecordError> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, RecordError> {
        self.array().map(i64::from_be_bytes)
    }

    fn varint(&mut self) -> Result<u32, RecordError> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array::<1>()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(RecordError::Truncated { size: self.size })
    }

    /// Elements of an array; each is at least a byte, so a count beyond what is left ends in `Truncated` soon.
    fn nullable_count(&mut self) -> Result<Option<usize>, RecordError> {
        if self.flexible {
            let count = self.varint()?;
            Ok(count.checked_sub(1).map(|count| usize::try_from(count).unwrap_or(usize::MAX)))
        } else {
            Ok(usize::try_from(self.i32()?).ok())
        }
    }

    fn string(&mut self) -> Result<Arc<str>, RecordError> {
        let size = if self.flexible { self.nullable_count()? } else { usize::try_from(self.i16()?).ok() };
        let bytes = self.take(size.ok_or(RecordError::UnexpectedNull)?)?;
        std::str::from_utf8(bytes).map(Arc::from).map_err(|_| RecordError::NotUtf8)
    }

    fn tags(
        &mut self,
        mut each: impl FnMut(u32, &mut Reader<'_>) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        if !self.flexible {
            return Ok(());
        }
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let size = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
            each(tag, &mut Reader::new(self.take(size)?, true))?;
        }
        Ok(())
    }
}
