//! The shortest digits of a number, laid out as a producer's language lays them out.

use super::sink::Sink;

/// Whose layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FloatForm {
    /// `repr`: `5.0`, `1e-05`, `1e+16`.
    Python,
    /// JavaScript and Go's encoding/json: `5`, `0.00001`, `1e-7`, `1e+21`.
    JavaScript,
    /// `Double.toString`: `5.0`, `1.0E-5`, `1.0E7`.
    Java,
    /// Rust's serde_json: `5.0`, `1e-5`, `1e16`.
    Rust,
}

impl FloatForm {
    pub const ALL: [Self; 4] = [Self::Python, Self::JavaScript, Self::Java, Self::Rust];

    pub const fn code(self) -> u8 {
        match self {
            Self::Python => b'p',
            Self::JavaScript => b'j',
            Self::Java => b'v',
            Self::Rust => b'r',
        }
    }

    /// Positions of the decimal point that are written without exponent: after `-low` zeros to after `high` digits.
    const fn plain_points(self) -> (i32, i32) {
        match self {
            Self::Python => (-3, 16),
            Self::JavaScript => (-5, 21),
            Self::Java => (-2, 7),
            Self::Rust => (-4, 16),
        }
    }

    /// Magnitudes for which ryu's own text is this layout, but for the `.0` JavaScript leaves out.
    const fn like_ryu(self) -> (f64, f64) {
        match self {
            Self::Python => (1e-4, 1e16),
            Self::JavaScript => (1e-5, 1e16),
            Self::Java => (1e-3, 1e7),
            Self::Rust => (1e-5, 1e16),
        }
    }

    /// Writes a finite double.
    #[inline]
    pub fn write_f64(self, value: f64, out: &mut impl Sink) {
        if let Some(thousandths) = thousandths(value) {
            return self.write_thousandths(value.is_sign_negative(), thousandths, out);
        }
        let mut buffer = ryu::Buffer::new();
        let text = buffer.format_finite(value);
        let (low, high) = self.like_ryu();
        let magnitude = value.abs();
        let alike = value == 0.0 || (magnitude >= low && magnitude < high);
        self.write_ryu(text, alike, out);
    }

    /// Writes `thousandths / 1000`; all layouts agree on such numbers but for the `.0` JavaScript leaves out.
    #[inline]
    fn write_thousandths(self, negative: bool, thousandths: u32, out: &mut impl Sink) {
        let mut buffer = itoa::Buffer::new();
        if negative {
            out.push(b'-');
        }
        out.extend_from_slice(buffer.format(thousandths / 1000).as_bytes());
        let rest = thousandths % 1000;
        if rest == 0 {
            out.extend_from_slice(if self == Self::JavaScript { b"" } else { b".0" });
            return;
        }
        let digit = |unit: u32| b"0123456789"[(rest / unit % 10) as usize];
        let text = [b'.', digit(100), digit(10), digit(1)];
        let len = match (rest.is_multiple_of(100), rest.is_multiple_of(10)) {
            (true, _) => 2,
            (_, true) => 3,
            _ => 4,
        };
        out.extend_from_slice(&text[..len]);
    }

    /// Writes a finite float by its own shortest digits.
    #[inline]
    pub fn write_f32(self, value: f32, out: &mut impl Sink) {
        let mut buffer = ryu::Buffer::new();
        let text = buffer.format_finite(value);
        let (low, high) = self.like_ryu();
        let magnitude = f64::from(value.abs());
        // ryu keeps floats plain up to 1e13 only.
        let alike = value == 0.0 || self == Self::Rust || (magnitude >= low && magnitude < high.min(1e13));
        self.write_ryu(text, alike, out);
    }

    #[inline(always)]
    fn write_ryu(self, text: &str, alike: bool, out: &mut impl Sink) {
        if !alike {
            return self.relayout(text.as_bytes(), out);
        }
        let text = match self {
            Self::JavaScript => text.strip_suffix(".0").unwrap_or(text),
            Self::Python | Self::Java | Self::Rust => text,
        };
        out.extend_from_slice(text.as_bytes());
    }

    #[cold]
    fn relayout(self, text: &[u8], out: &mut impl Sink) {
        let (negative, text) = match text.split_first() {
            Some((b'-', rest)) => (true, rest),
            _ => (false, text),
        };
        let mut digits = [0u8; 40];
        let mut length = 0;
        let mut point: i32 = 0;
        let mut after_point = false;
        let mut exponent: i32 = 0;
        for (index, byte) in text.iter().enumerate() {
            match byte {
                b'.' => after_point = true,
                b'e' => {
                    let written = std::str::from_utf8(&text[index + 1..]).ok().and_then(|text| text.parse().ok());
                    exponent = written.expect("ryu writes an exponent as an integer");
                    break;
                }
                digit => {
                    if length > 0 || *digit != b'0' {
                        digits[length] = *digit;
                        length += 1;
                        point += i32::from(!after_point);
                    } else {
                        point -= i32::from(after_point);
                    }
                }
            }
        }
        self.layout(negative, &digits[..length], point + exponent, out);
    }

