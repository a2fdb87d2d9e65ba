//! A bounds-checked cursor over borrowed bytes: nothing here allocates, so nothing a client claims can make it.

/// The bytes end before the value does, or a length is negative where none may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short;

pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Short> {
        if count > self.remaining() {
            return Err(Short);
        }
        let taken = &self.bytes[self.position..self.position + count];
        self.position += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        self.take(N)?.try_into().map_err(|_| Short)
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Short> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Short> {
        self.array().map(i32::from_be_bytes)
    }

    /// An unsigned varint of at most 32 bits. A fifth byte with more than the four bits that are left is refused: `kafka-protocol` would drop them
    /// silently, and two readers that disagree about a length are what a guard must prevent.
    pub(crate) fn unsigned_varint(&mut self) -> Result<u32, Short> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array::<1>()?;
            if shift == 28 && byte > 0x0f {
                return Err(Short);
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Short)
    }

    /// A size given as an unsigned varint.
    pub(crate) fn varint_size(&mut self) -> Result<usize, Short> {
        usize::try_from(self.unsigned_varint()?).map_err(|_| Short)
    }
}

/// Appends an unsigned varint.
pub(crate) fn put_unsigned_varint(out: &mut bytes::BytesMut, mut value: u32) {
    use bytes::BufMut;
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).expect("seven bits fit a byte") | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).expect("less than 0x80 fits a byte"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_read_back_what_was_written() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u32::MAX - 1, u32::MAX] {
            let mut out = bytes::BytesMut::new();
            put_unsigned_varint(&mut out, value);
            assert_eq!(Cursor::new(&out).unsigned_varint(), Ok(value));
        }
    }

    #[test]
    fn a_varint_that_does_not_fit_32_bits_is_refused() {
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).unsigned_varint(), Err(Short));
        assert_eq!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).unsigned_varint(), Err(Short));
    }

    #[test]
    fn taking_past_the_end_is_refused_and_moves_nothing() {
        let mut cursor = Cursor::new(&[1, 2, 3]);
        assert_eq!(cursor.take(4), Err(Short));
        assert_eq!(cursor.remaining(), 3);
    }
}
