//! The style of one row, read off its bytes. The row was decoded before, so its JSON is good and fits the schema; `None` means that
//! no style will give it back: a member no column holds, a pretty-printed object, a number spelt in no known way.

use super::binary::{self, Base64Form};
use super::column::is_number;
use super::escape::{ALL_DIALECTS, narrow};
use super::float::{DecimalForm, FloatForm};
use super::form::{Form, Member, Nulls};
use super::scan::{Number, Scanner};
use super::style::JsonStyle;
use super::time::{FractionForm, parse_time, parse_timestamp};
use super::value::parse_uuid;
use crate::schema::{Column, ColumnType};

/// Reads a row's style.
pub(super) fn detect(columns: &[Column], value: &[u8]) -> Option<JsonStyle> {
    let mut detector = Detector {
        scanner: Scanner::new(value),
        dialects: ALL_DIALECTS,
        item_separator: None,
        key_separator: None,
        scratch: Vec::new(),
        text: Vec::new(),
    };
    let members = detector.object(columns)?;
    let end = detector.scanner.position();
    detector.scanner.end().ok()?;
    let trailing = detector.scanner.since(end);
    let key_separator = detector.key_separator.unwrap_or(b":");
    // A single member shows no separator; whoever puts a space after the colon puts one after the comma.
    let item_separator = detector.item_separator.unwrap_or(if key_separator.ends_with(b" ") { b", " } else { b"," });
    Some(JsonStyle {
        item_separator: item_separator.into(),
        key_separator: key_separator.into(),
        trailing: trailing.into(),
        dialects: detector.dialects,
        members,
    })
}

struct Detector<'a> {
    scanner: Scanner<'a>,
    dialects: u16,
    item_separator: Option<&'a [u8]>,
    key_separator: Option<&'a [u8]>,
    /// For writing a form to compare with.
    scratch: Vec<u8>,
    /// For unescaping.
    text: Vec<u8>,
}

impl<'a> Detector<'a> {
    fn object(&mut self, columns: &[Column]) -> Option<Vec<Member>> {
        let mut members: Vec<Member> = Vec::new();
        self.scanner.expect(b'{', "an object").ok()?;
        if self.scanner.eat(b'}') {
            return Some(members);
        }
        loop {
            let expected = members.last().map_or(0, |member| member.column + 1);
            let column = self.key(columns, expected)?;
            let form = self.form(&columns[column].data_type)?;
            let nulls = if form == Form::Unknown { Nulls::Written } else { Nulls::Unseen };
            members.push(Member { column, nulls, form });
            if !self.more(b'}')? {
                return Some(members);
            }
        }
    }

    /// A key and its separator. Most keys are the column after the last one.
    fn key(&mut self, columns: &[Column], expected: usize) -> Option<usize> {
        let mut text = std::mem::take(&mut self.text);
        let key = self.string(&mut text)?;
        let is_key = |column: &Column| column.name.as_bytes() == key;
        let next = columns.get(expected).is_some_and(is_key);
        let found = if next { Some(expected) } else { columns.iter().position(is_key) };
        self.text = text;
        self.colon()?;
        found
    }

    fn map_key(&mut self) -> Option<()> {
        let mut text = std::mem::take(&mut self.text);
        self.string(&mut text)?;
        self.text = text;
        self.colon()
    }

    fn colon(&mut self) -> Option<()> {
        let start = self.scanner.position();
        self.scanner.skip_ws();
        self.scanner.expect(b':', "a colon").ok()?;
        self.scanner.skip_ws();
        let separator = self.scanner.since(start);
        (*self.key_separator.get_or_insert(separator) == separator).then_some(())
    }

    /// Whether another item follows; its separator is passed over. White space before a closing bracket fits no style.
    fn more(&mut self, close: u8) -> Option<bool> {
        if self.scanner.eat(close) {
            return Some(false);
        }
        let start = self.scanner.position();
        self.scanner.skip_ws();
        self.scanner.expect(b',', "a comma").ok()?;
        self.scanner.skip_ws();
        let separator = self.scanner.since(start);
        (*self.item_separator.get_or_insert(separator) == separator).then_some(true)
    }