    /// Writes `0.DIGITS x 10^point`. `digits` has no leading zero; trailing ones are dropped; empty is zero.
    pub fn layout(self, negative: bool, digits: &[u8], point: i32, out: &mut impl Sink) {
        let end = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        let digits = &digits[..end];
        let whole_suffix: &[u8] = if self == Self::JavaScript { b"" } else { b".0" };
        if negative {
            out.push(b'-');
        }
        if digits.is_empty() {
            out.push(b'0');
            out.extend_from_slice(whole_suffix);
            return;
        }
        let (low, high) = self.plain_points();
        if point < low || point > high {
            return self.exponential(digits, point - 1, out);
        }
        match usize::try_from(point) {
            Ok(point) if point >= digits.len() => {
                out.extend_from_slice(digits);
                out.repeat(b'0', point - digits.len());
                out.extend_from_slice(whole_suffix);
            }
            Ok(point) if point > 0 => {
                out.extend_from_slice(&digits[..point]);
                out.push(b'.');
                out.extend_from_slice(&digits[point..]);
            }
            _ => {
                out.extend_from_slice(b"0.");
                out.repeat(b'0', point.unsigned_abs() as usize);
                out.extend_from_slice(digits);
            }
        }
    }

    fn exponential(self, digits: &[u8], exponent: i32, out: &mut impl Sink) {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        } else if self == Self::Java {
            out.extend_from_slice(b".0");
        }
        out.push(if self == Self::Java { b'E' } else { b'e' });
        if exponent < 0 {
            out.push(b'-');
        } else if matches!(self, Self::Python | Self::JavaScript) {
            out.push(b'+');
        }
        if self == Self::Python && exponent.abs() < 10 {
            out.push(b'0');
        }
        out.extend_from_slice(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
    }
}

/// The number of thousandths a double is, if it is the double nearest to a whole number of them and below a million: prices and most
/// measurements. Two decimals of 15 digits or fewer never share a double, so these are also the shortest digits ryu would find,
/// at a third of the cost.
#[inline(always)]
fn thousandths(value: f64) -> Option<u32> {
    let magnitude = value.abs();
    if magnitude >= 1e6 {
        return None;
    }
    // Truncates; below 10^9 + 1.
    let count = (magnitude * 1000.0 + 0.5) as u32;
    (f64::from(count) / 1000.0 == magnitude).then_some(count)
}

/// How a DECIMAL is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecimalForm {
    /// Every digit of the scale: `12.50`.
    Full,
    /// As the language writes a float of that value: `12.5`.
    Float(FloatForm),
}

impl DecimalForm {
    pub const ALL: [Self; 5] = [
        Self::Full,
        Self::Float(FloatForm::Python),
        Self::Float(FloatForm::JavaScript),
        Self::Float(FloatForm::Java),
        Self::Float(FloatForm::Rust),
    ];

    pub const fn code(self) -> u8 {
        match self {
            Self::Full => b'f',
            Self::Float(form) => form.code(),
        }
    }

