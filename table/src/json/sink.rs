//! Where encoded bytes go.

/// Bytes appended one value at a time.
pub(super) trait Sink {
    fn push(&mut self, byte: u8);
    fn extend_from_slice(&mut self, bytes: &[u8]);
    /// Appends `count` times `byte`.
    fn repeat(&mut self, byte: u8, count: usize);
    /// Appends what `write` puts at the start of `room` bytes; it answers how many it used.
    fn write_with(&mut self, room: usize, write: impl FnOnce(&mut [u8]) -> usize);
}

impl Sink for Vec<u8> {
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        Vec::extend_from_slice(self, bytes);
    }

    fn repeat(&mut self, byte: u8, count: usize) {
        self.resize(self.len() + count, byte);
    }

    fn write_with(&mut self, room: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        let start = self.len();
        self.resize(start + room, 0);
        let used = write(&mut self[start..]);
        self.truncate(start + used);
    }
}

/// Room kept behind the end, so that short literals are copied at a fixed width, without a call.
const SLACK: usize = 64;

/// A row being written. Its bytes are initialised beyond its length, which is what lets [`RowBuffer::literal`] copy more than it keeps.
#[derive(Default)]
pub(super) struct RowBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl RowBuffer {
    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline(always)]
    fn reserve(&mut self, count: usize) {
        if self.bytes.len() < self.len + count + SLACK {
            self.grow(count);
        }
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.bytes.resize((self.len + count + SLACK).next_power_of_two().max(1024), 0);
    }

    #[inline(always)]
    pub fn literal(&mut self, literal: &Literal) {
        if let Literal::Short { bytes, len } = literal {
            self.reserve(bytes.len());
            self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
            self.len += usize::from(*len);
        } else if let Literal::Long(bytes) = literal {
            self.extend_from_slice(bytes);
        }
    }
}

impl Sink for RowBuffer {
    #[inline(always)]
    fn push(&mut self, byte: u8) {
        self.reserve(1);
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline(always)]
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline(always)]
    fn repeat(&mut self, byte: u8, count: usize) {
        self.reserve(count);
        self.bytes[self.len..self.len + count].fill(byte);
        self.len += count;
    }

    #[inline(always)]
    fn write_with(&mut self, room: usize, write: impl FnOnce(&mut [u8]) -> usize) {
        self.reserve(room);
        self.len += write(&mut self.bytes[self.len..self.len + room]);
    }
}

/// Bytes known when a style is compiled: keys and separators.
pub(super) enum Literal {
    Short { bytes: [u8; 32], len: u8 },
    Long(Box<[u8]>),
}

impl Literal {
    pub fn new(literal: &[u8]) -> Self {
        let mut bytes = [0; 32];
        match (bytes.get_mut(..literal.len()), u8::try_from(literal.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(literal);
                Self::Short { bytes, len }
            }
            _ => Self::Long(literal.into()),
        }
    }
}
