//! A strict RFC 8259 scanner over one value's bytes. The bytes were checked to be UTF-8 before it starts.

use super::error::{Checked, Fault, excerpt};

/// How deep a member that no column wants may nest; columns are bounded by the schema.
const MAX_SKIP_DEPTH: u32 = 128;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte equal to `byte`; exact for the lowest such byte, which is the one used.
#[inline(always)]
pub(super) const fn bytes_equal(word: u64, byte: u8) -> u64 {
    let x = word ^ (ONES * byte as u64);
    x.wrapping_sub(ONES) & !x & HIGHS
}

/// The high bit of each byte a JSON string cannot hold as it is: a quote, a backslash, a control character.
#[inline(always)]
pub(super) const fn string_specials(word: u64) -> u64 {
    bytes_equal(word, b'"') | bytes_equal(word, b'\\') | (word.wrapping_sub(ONES * 0x20) & !word & HIGHS)
}

/// The high bit of each byte outside ASCII.
#[inline(always)]
pub(super) const fn non_ascii(word: u64) -> u64 {
    word & HIGHS
}

/// A number as written, cut into parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number<'a> {
    pub text: &'a [u8],
    pub negative: bool,
    /// The digits without point; valid when `exact`.
    pub mantissa: u64,
    /// False when the digits do not fit 64 bits.
    pub exact: bool,
    /// Power of ten that multiplies `mantissa`.
    pub exponent: i32,
}

pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    #[inline(always)]
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn rewind(&mut self, position: usize) {
        self.at = position;
    }

    pub fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.at]
    }

    /// The next byte, 0 at the end: no JSON token starts with 0.
    #[inline(always)]
    pub fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    #[inline(always)]
    pub fn skip_ws(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    #[inline(always)]
    pub fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    #[inline(always)]
    pub fn expect(&mut self, byte: u8, expected: &'static str) -> Checked<()> {
        if self.eat(byte) { Ok(()) } else { Err(self.malformed(expected)) }
    }

    /// Nothing but white space may be left.
    pub fn end(&mut self) -> Checked<()> {
        self.skip_ws();
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.malformed("one JSON object and nothing after it")) }
    }

    /// Takes `"name"` if it stands here, byte for byte. `name` holds nothing that JSON escapes.
    #[inline(always)]
    pub fn eat_plain_key(&mut self, name: &[u8]) -> bool {
        let start = self.at + 1;
        let end = start + name.len();
        let found = self.peek() == b'"'
            && self.bytes.get(end) == Some(&b'"')
            && self.bytes.get(start..end).is_some_and(|bytes| bytes == name);
        if found {
            self.at = end + 1;
        }
        found
    }

    #[inline(always)]
    pub fn literal(&mut self, literal: &'static [u8]) -> bool {
        let found = self.bytes.get(self.at..self.at + literal.len()) == Some(literal);
        if found {
            self.at += literal.len();
        }
        found
    }

    #[cold]
    pub fn malformed(&self, expected: &'static str) -> Box<Fault> {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let found = if rest.is_empty() {
            "the end of the value".to_owned()
        } else {
            format!("`{}` at byte {}", excerpt(&rest[..rest.len().min(24)]), self.at)
        };
        Fault::new(expected, found)
    }

    /// The value that starts at `start` is not what its column holds. Malformed JSON is reported as such instead.
    #[cold]
    pub fn mismatch(&mut self, start: usize, expected: String) -> Box<Fault> {
        self.at = start;
        match self.skip_value() {
            Ok(()) => Fault::new(expected, excerpt(self.since(start))),
            Err(fault) => fault,
        }
    }

    /// An integer of at most 18 digits, the common case; `None` leaves the scanner where it was.
    #[inline(always)]
    pub fn small_integer(&mut self) -> Option<i64> {
        let start = self.at;
        let negative = self.peek() == b'-';
        let first = start + usize::from(negative);
        let mut at = first;
        let mut value: i64 = 0;
        while let Some(digit) = self.bytes.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            if at - first == 18 {
                return None;
            }
            value = value * 10 + i64::from(digit);
            at += 1;
        }
        let leading_zero = at - first > 1 && self.bytes[first] == b'0';
        if at == first || leading_zero || matches!(self.bytes.get(at), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.at = at;
        Some(if negative { -value } else { value })
    }

    /// A number by the grammar of RFC 8259.
    pub fn number(&mut self) -> Checked<Number<'a>> {
        let start = self.at;
        let negative = self.eat(b'-');
        let mut mantissa: u64 = 0;
        let mut significant: u32 = 0;
        let first = self.at;
        self.digits(&mut mantissa, &mut significant);
        let whole = self.at - first;
        if whole == 0 || (whole > 1 && self.bytes[first] == b'0') {
            self.at = first;
            return Err(self.malformed("a JSON number"));
        }
        let mut exponent: i32 = 0;
        if self.eat(b'.') {
            let first = self.at;
            self.digits(&mut mantissa, &mut significant);
            if self.at == first {
                return Err(self.malformed("a digit after the point"));
            }
            exponent = -i32::try_from(self.at - first).unwrap_or(i32::MAX);
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            let minus = self.peek() == b'-';
            if matches!(self.peek(), b'-' | b'+') {
                self.at += 1;
            }
            let first = self.at;
            let mut written: i32 = 0;
            while self.peek().is_ascii_digit() {
                written = written.saturating_mul(10).saturating_add(i32::from(self.peek() - b'0'));
                self.at += 1;
            }
            if self.at == first {
                return Err(self.malformed("a digit in the exponent"));
            }
            exponent = exponent.saturating_add(if minus { -written } else { written });
        }
        Ok(Number { text: self.since(start), negative, mantissa, exact: significant <= 19, exponent })
    }

    #[inline(always)]
    fn digits(&mut self, mantissa: &mut u64, significant: &mut u32) {
        while let Some(digit) = self.bytes.get(self.at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
            *significant += u32::from(*significant > 0 || digit > 0);
            self.at += 1;
        }
    }

    /// From here to the next byte that cannot stand for itself in a string.
    #[inline(always)]
    fn plain_run(&mut self) -> &'a [u8] {
        let start = self.at;
        let mut at = start;
        while let Some(chunk) = self.bytes.get(at..at + 8) {
            let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
            let specials = string_specials(word);
            if specials != 0 {
                at += (specials.trailing_zeros() / 8) as usize;
                self.at = at;
                return &self.bytes[start..at];
            }
            at += 8;
        }
        while let Some(byte) = self.bytes.get(at) {
            if *byte < 0x20 || *byte == b'"' || *byte == b'\\' {
                break;
            }
            at += 1;
        }
        self.at = at;
        &self.bytes[start..at]
    }

    /// A string, unescaped onto the end of `out`.
    #[inline(always)]
    pub fn string_into(&mut self, out: &mut Vec<u8>) -> Checked<()> {
        self.expect(b'"', "a JSON string")?;
        let run = self.plain_run();
        out.extend_from_slice(run);
        if self.eat(b'"') { Ok(()) } else { self.escaped_into(out) }
    }

    fn escaped_into(&mut self, out: &mut Vec<u8>) -> Checked<()> {
        loop {
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    let start = self.at;
                    let code = self.escape()?;
                    let character = if (0xD800..0xDC00).contains(&code) && self.peek() == b'\\' {
                        let low = self.escape()?;
                        if (0xDC00..0xE000).contains(&low) {
                            char::from_u32(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
                        } else {
                            None
                        }
                    } else {
                        char::from_u32(code)
                    };
                    let Some(character) = character else {
                        return Err(Fault::new(
                            "text: a \\uD800 to \\uDFFF escape must be half of a surrogate pair",
                            excerpt(self.since(start)),
                        ));
                    };
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => return Err(self.malformed("a string without raw control characters, ended by a quote")),
            }
            let run = self.plain_run();
            out.extend_from_slice(run);
        }
    }

    /// One escape sequence; surrogates come out as they are.
    fn escape(&mut self) -> Checked<u32> {
        self.at += 1;
        let kind = self.peek();
        let code = match kind {
            b'"' | b'\\' | b'/' => u32::from(kind),
            b'b' => 8,
            b'f' => 12,
            b'n' => 10,
            b'r' => 13,
            b't' => 9,
            b'u' => {
                let digits = self.bytes.get(self.at + 1..self.at + 5);
                let code = digits.and_then(|digits| {
                    digits.iter().try_fold(0u32, |code, byte| Some(code << 4 | char::from(*byte).to_digit(16)?))
                });
                let Some(code) = code else { return Err(self.malformed("four hexadecimal digits after \\u")) };
                self.at += 4;
                code
            }
            _ => return Err(self.malformed("one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u")),
        };
        self.at += 1;
        Ok(code)
    }

    /// A string's text: the input itself when it holds no escape, `scratch` otherwise.
    #[inline(always)]
    pub fn text<'b>(&mut self, scratch: &'b mut Vec<u8>) -> Checked<&'b [u8]>
    where
        'a: 'b,
    {
        self.expect(b'"', "a JSON string")?;
        let run = self.plain_run();
        if self.eat(b'"') {
            return Ok(run);
        }
        scratch.clear();
        scratch.extend_from_slice(run);
        self.escaped_into(scratch)?;
        Ok(scratch)
    }

    /// Checks a string and leaves it behind.
    pub fn skip_string(&mut self) -> Checked<()> {
        self.expect(b'"', "a JSON string")?;
        loop {
            self.plain_run();
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => {
                    self.escape()?;
                }
                _ => return Err(self.malformed("a string without raw control characters, ended by a quote")),
            }
        }
    }

    /// Checks any value and leaves it behind.
    pub fn skip_value(&mut self) -> Checked<()> {
        self.skip_nested(MAX_SKIP_DEPTH)
    }

    fn skip_nested(&mut self, depth: u32) -> Checked<()> {
        match self.peek() {
            b'"' => self.skip_string(),
            b'{' | b'[' if depth == 0 => Err(self.malformed("arrays and objects at most 128 deep")),
            b'{' => {
                self.at += 1;
                self.skip_ws();
                if self.eat(b'}') {
                    return Ok(());
                }
                loop {
                    self.skip_ws();
                    self.skip_string()?;
                    self.skip_ws();
                    self.expect(b':', "`:` after a key")?;
                    self.skip_ws();
                    self.skip_nested(depth - 1)?;
                    self.skip_ws();
                    if self.eat(b'}') {
                        return Ok(());
                    }
                    self.expect(b',', "`,` or `}`")?;
                }
            }
            b'[' => {
                self.at += 1;
                self.skip_ws();
                if self.eat(b']') {
                    return Ok(());
                }
                loop {
                    self.skip_ws();
                    self.skip_nested(depth - 1)?;
                    self.skip_ws();
                    if self.eat(b']') {
                        return Ok(());
                    }
                    self.expect(b',', "`,` or `]`")?;
                }
            }
            b't' if self.literal(b"true") => Ok(()),
            b'f' if self.literal(b"false") => Ok(()),
            b'n' if self.literal(b"null") => Ok(()),
            b'-' | b'0'..=b'9' => self.number().map(|_| ()),
            _ => Err(self.malformed("a JSON value")),
        }
    }
}
