//! How producers' languages escape strings. One table per dialect, all of them read back to the same text.

use super::scan::{bytes_equal, non_ascii, string_specials};
use super::sink::Sink;

/// What stands for a character outside ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wide {
    /// Itself.
    Raw,
    /// Itself, but U+2028 and U+2029 are escaped: they end a line in old JavaScript.
    RawButSeparators,
    /// `\uXXXX`, in surrogate pairs beyond the basic plane.
    Escaped,
}

/// Which bytes end a run that can be copied, found eight at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stops {
    /// Quote, backslash, control characters.
    Basic,
    /// Those and everything outside ASCII.
    Wide,
    /// Those and `<`, `>`, `&`.
    WideAndHtml,
    /// Look at each byte.
    Table,
}

/// One language's escaping.
#[derive(Debug)]
pub(super) struct Dialect {
    /// Its letter in a style's text.
    pub code: u8,
    stops: Stops,
    /// Per ASCII character: 0 itself, `u` a hexadecimal escape, otherwise the letter after the backslash.
    ascii: [u8; 128],
    wide: Wide,
    hex: &'static [u8; 16],
}

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// The escapes of RFC 8259 that every dialect starts from.
const fn base() -> [u8; 128] {
    let mut table = [0u8; 128];
    let mut at = 0;
    while at < 0x20 {
        table[at] = b'u';
        at += 1;
    }
    table[8] = b'b';
    table[9] = b't';
    table[10] = b'n';
    table[12] = b'f';
    table[13] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
}

/// `base` with each of `characters` escaped as `how`.
const fn with(mut table: [u8; 128], characters: &[u8], how: u8) -> [u8; 128] {
    let mut at = 0;
    while at < characters.len() {
        table[characters[at] as usize] = how;
        at += 1;
    }
    table
}

const fn dialect(code: u8, stops: Stops, ascii: [u8; 128], wide: Wide, hex: &'static [u8; 16]) -> Dialect {
    Dialect { code, stops, ascii, wide, hex }
}

/// Every dialect; a style's escaping is an index into it, a detected set a bit mask over it.
pub(super) static DIALECTS: [Dialect; 12] = [
    // JSON.stringify, Python with ensure_ascii=False, serde_json.
    dialect(b'u', Stops::Basic, base(), Wide::Raw, LOWER),
    // Python json.dumps.
    dialect(b'a', Stops::Wide, with(base(), b"\x7f", b'u'), Wide::Escaped, LOWER),
    // Jackson.
    dialect(b'J', Stops::Basic, base(), Wide::Raw, UPPER),
    // Jackson with ESCAPE_NON_ASCII.
    dialect(b'A', Stops::Wide, base(), Wide::Escaped, UPPER),
    // Go encoding/json since 1.22.
    dialect(b'g', Stops::WideAndHtml, with(base(), b"<>&", b'u'), Wide::RawButSeparators, LOWER),
    // Go before 1.22.
    dialect(b'G', Stops::WideAndHtml, with(base(), b"<>&\x08\x0c", b'u'), Wide::RawButSeparators, LOWER),
    // Go with SetEscapeHTML(false), since 1.22 and before.
    dialect(b'o', Stops::Wide, base(), Wide::RawButSeparators, LOWER),
    dialect(b'O', Stops::Wide, with(base(), b"\x08\x0c", b'u'), Wide::RawButSeparators, LOWER),
    // Gson.
    dialect(b'n', Stops::Table, with(base(), b"<>&='", b'u'), Wide::RawButSeparators, LOWER),
    // PHP json_encode, and with JSON_UNESCAPED_UNICODE.
    dialect(b'p', Stops::Table, with(base(), b"/", b'/'), Wide::Escaped, LOWER),
    dialect(b'P', Stops::Table, with(base(), b"/", b'/'), Wide::RawButSeparators, LOWER),
    // .NET System.Text.Json.
    dialect(b'd', Stops::Table, with(base(), b"\"&'+<>`\x7f", b'u'), Wide::Escaped, UPPER),
];

/// The mask of all dialects.
pub(super) const ALL_DIALECTS: u16 = (1 << DIALECTS.len()) - 1;

impl Dialect {
    pub fn by_code(code: u8) -> Option<usize> {
        DIALECTS.iter().position(|dialect| dialect.code == code)
    }

    /// Writes `text` in quotes.
    #[inline]
    pub fn write_string(&self, text: &str, out: &mut impl Sink) {
        out.push(b'"');
        let run = self.plain_run(text.as_bytes());
        if run == text.len() {
            out.extend_from_slice(text.as_bytes());
        } else {
            self.write_escaped(text, run, out);
        }
        out.push(b'"');
    }

    /// The length of the prefix that stands for itself.
    #[inline]
    fn plain_run(&self, text: &[u8]) -> usize {
        match self.stops {
            Stops::Basic => self.run_until(text, string_specials),
            // 0x7f is a rare stop of one dialect: its byte reads as a stop for the others of the kind too, and is then copied.
            Stops::Wide => {
                self.run_until(text, |word| string_specials(word) | non_ascii(word) | bytes_equal(word, 0x7f))
            }
            Stops::WideAndHtml => self.run_until(text, |word| {
                let html = bytes_equal(word, b'<') | bytes_equal(word, b'>') | bytes_equal(word, b'&');
                string_specials(word) | non_ascii(word) | html
            }),
            Stops::Table => self.run_by_table(text, 0),
        }
    }

