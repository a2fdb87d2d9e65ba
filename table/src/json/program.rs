//! A style compiled against a schema: literal bytes and typed writers, in the order of the row's keys.

use super::binary::Base64Form;
use super::bound::{BoundColumn, BoundValues};
use super::escape::Dialect;
use super::float::{DecimalForm, FloatForm};
use super::form::{Form, Member, Nulls, pick_binary, pick_decimal, pick_float, pick_fraction, pick_upper};
use super::sink::{Literal, RowBuffer, Sink};
use super::style::JsonStyle;
use super::time::{FractionForm, MICROS_PER_MINUTE, parse_zone, write_date, write_time, write_timestamp};
use super::value::write_uuid;
use crate::schema::{Column, ColumnType};

/// Writes rows of one style.
pub(super) struct Program {
    object: ObjectWriter,
    lexis: Lexis,
    trailing: Box<[u8]>,
}

/// What all values of a row share.
struct Lexis {
    dialect: &'static Dialect,
    item_separator: Box<[u8]>,
    key_separator: Box<[u8]>,
}

struct ObjectWriter {
    members: Vec<MemberWriter>,
}

struct MemberWriter {
    /// Key and key separator.
    key: Literal,
    /// The same after an item separator, for all but the first member written.
    next_key: Literal,
    /// The column's place among the bound ones.
    slot: usize,
    omit_null: bool,
    value: ValueWriter,
}

enum ValueWriter {
    /// No value of this member was seen; one that turns up is not for this program.
    Null,
    Boolean,
    Int32,
    Int64,
    Float32(FloatForm),
    Float32Widened(FloatForm),
    Float64(FloatForm),
    Decimal {
        form: DecimalForm,
        quoted: bool,
        scale: usize,
    },
    String,
    Binary(Base64Form),
    Date,
    Time(FractionForm),
    Timestamp {
        separator: u8,
        form: FractionForm,
        zone: Box<[u8]>,
        offset_micros: i64,
    },
    EpochMillis,
    Uuid {
        upper: bool,
    },
    Array(Box<ValueWriter>),
    Map(Box<ValueWriter>),
    Object(ObjectWriter),
}

impl Program {
    /// Compiles a style. `slots` says for each column of the schema where it lies among the bound columns; members of columns
    /// without a slot are left out. The error says which part of the style does not fit.
    pub fn compile(style: &JsonStyle, columns: &[Column], slots: &[Option<usize>]) -> Result<Self, String> {
        let lexis = Lexis {
            dialect: style.dialect(),
            item_separator: style.item_separator.clone(),
            key_separator: style.key_separator.clone(),
        };
        let object = ObjectWriter::compile(&style.members, columns, &lexis, |column| slots[column])?;
        Ok(Self { object, lexis, trailing: style.trailing.clone() })
    }

    /// Appends one row. False when the row's values do not fit the style; `out` then ends in part of a row.
    #[inline]
    pub fn write(&self, columns: &[BoundColumn], row: usize, out: &mut RowBuffer) -> bool {
        let written = self.object.write(columns, row, &self.lexis, out);
        out.extend_from_slice(&self.trailing);
        written
    }
}

impl ObjectWriter {
    fn compile(
        members: &[Member],
        columns: &[Column],
        lexis: &Lexis,
        slot: impl Fn(usize) -> Option<usize>,
    ) -> Result<Self, String> {
        let mut writers = Vec::with_capacity(members.len());
        for member in members {
            let Some(slot) = slot(member.column) else { continue };
            let column = &columns[member.column];
            let mut key = Vec::new();
            lexis.dialect.write_string(&column.name, &mut key);
            key.extend_from_slice(&lexis.key_separator);
            writers.push(MemberWriter {
                next_key: Literal::new(&[&lexis.item_separator, &key[..]].concat()),
                key: Literal::new(&key),
                slot,
                omit_null: member.nulls == Nulls::Omitted,
                value: ValueWriter::compile(&member.form, &column.data_type, lexis)?,
            });
        }
        Ok(Self { members: writers })
    }