    /// A string whose escapes narrow the dialects.
    fn string<'b>(&mut self, text: &'b mut Vec<u8>) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        let start = self.scanner.position();
        let text = self.scanner.text(text).ok()?;
        let written = self.scanner.since(start);
        let decoded = std::str::from_utf8(text).ok()?;
        self.dialects = narrow(self.dialects, decoded, &written[1..written.len() - 1], &mut self.scratch);
        (self.dialects != 0).then_some(text)
    }

    /// A string without escapes, as dates and the like are.
    fn bare_string(&mut self) -> Option<&'a [u8]> {
        let start = self.scanner.position();
        self.scanner.skip_string().ok()?;
        let written = self.scanner.since(start);
        let text = &written[1..written.len() - 1];
        (!text.contains(&b'\\')).then_some(text)
    }

    fn form(&mut self, data_type: &ColumnType) -> Option<Form> {
        if self.scanner.literal(b"null") {
            return Some(Form::Unknown);
        }
        Some(match data_type {
            ColumnType::Boolean => {
                self.scanner.skip_value().ok()?;
                Form::Plain
            }
            ColumnType::Int | ColumnType::BigInt => {
                // `-0` is the one integer with two spellings.
                let number = self.scanner.number().ok()?;
                if number.text == b"-0" {
                    return None;
                }
                Form::Plain
            }
            ColumnType::Date => {
                self.bare_string()?;
                Form::Plain
            }
            ColumnType::String => {
                let mut text = std::mem::take(&mut self.text);
                self.string(&mut text)?;
                self.text = text;
                Form::Plain
            }
            ColumnType::Float => {
                let number = self.scanner.number().ok()?;
                let value = number.to_f32()?;
                let own = self.mask(FloatForm::ALL, number.text, |form, out| form.write_f32(value, out));
                let widened = self.mask(FloatForm::ALL, number.text, |form, out| form.write_f64(f64::from(value), out));
                Form::Float(u8::try_from(own | widened << 4).ok().filter(|mask| *mask != 0)?)
            }
            ColumnType::Double => {
                let number = self.scanner.number().ok()?;
                let value = number.to_f64()?;
                let mask = self.mask(FloatForm::ALL, number.text, |form, out| form.write_f64(value, out));
                Form::Float(u8::try_from(mask).ok().filter(|mask| *mask != 0)?)
            }
            ColumnType::Decimal { precision, scale } => self.decimal(*precision, *scale)?,
            ColumnType::Binary => {
                let text = self.bare_string()?;
                let mut bytes = Vec::new();
                if !binary::decode(text, &mut bytes) {
                    return None;
                }
                let mask = self.mask(Base64Form::ALL, text, |form, out| form.write(&bytes, out));
                Form::Binary(u8::try_from(mask).ok().filter(|mask| *mask != 0)?)
            }
            ColumnType::Time => {
                let clock = parse_time(self.bare_string()?)?;
                Form::Time(fractions(|form| form.prints(&clock))?)
            }
            ColumnType::Timestamp(_) | ColumnType::TimestampTz(_) if is_number(self.scanner.peek()) => {
                if self.scanner.number().ok()?.text == b"-0" {
                    return None;
                }
                Form::EpochMillis
            }
            ColumnType::Timestamp(_) | ColumnType::TimestampTz(_) => {
                let text = parse_timestamp(self.bare_string()?)?;
                let fractions = fractions(|form| form.prints(&text.clock))?;
                Form::Timestamp { separator: text.separator, fractions, zone: text.zone.into() }
            }
            ColumnType::Uuid => {
                let text = self.bare_string()?;
                parse_uuid(text)?;
                let lower = !text.iter().any(u8::is_ascii_uppercase);
                let upper = !text.iter().any(u8::is_ascii_lowercase);
                Form::Uuid(Some(u8::from(lower) | u8::from(upper) << 1).filter(|mask| *mask != 0)?)
            }
            ColumnType::Array(element) => {
                self.scanner.expect(b'[', "an array").ok()?;
                let mut form = Form::Unknown;
                if !self.scanner.eat(b']') {
                    loop {
                        form = form.unify(&self.form(&element.data_type)?)?;
                        if !self.more(b']')? {
                            break;
                        }
                    }
                }
                Form::Array(Box::new(form))
            }
            ColumnType::Map(value) => {
                self.scanner.expect(b'{', "an object").ok()?;
                let mut form = Form::Unknown;
                if !self.scanner.eat(b'}') {
                    loop {
                        self.map_key()?;
                        form = form.unify(&self.form(&value.data_type)?)?;
                        if !self.more(b'}')? {
                            break;
                        }
                    }
                }
                Form::Map(Box::new(form))
            }
            ColumnType::Struct(columns) => Form::Object(self.object(columns)?),
        })
    }

    fn decimal(&mut self, precision: u8, scale: u8) -> Option<Form> {
        let quoted = self.scanner.peek() == b'"';
        let text = if quoted { self.bare_string()? } else { self.scanner.number().ok()?.text };
        let number: Number<'_> = Scanner::new(text).number().ok()?;
        let value = number.to_decimal(precision, scale)?;
        let mask = self.mask(DecimalForm::ALL, text, |form, out| form.write(value, usize::from(scale), out));
        let mask = u16::try_from(mask).ok().filter(|mask| *mask != 0)?;
        Some(Form::Decimal(if quoted { mask << DecimalForm::ALL.len() } else { mask }))
    }

    /// The forms that write exactly `text`.
    fn mask<F: Copy, const N: usize>(&mut self, all: [F; N], text: &[u8], write: impl Fn(F, &mut Vec<u8>)) -> u32 {
        let mut mask = 0;
        for (index, form) in all.into_iter().enumerate() {
            self.scratch.clear();
            write(form, &mut self.scratch);
            mask |= u32::from(self.scratch == text) << index;
        }
        mask
    }
}

fn fractions(prints: impl Fn(FractionForm) -> bool) -> Option<u16> {
    let mask =
        FractionForm::ALL.iter().enumerate().fold(0, |mask, (index, form)| mask | u16::from(prints(*form)) << index);
    (mask != 0).then_some(mask)
}