    #[inline(always)]
    fn run_until(&self, text: &[u8], stops: impl Fn(u64) -> u64) -> usize {
        let mut at = 0;
        while let Some(chunk) = text.get(at..at + 8) {
            let found = stops(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
            if found != 0 {
                return at + (found.trailing_zeros() / 8) as usize;
            }
            at += 8;
        }
        self.run_by_table(text, at)
    }

    #[inline(always)]
    fn run_by_table(&self, text: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(byte) = text.get(at) {
            let stop = match self.ascii.get(usize::from(*byte)) {
                Some(escape) => *escape != 0,
                None => self.wide != Wide::Raw,
            };
            if stop {
                break;
            }
            at += 1;
        }
        at
    }

    #[inline(never)]
    fn write_escaped(&self, text: &str, mut run: usize, out: &mut impl Sink) {
        let mut rest = text;
        loop {
            let (plain, stopped) = rest.split_at(run);
            out.extend_from_slice(plain.as_bytes());
            let Some(character) = stopped.chars().next() else { return };
            self.write_char(character, out);
            rest = &stopped[character.len_utf8()..];
            run = self.plain_run(rest.as_bytes());
        }
    }

    fn write_char(&self, character: char, out: &mut impl Sink) {
        if let Some(escape) = self.ascii.get(character as usize) {
            match escape {
                0 => out.push(character as u8),
                b'u' => self.write_unit(character as u16, out),
                letter => out.extend_from_slice(&[b'\\', *letter]),
            }
            return;
        }
        let escaped = match self.wide {
            Wide::Raw => false,
            Wide::RawButSeparators => matches!(character, '\u{2028}' | '\u{2029}'),
            Wide::Escaped => true,
        };
        if escaped {
            for unit in character.encode_utf16(&mut [0; 2]) {
                self.write_unit(*unit, out);
            }
        } else {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn write_unit(&self, unit: u16, out: &mut impl Sink) {
        let nibble = |shift: u16| self.hex[usize::from(unit >> shift & 15)];
        out.extend_from_slice(&[b'\\', b'u', nibble(12), nibble(8), nibble(4), nibble(0)]);
    }
}

/// Narrows `candidates` to the dialects that write `text` as `written`, the bytes between the quotes.
pub(super) fn narrow(candidates: u16, text: &str, written: &[u8], scratch: &mut Vec<u8>) -> u16 {
    let telling = |byte: &u8| {
        matches!(byte, b'"' | b'\\' | b'<' | b'>' | b'&' | b'=' | b'\'' | b'/' | b'+' | b'`')
            || !(0x20..0x7f).contains(byte)
    };
    if !text.bytes().any(|byte| telling(&byte)) {
        // Every dialect writes such a text as it is.
        return if written == text.as_bytes() { candidates } else { 0 };
    }
    let mut narrowed = 0;
    for (index, dialect) in DIALECTS.iter().enumerate() {
        if candidates & 1 << index != 0 {
            scratch.clear();
            dialect.write_string(text, scratch);
            if scratch[1..scratch.len() - 1] == *written {
                narrowed |= 1 << index;
            }
        }
    }
    narrowed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(code: u8, text: &str) -> String {
        let mut out = Vec::new();
        DIALECTS[Dialect::by_code(code).expect("a dialect")].write_string(text, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn each_language_escapes_as_it_does() {
        let text = "a\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}<>&'=é\u{2028}😀z";
        // json.dumps(text)
        assert_eq!(written(b'a', text), r#""a\"\\/\b\f\n\r\t\u0001\u001f\u007f<>&'=\u00e9\u2028\ud83d\ude00z""#);
        // JSON.stringify(text)
        assert_eq!(written(b'u', text), "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\u{7f}<>&'=é\u{2028}😀z\"");
        // new ObjectMapper().writeValueAsString(text)
        assert_eq!(written(b'J', text), "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001F\u{7f}<>&'=é\u{2028}😀z\"");
        // json.Marshal(text), Go 1.26
        assert_eq!(
            written(b'g', text),
            "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\u{7f}\\u003c\\u003e\\u0026'=é\\u2028😀z\""
        );
        assert!(written(b'G', text).contains("/\\u0008\\u000c\\n"));
    }

    #[test]
    fn a_stop_anywhere_in_a_long_text_is_found() {
        for dialect in &DIALECTS {
            for at in 0..40 {
                for special in ["\"", "\\", "\n", "\u{1f}", "\u{7f}", "<", "/", "é", "\u{2029}", "😀"] {
                    let text = format!("{}{special}{}", "x".repeat(at), "y".repeat(40 - at));
                    let mut short = Vec::new();
                    dialect.write_string(special, &mut short);
                    let short = String::from_utf8(short).expect("UTF-8");
                    let expected =
                        format!("\"{}{}{}\"", "x".repeat(at), &short[1..short.len() - 1], "y".repeat(40 - at));
                    let mut out = Vec::new();
                    dialect.write_string(&text, &mut out);
                    assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
                }
            }
        }
    }
}