    #[inline]
    fn write(&self, columns: &[BoundColumn], row: usize, lexis: &Lexis, out: &mut RowBuffer) -> bool {
        out.push(b'{');
        let mut first = true;
        for member in &self.members {
            let column = &columns[member.slot];
            let null = column.is_null(row);
            if null && member.omit_null {
                continue;
            }
            out.literal(if first { &member.key } else { &member.next_key });
            first = false;
            if null {
                out.extend_from_slice(b"null");
            } else if !member.value.write(&column.values, row, lexis, out) {
                return false;
            }
        }
        out.push(b'}');
        true
    }
}

impl ValueWriter {
    fn compile(form: &Form, data_type: &ColumnType, lexis: &Lexis) -> Result<Self, String> {
        Ok(match (form, data_type) {
            (Form::Unknown, _) => Self::Null,
            (Form::Plain, ColumnType::Boolean) => Self::Boolean,
            (Form::Plain, ColumnType::Int) => Self::Int32,
            (Form::Plain, ColumnType::BigInt) => Self::Int64,
            (Form::Plain, ColumnType::Date) => Self::Date,
            (Form::Plain, ColumnType::String) => Self::String,
            (Form::Float(mask), ColumnType::Float) => match pick_float(*mask) {
                (form, false) => Self::Float32(form),
                (form, true) => Self::Float32Widened(form),
            },
            (Form::Float(mask), ColumnType::Double) => Self::Float64(pick_float(*mask).0),
            (Form::Decimal(mask), ColumnType::Decimal { scale, .. }) => {
                let (form, quoted) = pick_decimal(*mask);
                Self::Decimal { form, quoted, scale: usize::from(*scale) }
            }
            (Form::Binary(mask), ColumnType::Binary) => Self::Binary(pick_binary(*mask)),
            (Form::Time(mask), ColumnType::Time) => Self::Time(pick_fraction(*mask)),
            (Form::Timestamp { separator, fractions, zone }, ColumnType::Timestamp(_) | ColumnType::TimestampTz(_)) => {
                let minutes = match (zone.is_empty(), data_type) {
                    (true, ColumnType::Timestamp(_)) => Some(0),
                    (false, ColumnType::TimestampTz(_)) => parse_zone(zone),
                    _ => None,
                };
                let minutes = minutes
                    .ok_or_else(|| format!("zone {} is not one of {data_type}", String::from_utf8_lossy(zone)))?;
                Self::Timestamp {
                    separator: *separator,
                    form: pick_fraction(*fractions),
                    zone: zone.clone(),
                    offset_micros: i64::from(minutes) * MICROS_PER_MINUTE,
                }
            }
            (Form::EpochMillis, ColumnType::Timestamp(_) | ColumnType::TimestampTz(_)) => Self::EpochMillis,
            (Form::Uuid(mask), ColumnType::Uuid) => Self::Uuid { upper: pick_upper(*mask) },
            (Form::Array(form), ColumnType::Array(element)) => {
                Self::Array(Box::new(Self::compile(form, &element.data_type, lexis)?))
            }
            (Form::Map(form), ColumnType::Map(value)) => {
                Self::Map(Box::new(Self::compile(form, &value.data_type, lexis)?))
            }
            (Form::Object(members), ColumnType::Struct(columns)) => {
                Self::Object(ObjectWriter::compile(members, columns, lexis, Some)?)
            }
            (form, data_type) => return Err(format!("form {form:?} is not one of {data_type}")),
        })
    }

