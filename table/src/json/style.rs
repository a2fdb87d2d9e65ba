//! A JSON style: what a row's bytes say beyond its values, as one short text.
//!
//! `1;s=, |: ;e=a;k=id:i,item:s,amount?:dp` reads: version 1; `, ` between members and `: ` after keys; Python's `ensure_ascii` escapes;
//! then the keys in order with the form of each. `?` means the key is left out when null. `;t=` before `k` holds white space after the
//! object. Names escape `%,:?;|{}[]<>` and blanks as `%XX`. Forms:
//!
//! | form | type | meaning |
//! |---|---|---|
//! | `n` | any | only nulls |
//! | `b` `i` `s` `y` | BOOLEAN, INT/BIGINT, STRING, DATE | the one spelling |
//! | `fX` | FLOAT, DOUBLE | X: `p` Python, `j` JavaScript and Go, `v` Java, `r` Rust |
//! | `wX` | FLOAT | the same, with the digits of the double |
//! | `dX` `qX` | DECIMAL | a number, or in quotes; X: `f` all digits of the scale, or as for floats |
//! | `xX` | BINARY | base64: `s` standard, `u` URL; `n` and `m` the same without padding |
//! | `cX` | TIME | X: `0` to `6` digits, `p` none or six, `g` none, three or six, `t` as many as needed, `j` Java's LocalTime |
//! | `tSXZ` | TIMESTAMP | S: `T` or `_` for a space; X as for TIME; Z: the zone as written |
//! | `e` | TIMESTAMP | milliseconds since the epoch |
//! | `ul` `uu` | UUID | lower, upper case |
//! | `[F]` `<F>` `{...}` | ARRAY, MAP, STRUCT | of elements, of values, of members |
//!
//! Escapes (`e`): `u` JavaScript, Rust and Python without `ensure_ascii`; `a` Python; `J` Jackson, `A` Jackson in ASCII; `g` Go, `G` Go before
//! 1.22, `o` and `O` the same without HTML escapes; `n` Gson; `p` PHP, `P` PHP with unescaped Unicode; `d` .NET.

use super::escape::{ALL_DIALECTS, DIALECTS, Dialect};
use super::form::{FormReader, Member, unify_members, write_members};
use crate::schema::TableSchema;

/// The style of a row, or of many: each set in it narrows as rows are seen, and its text names the first of each set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonStyle {
    /// Between members and between elements; `,` and white space.
    pub(super) item_separator: Box<[u8]>,
    /// Between a key and its value; `:` and white space.
    pub(super) key_separator: Box<[u8]>,
    /// White space after the object.
    pub(super) trailing: Box<[u8]>,
    /// Dialects still possible.
    pub(super) dialects: u16,
    pub(super) members: Vec<Member>,
}

impl JsonStyle {
    /// The style's text; names are those of `schema`.
    pub fn to_text(&self, schema: &TableSchema) -> String {
        let mut text = String::from("1;s=");
        write_blank(&self.item_separator, &mut text);
        text.push('|');
        write_blank(&self.key_separator, &mut text);
        if !self.trailing.is_empty() {
            text.push_str(";t=");
            write_blank(&self.trailing, &mut text);
        }
        text.push_str(";e=");
        text.push(char::from(self.dialect().code));
        text.push_str(";k=");
        write_members(&self.members, schema.columns(), &mut text);
        text
    }

    /// Reads what [`JsonStyle::to_text`] wrote; the error says what is wrong with the text.
    pub(super) fn parse(text: &str, schema: &TableSchema) -> Result<Self, String> {
        let rest = text.strip_prefix("1;s=").ok_or("it is not a style of version 1")?;
        let (separators, rest) = rest.split_once(';').ok_or("it ends after its separators")?;
        let (item, key) = separators.split_once('|').ok_or("its separators are not divided by |")?;
        let (trailing, rest) = match rest.strip_prefix("t=") {
            Some(rest) => rest.split_once(';').ok_or("it ends after its trailing blanks")?,
            None => ("", rest),
        };
        let (dialect, members) =
            rest.strip_prefix("e=").and_then(|rest| rest.split_once(";k=")).ok_or("its escapes or keys are missing")?;
        let dialect = match dialect.as_bytes() {
            [code] => Dialect::by_code(*code),
            _ => None,
        };
        let mut reader = FormReader::new(members);
        let members = reader.members(schema.columns())?;
        if !reader.is_at_end() {
            return Err("something follows its keys".to_owned());
        }
        Ok(Self {
            item_separator: read_blank(item, Some(b','))?,
            key_separator: read_blank(key, Some(b':'))?,
            trailing: read_blank(trailing, None)?,
            dialects: 1 << dialect.ok_or("its escapes are of no known dialect")?,
            members,
        })
    }

    /// The style both rows could have been written in, if there is one.
    pub(super) fn unify(&self, other: &Self) -> Option<Self> {
        let dialects = self.dialects & other.dialects;
        let same = self.item_separator == other.item_separator
            && self.key_separator == other.key_separator
            && self.trailing == other.trailing;
        if dialects == 0 || !same {
            return None;
        }
        Some(Self { dialects, members: unify_members(&self.members, &other.members)?, ..self.clone() })
    }

    pub(super) fn dialect(&self) -> &'static Dialect {
        let first = (self.dialects & ALL_DIALECTS).trailing_zeros() as usize;
        &DIALECTS[first]
    }
}

fn write_blank(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        match byte {
            b'\n' | b'\r' | b'\t' => out.push_str(&format!("%{byte:02X}")),
            byte => out.push(char::from(*byte)),
        }
    }
}

/// White space around at most the one `mark`.
fn read_blank(text: &str, mark: Option<u8>) -> Result<Box<[u8]>, String> {
    let bytes = text.replace("%0A", "\n").replace("%0D", "\r").replace("%09", "\t").into_bytes();
    let marks = bytes.iter().filter(|byte| Some(**byte) == mark).count();
    let blanks = bytes.iter().filter(|byte| b" \n\r\t".contains(byte)).count();
    if marks == usize::from(mark.is_some()) && marks + blanks == bytes.len() {
        Ok(bytes.into())
    } else {
        Err(format!("`{text}` is not a separator"))
    }
}
