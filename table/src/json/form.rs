//! The spelling of one value: which of a type's forms could have printed what was seen, and how two such sets meet.
//!
//! A value often fits several forms: `5.5` is what Python, JavaScript, Java and Rust all print. A form therefore carries the set that
//! is still possible; rows seen later narrow it, and a writer takes the first of what is left.

use super::binary::Base64Form;
use super::float::{DecimalForm, FloatForm};
use super::time::FractionForm;
use crate::schema::{Column, ColumnType};

/// The forms a value may have. Sets are bit masks over the `ALL` array of their kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Only nulls, or nothing, were seen.
    Unknown,
    /// The type has one spelling: booleans, integers, strings, dates.
    Plain,
    /// [`FloatForm`]s; the upper four bits stand for floats written by the digits of the double they widen to.
    Float(u8),
    /// [`DecimalForm`]s; the upper five bits stand for those in quotes.
    Decimal(u16),
    /// [`Base64Form`]s.
    Binary(u8),
    /// [`FractionForm`]s.
    Time(u16),
    /// [`FractionForm`]s, between a separator and a zone.
    Timestamp {
        separator: u8,
        fractions: u16,
        zone: Box<[u8]>,
    },
    /// Milliseconds since the epoch, as a number.
    EpochMillis,
    /// Lower case, upper case.
    Uuid(u8),
    Array(Box<Form>),
    Map(Box<Form>),
    Object(Vec<Member>),
}

/// A key of an object, in the place where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// The column's index among its siblings.
    pub column: usize,
    pub nulls: Nulls,
    pub form: Form,
}

/// What a producer does with a null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nulls {
    /// None was seen.
    Unseen,
    /// Writes `null`.
    Written,
    /// Leaves the key out.
    Omitted,
}

impl Nulls {
    fn unify(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Unseen, nulls) | (nulls, Self::Unseen) => Some(nulls),
            (left, right) => (left == right).then_some(left),
        }
    }
}

impl Form {
    /// The forms that both allow, if there are any.
    pub fn unify(&self, other: &Self) -> Option<Self> {
        Some(match (self, other) {
            (Self::Unknown, form) | (form, Self::Unknown) => form.clone(),
            (Self::Plain, Self::Plain) => Self::Plain,
            (Self::EpochMillis, Self::EpochMillis) => Self::EpochMillis,
            (Self::Float(left), Self::Float(right)) if left & right != 0 => Self::Float(left & right),
            (Self::Decimal(left), Self::Decimal(right)) if left & right != 0 => Self::Decimal(left & right),
            (Self::Binary(left), Self::Binary(right)) if left & right != 0 => Self::Binary(left & right),
            (Self::Time(left), Self::Time(right)) if left & right != 0 => Self::Time(left & right),
            (Self::Uuid(left), Self::Uuid(right)) if left & right != 0 => Self::Uuid(left & right),
            (
                Self::Timestamp { separator, fractions, zone },
                Self::Timestamp { separator: other_separator, fractions: other_fractions, zone: other_zone },
            ) if separator == other_separator && zone == other_zone && fractions & other_fractions != 0 => {
                Self::Timestamp { separator: *separator, fractions: fractions & other_fractions, zone: zone.clone() }
            }
            (Self::Array(left), Self::Array(right)) => Self::Array(Box::new(left.unify(right)?)),
            (Self::Map(left), Self::Map(right)) => Self::Map(Box::new(left.unify(right)?)),
            (Self::Object(left), Self::Object(right)) => Self::Object(unify_members(left, right)?),
            _ => return None,
        })
    }

    /// Appends the form's text. `data_type` is the type it spells.
    pub fn write(&self, data_type: &ColumnType, out: &mut String) {
        match (self, data_type) {
            (Self::Unknown, _) => out.push('n'),
            (Self::Plain, ColumnType::Boolean) => out.push('b'),
            (Self::Plain, ColumnType::Int | ColumnType::BigInt) => out.push('i'),
            (Self::Plain, ColumnType::Date) => out.push('y'),
            (Self::Plain, _) => out.push('s'),
            (Self::Float(mask), _) => {
                let (form, widened) = pick_float(*mask);
                out.push(if widened { 'w' } else { 'f' });
                out.push(char::from(form.code()));
            }
            (Self::Decimal(mask), _) => {
                let (form, quoted) = pick_decimal(*mask);
                out.push(if quoted { 'q' } else { 'd' });
                out.push(char::from(form.code()));
            }
            (Self::Binary(mask), _) => {
                out.push('x');
                out.push(char::from(pick_binary(*mask).code()));
            }
            (Self::Time(mask), _) => {
                out.push('c');
                out.push(char::from(pick_fraction(*mask).code()));
            }
            (Self::Timestamp { separator, fractions, zone }, _) => {
                out.push('t');
                out.push(if *separator == b' ' { '_' } else { 'T' });
                out.push(char::from(pick_fraction(*fractions).code()));
                out.extend(zone.iter().map(|byte| char::from(*byte)));
            }
            (Self::EpochMillis, _) => out.push('e'),
            (Self::Uuid(mask), _) => out.push_str(if pick_upper(*mask) { "uu" } else { "ul" }),
            (Self::Array(form), ColumnType::Array(element)) => {
                out.push('[');
                form.write(&element.data_type, out);
                out.push(']');
            }
            (Self::Map(form), ColumnType::Map(element)) => {
                out.push('<');
                form.write(&element.data_type, out);
                out.push('>');
            }
            (Self::Object(members), ColumnType::Struct(columns)) => {
                out.push('{');
                write_members(members, columns, out);
                out.push('}');
            }
            (Self::Array(_) | Self::Map(_) | Self::Object(_), other) => {
                unreachable!("a nested form was made for another type than {other}")
            }
        }
    }
}

