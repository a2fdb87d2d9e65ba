//! JSON scalars to the values columns hold. Shared by the decoder and the style detector, so that both read alike.

use super::scan::Number;
use super::sink::Sink;

/// Powers of ten that doubles hold exactly.
const POW10_F64: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
/// Powers of ten that floats hold exactly.
const POW10_F32: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

impl Number<'_> {
    fn as_str(&self) -> &str {
        std::str::from_utf8(self.text).expect("a number is ASCII")
    }

    /// The nearest double; `None` when it is beyond the largest.
    #[inline]
    pub fn to_f64(self) -> Option<f64> {
        let power = self.exponent.unsigned_abs() as usize;
        // Clinger's fast path: both factors are exact, so the one rounding is the right one.
        if self.exact && self.mantissa < 1 << 53 && power < POW10_F64.len() {
            let mantissa = self.mantissa as f64;
            let value = if self.exponent < 0 { mantissa / POW10_F64[power] } else { mantissa * POW10_F64[power] };
            return Some(if self.negative { -value } else { value });
        }
        self.as_str().parse::<f64>().ok().filter(|value| value.is_finite())
    }

    /// The nearest float; `None` when it is beyond the largest.
    #[inline]
    pub fn to_f32(self) -> Option<f32> {
        let power = self.exponent.unsigned_abs() as usize;
        if self.exact && self.mantissa < 1 << 24 && power < POW10_F32.len() {
            let mantissa = self.mantissa as f32;
            let value = if self.exponent < 0 { mantissa / POW10_F32[power] } else { mantissa * POW10_F32[power] };
            return Some(if self.negative { -value } else { value });
        }
        self.as_str().parse::<f32>().ok().filter(|value| value.is_finite())
    }

    /// The unscaled decimal, if the number is exactly one of `precision` digits, `scale` of them after the point.
    pub fn to_decimal(self, precision: u8, scale: u8) -> Option<i128> {
        let mut mantissa = if self.exact { u128::from(self.mantissa) } else { self.wide_mantissa()? };
        if mantissa == 0 {
            return Some(0);
        }
        let shift = self.exponent.checked_add(i32::from(scale))?;
        let power = 10u128.checked_pow(shift.unsigned_abs())?;
        if shift >= 0 {
            mantissa = mantissa.checked_mul(power)?;
        } else if mantissa % power == 0 {
            mantissa /= power;
        } else {
            return None;
        }
        if mantissa >= 10u128.pow(u32::from(precision)) {
            return None;
        }
        let value = i128::try_from(mantissa).ok()?;
        Some(if self.negative { -value } else { value })
    }

    fn wide_mantissa(self) -> Option<u128> {
        let digits =
            self.text.iter().take_while(|byte| !matches!(byte, b'e' | b'E')).filter(|byte| byte.is_ascii_digit());
        digits.into_iter().try_fold(0u128, |value, byte| value.checked_mul(10)?.checked_add(u128::from(byte - b'0')))
    }
}

/// A canonical UUID, either case.
pub(super) fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let mut uuid = [0u8; 16];
    let mut nibbles = 0;
    for (index, byte) in text.iter().enumerate() {
        if matches!(index, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        let nibble = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        uuid[nibbles / 2] |= nibble << (4 * (1 - nibbles % 2));
        nibbles += 1;
    }
    Some(uuid)
}

/// Writes a canonical UUID.
pub(super) fn write_uuid(uuid: &[u8], upper: bool, out: &mut impl Sink) {
    let digits: &[u8; 16] = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in uuid.iter().enumerate() {
        at += usize::from(matches!(index, 4 | 6 | 8 | 10));
        text[at] = digits[usize::from(byte >> 4)];
        text[at + 1] = digits[usize::from(byte & 15)];
        at += 2;
    }
    out.extend_from_slice(&text);
}
