//! The guard before the decoder: a walk over a request body that proves every count and length in it, allocating nothing.
//!
//! `kafka-protocol` decodes an array with `Vec::with_capacity(n)`, where `n` is what the client wrote: a frame of 12 bytes could reserve gigabytes.
//! The walk follows a table of field kinds ([`requests`]) and refuses a body where
//! * an array claims more elements than there are bytes left (every element takes at least one), or
//! * elements and tagged fields together exceed [`MAX_REQUEST_ELEMENTS`]: a hundred megabytes of two-byte elements would otherwise become
//!   gigabytes of structs, or
//! * a string, byte field or tagged field is longer than what is left, or a known tagged field is not as long as it says.
//!
//! The tables are proven against the crate: the tests generate bodies from them, for every API and version, and the crate's decoder must consume each
//! to its last byte.

pub mod requests;
#[cfg(test)]
mod tests;

use crate::wire::{Cursor, Short};

/// The most array elements and tagged fields one request may hold. A consumer of 100,000 partitions stays below; the structs of a request at the limit
/// take tens of megabytes.
pub const MAX_REQUEST_ELEMENTS: usize = 1 << 18;

/// What the guard found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// No schema: the API is not served, so nothing may decode it.
    #[error("there is no schema for api key {key}")]
    UnknownApi {
        /// The API key.
        key: i16,
    },
    /// A value runs past the end of the body, or a length is malformed.
    #[error("a field at byte {position} runs past the end of the body")]
    Truncated {
        /// Where the field starts.
        position: usize,
    },
    /// An array claims more elements than the body has bytes left.
    #[error("an array at byte {position} claims {claimed} elements, but only {remaining} bytes are left")]
    ImpossibleCount {
        /// Where the count stands.
        position: usize,
        /// The elements it claims.
        claimed: usize,
        /// The bytes left after the count.
        remaining: usize,
    },
    /// Too many elements in all.
    #[error("the body holds more than {MAX_REQUEST_ELEMENTS} array elements and tagged fields")]
    TooManyElements,
    /// A tagged field that the schema knows is longer or shorter than its size says.
    #[error("tagged field {tag} at byte {position} is not as long as it says")]
    TagSize {
        /// The tag.
        tag: u32,
        /// Where its value starts.
        position: usize,
    },
}

/// What a field is made of.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A value of so many bytes.
    Fixed(usize),
    /// A string, nullable or not: int16 length, or compact in flexible versions.
    String,
    /// Bytes or records, nullable or not: int32 length, or compact in flexible versions.
    Bytes,
    /// An array, nullable or not, of this: int32 count, or compact in flexible versions.
    Array(&'static Kind),
    /// A struct, with its tagged fields at its end in flexible versions.
    Struct(&'static Struct),
    /// A struct that may be null: one byte in front says whether it is there, and any other than 1 that it is not, as the decoder reads it.
    Nullable(&'static Struct),
}

/// A field and the versions that have it.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    kind: Kind,
    since: i16,
    until: i16,
}

impl Field {
    const fn present(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }
}

/// A tagged field that the decoder reads as a value of its own instead of keeping its bytes.
#[derive(Debug, Clone, Copy)]
pub struct TaggedField {
    tag: u32,
    field: Field,
}

/// Fields in wire order.
#[derive(Debug)]
pub struct Struct {
    fields: &'static [Field],
    tagged: &'static [TaggedField],
}

/// The body of one request API.
#[derive(Debug)]
pub struct RequestSchema {
    /// The API key.
    pub key: i16,
    /// The first version with compact encodings and tagged fields; `i16::MAX` when there is none.
    pub first_flexible: i16,
    body: Struct,
}

/// The schema of an API, if it is one we know.
#[must_use]
pub const fn find(key: i16) -> Option<&'static RequestSchema> {
    let mut index = 0;
    while index < requests::REQUESTS.len() {
        if requests::REQUESTS[index].key == key {
            return Some(requests::REQUESTS[index]);
        }
        index += 1;
    }
    None
}

/// Proves that a body of this API and version is safe to give to the decoder. Bytes after the message are not looked at.
///
/// # Errors
/// See [`GuardError`].
pub fn guard(key: i16, version: i16, body: &[u8]) -> Result<(), GuardError> {
    let schema = find(key).ok_or(GuardError::UnknownApi { key })?;
    let mut walk = Walk { cursor: Cursor::new(body), version, flexible: version >= schema.first_flexible, elements: 0 };
    walk.structure(&schema.body)
}