    #[inline]
    pub fn write(self, unscaled: i128, scale: usize, out: &mut impl Sink) {
        let mut buffer = itoa::Buffer::new();
        // 64-bit division is several times faster than 128-bit, and most decimals are small.
        let magnitude = unscaled.unsigned_abs();
        let digits = match u64::try_from(magnitude) {
            Ok(small) => buffer.format(small).as_bytes(),
            Err(_) => buffer.format(magnitude).as_bytes(),
        };
        match self {
            Self::Float(form) => {
                let digits = if magnitude == 0 { &[] } else { digits };
                let point = i32::try_from(digits.len()).unwrap_or(0) - i32::try_from(scale).unwrap_or(0);
                form.layout(unscaled < 0, digits, point, out);
            }
            Self::Full => {
                if unscaled < 0 {
                    out.push(b'-');
                }
                if scale == 0 {
                    out.extend_from_slice(digits);
                } else if digits.len() > scale {
                    let (whole, fraction) = digits.split_at(digits.len() - scale);
                    out.extend_from_slice(whole);
                    out.push(b'.');
                    out.extend_from_slice(fraction);
                } else {
                    out.extend_from_slice(b"0.");
                    out.repeat(b'0', scale - digits.len());
                    out.extend_from_slice(digits);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(form: FloatForm, value: f64) -> String {
        let mut out = Vec::new();
        form.write_f64(value, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    /// Each row was printed by CPython 3.11 `repr`, Node 20 `JSON.stringify`, OpenJDK 17 `Double.toString`, serde_json 1.0.
    #[test]
    fn doubles_are_laid_out_as_each_language_does() {
        let rows = [
            (0.0, "0.0", "0", "0.0", "0.0"),
            (5.0, "5.0", "5", "5.0", "5.0"),
            (-12.5, "-12.5", "-12.5", "-12.5", "-12.5"),
            (0.1, "0.1", "0.1", "0.1", "0.1"),
            (0.001, "0.001", "0.001", "0.001", "0.001"),
            (0.0001, "0.0001", "0.0001", "1.0E-4", "0.0001"),
            (0.00001, "1e-05", "0.00001", "1.0E-5", "0.00001"),
            (0.000001, "1e-06", "0.000001", "1.0E-6", "1e-6"),
            (1.25e-7, "1.25e-07", "1.25e-7", "1.25E-7", "1.25e-7"),
            (9_999_999.0, "9999999.0", "9999999", "9999999.0", "9999999.0"),
            (1e7, "10000000.0", "10000000", "1.0E7", "10000000.0"),
            (123_456_789.125, "123456789.125", "123456789.125", "1.23456789125E8", "123456789.125"),
            (1e16, "1e+16", "10000000000000000", "1.0E16", "1e16"),
            (1.5e17, "1.5e+17", "150000000000000000", "1.5E17", "1.5e17"),
            (1e21, "1e+21", "1e+21", "1.0E21", "1e21"),
            (
                1.7976931348623157e308,
                "1.7976931348623157e+308",
                "1.7976931348623157e+308",
                "1.7976931348623157E308",
                "1.7976931348623157e308",
            ),
            (5e-324, "5e-324", "5e-324", "5.0E-324", "5e-324"),
        ];
        for (value, python, javascript, java, rust) in rows {
            assert_eq!(text(FloatForm::Python, value), python);
            assert_eq!(text(FloatForm::JavaScript, value), javascript);
            if value != 5e-324 {
                assert_eq!(text(FloatForm::Java, value), java);
            }
            assert_eq!(text(FloatForm::Rust, value), rust);
        }
        assert_eq!(text(FloatForm::Python, -0.0), "-0.0");
        assert_eq!(text(FloatForm::JavaScript, -0.0), "-0");
    }

    fn agree(form: FloatForm, value: f64) {
        let mut long = Vec::new();
        form.relayout(ryu::Buffer::new().format_finite(value).as_bytes(), &mut long);
        assert_eq!(text(form, value).as_bytes(), long, "{value:e} {form:?}");
    }

    #[test]
    fn the_short_way_and_the_long_way_agree() {
        for form in FloatForm::ALL {
            for exponent in -30..30 {
                for mantissa in [1.0, 1.5, 9.999_999_999_999_998, 1.234_567_890_123] {
                    agree(form, mantissa * 10f64.powi(exponent));
                }
            }
            for count in (0..2_000).chain((0..20_000).map(|count| count * 50_021 + 7)) {
                let value = f64::from(count) / 1000.0;
                for value in [value, -value, value.next_up(), value.next_down(), value * 0.1, value / 3.0] {
                    agree(form, value);
                }
            }
        }
    }

    #[test]
    fn floats_use_their_own_digits() {
        let mut out = Vec::new();
        FloatForm::Python.write_f32(0.1, &mut out);
        out.push(b' ');
        FloatForm::JavaScript.write_f32(1e15, &mut out);
        out.push(b' ');
        FloatForm::Java.write_f32(3.0e10, &mut out);
        assert_eq!(out, b"0.1 1000000000000000 3.0E10");
    }

    #[test]
    fn decimals_are_full_or_like_a_float() {
        for (unscaled, scale, full, python, javascript) in [
            (1250, 2, "12.50", "12.5", "12.5"),
            (-1200, 2, "-12.00", "-12.0", "-12"),
            (5, 3, "0.005", "0.005", "0.005"),
            (0, 2, "0.00", "0.0", "0"),
            (7, 0, "7", "7.0", "7"),
            (100, 0, "100", "100.0", "100"),
            (1, 5, "0.00001", "1e-05", "0.00001"),
            (
                99_999_999_999_999_999_999_999_999_999_999_999_999,
                1,
                "9999999999999999999999999999999999999.9",
                "9.9999999999999999999999999999999999999e+36",
                "9.9999999999999999999999999999999999999e+36",
            ),
        ] {
            let mut out = Vec::new();
            DecimalForm::Full.write(unscaled, scale, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), full);
            out.clear();
            DecimalForm::Float(FloatForm::Python).write(unscaled, scale, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), python);
            out.clear();
            DecimalForm::Float(FloatForm::JavaScript).write(unscaled, scale, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), javascript);
        }
    }
}