/// The first form left in a set, and whether it is of the widened kind.
pub(super) fn pick_float(mask: u8) -> (FloatForm, bool) {
    let index = mask.trailing_zeros() as usize;
    (FloatForm::ALL[index % FloatForm::ALL.len()], index >= FloatForm::ALL.len())
}

/// The first form left in a set, and whether it is in quotes.
pub(super) fn pick_decimal(mask: u16) -> (DecimalForm, bool) {
    let index = mask.trailing_zeros() as usize;
    (DecimalForm::ALL[index % DecimalForm::ALL.len()], index >= DecimalForm::ALL.len())
}

pub(super) fn pick_binary(mask: u8) -> Base64Form {
    Base64Form::ALL[mask.trailing_zeros() as usize]
}

pub(super) fn pick_fraction(mask: u16) -> FractionForm {
    FractionForm::ALL[mask.trailing_zeros() as usize]
}

pub(super) const fn pick_upper(mask: u8) -> bool {
    mask & 1 == 0
}

/// One order of keys that both orders are part of. Keys that one side lacks become omitted-when-null; `None` when the orders cross,
/// or when a side that lacks a key is known to write nulls.
pub(super) fn unify_members(left: &[Member], right: &[Member]) -> Option<Vec<Member>> {
    let mut unified = Vec::with_capacity(left.len().max(right.len()));
    let in_right = |column: usize| right.iter().any(|member| member.column == column);
    let mut cursor = 0;
    for member in right {
        match left.iter().position(|other| other.column == member.column) {
            Some(position) if position < cursor => return None,
            Some(position) => {
                for lacking in &left[cursor..position] {
                    // A key of `right` passed over here comes too early in `left`: the orders cross.
                    if in_right(lacking.column) {
                        return None;
                    }
                    unified.push(omitted(lacking)?);
                }
                let other = &left[position];
                unified.push(Member {
                    column: member.column,
                    nulls: other.nulls.unify(member.nulls)?,
                    form: other.form.unify(&member.form)?,
                });
                cursor = position + 1;
            }
            None => {
                // Neither order says which comes first: the schema's order is the best guess.
                while let Some(lacking) = left.get(cursor).filter(|m| m.column < member.column && !in_right(m.column)) {
                    unified.push(omitted(lacking)?);
                    cursor += 1;
                }
                unified.push(omitted(member)?);
            }
        }
    }
    for lacking in &left[cursor..] {
        unified.push(omitted(lacking)?);
    }
    Some(unified)
}

fn omitted(member: &Member) -> Option<Member> {
    let nulls = member.nulls.unify(Nulls::Omitted)?;
    Some(Member { nulls, ..member.clone() })
}

/// Appends `name:form,name?:form`.
pub(super) fn write_members(members: &[Member], columns: &[Column], out: &mut String) {
    for (index, member) in members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let column = &columns[member.column];
        for character in column.name.chars() {
            if character <= ' ' || "%,:?;|{}[]<>".contains(character) {
                out.push_str(&format!("%{:02X}", u32::from(character)));
            } else {
                out.push(character);
            }
        }
        out.push_str(if member.nulls == Nulls::Omitted { "?:" } else { ":" });
        member.form.write(&column.data_type, out);
    }
}

/// Reads what [`write_members`] and [`Form::write`] wrote.
pub(super) struct FormReader<'a> {
    text: &'a [u8],
}