struct Walk<'a> {
    cursor: Cursor<'a>,
    version: i16,
    flexible: bool,
    elements: usize,
}

impl Walk<'_> {
    fn structure(&mut self, structure: &'static Struct) -> Result<(), GuardError> {
        for field in structure.fields {
            if field.present(self.version) {
                self.value(&field.kind)?;
            }
        }
        if self.flexible {
            self.tagged_fields(structure.tagged)?;
        }
        Ok(())
    }

    /// Recursion is as deep as the schema, which is a constant: no client can deepen it.
    fn value(&mut self, kind: &'static Kind) -> Result<(), GuardError> {
        match kind {
            Kind::Fixed(size) => self.skip(*size),
            Kind::String => {
                let size = if self.flexible { self.compact_size()? } else { self.short_size()? };
                self.skip(size)
            }
            Kind::Bytes => {
                let size = if self.flexible { self.compact_size()? } else { self.long_size()? };
                self.skip(size)
            }
            Kind::Array(element) => {
                let position = self.cursor.position();
                let claimed = if self.flexible { self.compact_size()? } else { self.long_size()? };
                let remaining = self.cursor.remaining();
                if claimed > remaining {
                    return Err(GuardError::ImpossibleCount { position, claimed, remaining });
                }
                self.count(claimed)?;
                for _ in 0..claimed {
                    self.value(element)?;
                }
                Ok(())
            }
            Kind::Struct(structure) => self.structure(structure),
            Kind::Nullable(structure) => {
                let position = self.cursor.position();
                let present = self.at(position, |cursor| cursor.take(1).map(|byte| byte == [1]))?;
                if present { self.structure(structure) } else { Ok(()) }
            }
        }
    }

    fn tagged_fields(&mut self, known: &'static [TaggedField]) -> Result<(), GuardError> {
        let position = self.cursor.position();
        let claimed = self.at(position, |cursor| cursor.varint_size())?;
        let remaining = self.cursor.remaining();
        if claimed > remaining {
            return Err(GuardError::ImpossibleCount { position, claimed, remaining });
        }
        self.count(claimed)?;
        for _ in 0..claimed {
            let position = self.cursor.position();
            let tag = self.at(position, |cursor| cursor.unsigned_varint())?;
            let size = self.at(position, |cursor| cursor.varint_size())?;
            let start = self.cursor.position();
            match known.iter().find(|tagged| tagged.tag == tag && tagged.field.present(self.version)) {
                Some(tagged) => {
                    self.value(&tagged.field.kind)?;
                    if self.cursor.position() - start != size {
                        return Err(GuardError::TagSize { tag, position: start });
                    }
                }
                None => self.skip(size)?,
            }
        }
        Ok(())
    }

    fn count(&mut self, more: usize) -> Result<(), GuardError> {
        self.elements = self.elements.saturating_add(more);
        if self.elements > MAX_REQUEST_ELEMENTS {
            return Err(GuardError::TooManyElements);
        }
        Ok(())
    }

    fn skip(&mut self, size: usize) -> Result<(), GuardError> {
        let position = self.cursor.position();
        self.at(position, |cursor| cursor.take(size).map(|_| ()))
    }

    /// Zero stands for null, which has no content.
    fn compact_size(&mut self) -> Result<usize, GuardError> {
        let position = self.cursor.position();
        self.at(position, |cursor| cursor.varint_size()).map(|size| size.saturating_sub(1))
    }

    /// A negative length other than -1 is left to the decoder, which refuses it without allocating.
    fn short_size(&mut self) -> Result<usize, GuardError> {
        let position = self.cursor.position();
        self.at(position, |cursor| cursor.i16()).map(|length| usize::try_from(length).unwrap_or(0))
    }

    fn long_size(&mut self) -> Result<usize, GuardError> {
        let position = self.cursor.position();
        self.at(position, |cursor| cursor.i32()).map(|length| usize::try_from(length).unwrap_or(0))
    }

    fn at<T>(
        &mut self,
        position: usize,
        read: impl FnOnce(&mut Cursor<'_>) -> Result<T, Short>,
    ) -> Result<T, GuardError> {
        read(&mut self.cursor).map_err(|Short| GuardError::Truncated { position })
    }
}
