//! Zig-zag variable-length integers, as records use them.

use super::BatchError;

/// Reads a zig-zag varint of 32 bits from the front of `bytes`, and moves past it.
#[inline]
pub(super) fn take_varint(bytes: &mut &[u8]) -> Result<i32, BatchError> {
    // One byte holds -64..=63: nearly every delta, length and count of a small record.
    if let Some((&first, rest)) = bytes.split_first()
        && first < 0x80
    {
        *bytes = rest;
        let raw = u32::from(first);
        return Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
    }
    let value = take_varlong(bytes)?;
    i32::try_from(value).map_err(|_| BatchError::Malformed("a varint passes 32 bits"))
}

/// Reads a zig-zag varint of 64 bits from the front of `bytes`, and moves past it.
#[inline]
pub(super) fn take_varlong(bytes: &mut &[u8]) -> Result<i64, BatchError> {
    let mut raw = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        raw |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            if index == 9 && byte > 1 {
                return Err(BatchError::Malformed("a varint passes 64 bits"));
            }
            *bytes = &bytes[index + 1..];
            return Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
        }
    }
    Err(BatchError::Malformed("a varint does not end"))
}

/// Appends a zig-zag varint of 64 bits.
#[inline]
pub fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut raw = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
    while raw >= 0x80 {
        out.push((raw & 0x7f) as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// Appends a zig-zag varint of 32 bits.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: i32) {
    put_varlong(out, i64::from(value));
}

/// Bytes that [`put_varlong`] writes for `value`.
#[inline]
pub fn varint_size(value: i64) -> usize {
    let raw = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
    let bits = 64 - (raw | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}