impl<'a> FormReader<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes() }
    }

    pub fn is_at_end(&self) -> bool {
        self.text.is_empty()
    }

    /// Members up to the end or a closing brace. The error says what is wrong with the text.
    pub fn members(&mut self, columns: &[Column]) -> Result<Vec<Member>, String> {
        let mut members = Vec::new();
        if matches!(self.text.first(), None | Some(b'}')) {
            return Ok(members);
        }
        loop {
            let (name, nulls) = self.name()?;
            let column = columns.iter().position(|column| column.name == name);
            let column = column.ok_or_else(|| format!("it names column {name}, which the schema does not have"))?;
            let form = self.form(&columns[column].data_type)?;
            members.push(Member { column, nulls, form });
            if !self.eat(b',') {
                return Ok(members);
            }
        }
    }

    fn name(&mut self) -> Result<(String, Nulls), String> {
        let mut name = Vec::new();
        loop {
            match self.next()? {
                b'%' => {
                    let digits = [self.next()?, self.next()?];
                    let code = std::str::from_utf8(&digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
                    name.push(code.ok_or("a % in a name is not followed by two hexadecimal digits")?);
                }
                end @ (b':' | b'?') => {
                    if end == b'?' && !self.eat(b':') {
                        return Err("a ? after a name is not followed by a colon".to_owned());
                    }
                    let name = String::from_utf8(name).map_err(|_| "a name is not UTF-8")?;
                    return Ok((name, if end == b'?' { Nulls::Omitted } else { Nulls::Written }));
                }
                byte => name.push(byte),
            }
        }
    }

    fn form(&mut self, data_type: &ColumnType) -> Result<Form, String> {
        let kind = self.next()?;
        let form = match (kind, data_type) {
            (b'n', _) => Form::Unknown,
            (b'b', ColumnType::Boolean)
            | (b'i', ColumnType::Int | ColumnType::BigInt)
            | (b'y', ColumnType::Date)
            | (b's', ColumnType::String) => Form::Plain,
            (b'f', ColumnType::Float | ColumnType::Double) => {
                Form::Float(1 << self.index(&FloatForm::ALL, |form| form.code())?)
            }
            (b'w', ColumnType::Float) => Form::Float(16 << self.index(&FloatForm::ALL, |form| form.code())?),
            (b'd', ColumnType::Decimal { .. }) => {
                Form::Decimal(1 << self.index(&DecimalForm::ALL, |form| form.code())?)
            }
            (b'q', ColumnType::Decimal { .. }) => {
                Form::Decimal(32 << self.index(&DecimalForm::ALL, |form| form.code())?)
            }
            (b'x', ColumnType::Binary) => Form::Binary(1 << self.index(&Base64Form::ALL, |form| form.code())?),
            (b'c', ColumnType::Time) => Form::Time(1 << self.index(&FractionForm::ALL, |form| form.code())?),
            (b'e', ColumnType::Timestamp(_) | ColumnType::TimestampTz(_)) => Form::EpochMillis,
            (b't', ColumnType::Timestamp(_) | ColumnType::TimestampTz(_)) => {
                let separator = if self.next()? == b'_' { b' ' } else { b'T' };
                let fractions = 1 << self.index(&FractionForm::ALL, |form| form.code())?;
                let length = self.text.iter().position(|byte| b",}]>".contains(byte)).unwrap_or(self.text.len());
                let (zone, rest) = self.text.split_at(length);
                self.text = rest;
                Form::Timestamp { separator, fractions, zone: zone.into() }
            }
            (b'u', ColumnType::Uuid) => Form::Uuid(if self.next()? == b'u' { 2 } else { 1 }),
            (b'[', ColumnType::Array(element)) => {
                let form = self.form(&element.data_type)?;
                self.close(b']')?;
                Form::Array(Box::new(form))
            }
            (b'<', ColumnType::Map(element)) => {
                let form = self.form(&element.data_type)?;
                self.close(b'>')?;
                Form::Map(Box::new(form))
            }
            (b'{', ColumnType::Struct(columns)) => {
                let members = self.members(columns)?;
                self.close(b'}')?;
                Form::Object(members)
            }
            (kind, data_type) => return Err(format!("form {} is not one of {data_type}", char::from(kind))),
        };
        Ok(form)
    }

    fn index<T: Copy>(&mut self, all: &[T], code: impl Fn(T) -> u8) -> Result<u32, String> {
        let found = self.next()?;
        let index = all.iter().position(|form| code(*form) == found).and_then(|index| u32::try_from(index).ok());
        index.ok_or_else(|| format!("{} names no form", char::from(found)))
    }

    fn next(&mut self) -> Result<u8, String> {
        let (first, rest) = self.text.split_first().ok_or("it ends too early")?;
        self.text = rest;
        Ok(*first)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.text.first() == Some(&byte);
        if found {
            self.text = &self.text[1..];
        }
        found
    }

    fn close(&mut self, byte: u8) -> Result<(), String> {
        if self.eat(byte) { Ok(()) } else { Err(format!("a {} is missing", char::from(byte))) }
    }
}