    /// Appends a value that is not null. False when the form cannot hold it.
    #[inline]
    fn write(&self, values: &BoundValues, row: usize, lexis: &Lexis, out: &mut RowBuffer) -> bool {
        match (self, values) {
            (Self::Int64, BoundValues::Int64(values)) => write_integer(values[row], out),
            (Self::String, BoundValues::String(values)) => lexis.dialect.write_string(values.value(row), out),
            (Self::Float64(form), BoundValues::Float64(values)) => form.write_f64(values[row], out),
            (Self::Int32, BoundValues::Int32(values)) => write_integer(values[row], out),
            (Self::Decimal { form, quoted, scale }, BoundValues::Decimal(values)) => {
                if *quoted {
                    out.push(b'"');
                }
                form.write(values[row], *scale, out);
                if *quoted {
                    out.push(b'"');
                }
            }
            (Self::Timestamp { separator, form, zone, offset_micros }, BoundValues::Int64(values)) => {
                out.push(b'"');
                let wall = values[row].saturating_add(*offset_micros);
                if !write_timestamp(wall, *separator, *form, out) {
                    return false;
                }
                out.extend_from_slice(zone);
                out.push(b'"');
            }
            (Self::EpochMillis, BoundValues::Int64(values)) => {
                let micros = values[row];
                write_integer(micros.div_euclid(1000), out);
                return micros.rem_euclid(1000) == 0;
            }
            (Self::Boolean, BoundValues::Boolean(values)) => {
                out.extend_from_slice(if values.value(row) { b"true" } else { b"false" });
            }
            (Self::Float32(form), BoundValues::Float32(values)) => form.write_f32(values[row], out),
            (Self::Float32Widened(form), BoundValues::Float32(values)) => form.write_f64(f64::from(values[row]), out),
            (Self::Date, BoundValues::Int32(values)) => return quoted(out, |out| write_date(values[row], out)),
            (Self::Time(form), BoundValues::Int64(values)) => {
                return quoted(out, |out| write_time(values[row], *form, out));
            }
            (Self::Binary(form), BoundValues::Binary(values)) => {
                out.push(b'"');
                form.write(values.value(row), out);
                out.push(b'"');
            }
            (Self::Uuid { upper }, BoundValues::Uuid(values)) => {
                out.push(b'"');
                write_uuid(values.value(row), *upper, out);
                out.push(b'"');
            }
            (Self::Array(writer), BoundValues::Array { offsets, element }) => {
                let (start, end) = range(offsets, row);
                out.push(b'[');
                for index in start..end {
                    if index > start {
                        out.extend_from_slice(&lexis.item_separator);
                    }
                    if !writer.write_nullable(element, index, lexis, out) {
                        return false;
                    }
                }
                out.push(b']');
            }
            (Self::Map(writer), BoundValues::Map { offsets, keys, values }) => {
                let (start, end) = range(offsets, row);
                out.push(b'{');
                for index in start..end {
                    if index > start {
                        out.extend_from_slice(&lexis.item_separator);
                    }
                    lexis.dialect.write_string(keys.value(index), out);
                    out.extend_from_slice(&lexis.key_separator);
                    if !writer.write_nullable(values, index, lexis, out) {
                        return false;
                    }
                }
                out.push(b'}');
            }
            (Self::Object(writer), BoundValues::Struct(columns)) => return writer.write(columns, row, lexis, out),
            // `Null` with a value, or a column of another type than the schema's, which binding rules out.
            _ => return false,
        }
        true
    }

    fn write_nullable(&self, column: &BoundColumn, row: usize, lexis: &Lexis, out: &mut RowBuffer) -> bool {
        if column.is_null(row) {
            out.extend_from_slice(b"null");
            return true;
        }
        self.write(&column.values, row, lexis, out)
    }
}

#[inline(always)]
fn write_integer<I: itoa::Integer>(value: I, out: &mut RowBuffer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn quoted(out: &mut RowBuffer, write: impl Fn(&mut RowBuffer) -> bool) -> bool {
    out.push(b'"');
    let written = write(out);
    out.push(b'"');
    written
}

fn range(offsets: &[i32], row: usize) -> (usize, usize) {
    let at = |index: usize| usize::try_from(offsets[index]).expect("offsets are not negative");
    (at(row), at(row + 1))
}
