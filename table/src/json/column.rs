//! Growable columns that JSON values are read into. Every one can be cut back to a length, which is all a rollback needs: a row
//! that fails leaves each column at the row count, nested ones at their parent's last offset.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float32Array, Float64Array, Int32Array, Int64Array, ListArray, MapArray, NullBufferBuilder, StringArray,
    StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

use super::binary;
use super::decode::ObjectReader;
use super::error::{Checked, Fault};
use super::scan::Scanner;
use super::time::{MICROS_PER_MINUTE, parse_date, parse_time, parse_timestamp, parse_zone};
use super::value::parse_uuid;
use crate::schema::{ColumnType, Element, SecondFraction};

/// One column being filled.
pub(super) struct ColumnBuffer {
    data_type: ColumnType,
    nullable: bool,
    nulls: NullBufferBuilder,
    values: Values,
}

enum Values {
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>),
    BigInt(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal { values: Vec<i128>, precision: u8, scale: u8 },
    String(ByteValues),
    Binary(ByteValues),
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp { values: Vec<i64>, fraction: SecondFraction, zoned: bool },
    Uuid(Vec<u8>),
    Array { offsets: Vec<i32>, element: Box<ColumnBuffer> },
    Map { offsets: Vec<i32>, keys: ByteValues, values: Box<ColumnBuffer> },
    Struct(Box<ObjectReader>),
}

/// Texts or bytes, end to end.
struct ByteValues {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

impl ByteValues {
    fn new() -> Self {
        Self { offsets: vec![0], data: Vec::new() }
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Closes the value whose bytes were appended to `data`.
    #[inline(always)]
    fn close(&mut self) -> Checked<()> {
        match i32::try_from(self.data.len()) {
            Ok(end) => {
                self.offsets.push(end);
                Ok(())
            }
            Err(_) => Err(Fault::new("less than 2 GiB of text in one batch", format!("{} bytes", self.data.len()))),
        }
    }

    fn value(&self, index: usize) -> &[u8] {
        &self.data[usize_of(self.offsets[index])..usize_of(self.offsets[index + 1])]
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.data.truncate(usize_of(self.offsets[len]));
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        (finish_offsets(&mut self.offsets), Buffer::from_vec(take(&mut self.data)))
    }
}

/// An offset is never negative.
fn usize_of(offset: i32) -> usize {
    usize::try_from(offset).expect("offsets are not negative")
}

/// Takes the values and leaves room for as many again: the next batch is likely as long.
fn take<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(values.len());
    std::mem::replace(values, room)
}

fn finish_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let finished = take(offsets);
    offsets.push(0);
    OffsetBuffer::new(ScalarBuffer::from(finished))
}

impl ColumnBuffer {
    pub fn new(data_type: &ColumnType, nullable: bool) -> Self {
        let element = |element: &Element| Box::new(Self::new(&element.data_type, element.nullable));
        let values = match data_type {
            ColumnType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            ColumnType::Int => Values::Int(Vec::new()),
            ColumnType::BigInt => Values::BigInt(Vec::new()),
            ColumnType::Float => Values::Float(Vec::new()),
            ColumnType::Double => Values::Double(Vec::new()),
            ColumnType::Decimal { precision, scale } => {
                Values::Decimal { values: Vec::new(), precision: *precision, scale: *scale }
            }
            ColumnType::String => Values::String(ByteValues::new()),
            ColumnType::Binary => Values::Binary(ByteValues::new()),
            ColumnType::Date => Values::Date(Vec::new()),
            ColumnType::Time => Values::Time(Vec::new()),
            ColumnType::Timestamp(fraction) => {
                Values::Timestamp { values: Vec::new(), fraction: *fraction, zoned: false }
            }
            ColumnType::TimestampTz(fraction) => {
                Values::Timestamp { values: Vec::new(), fraction: *fraction, zoned: true }
            }
            ColumnType::Uuid => Values::Uuid(Vec::new()),
            ColumnType::Array(inner) => Values::Array { offsets: vec![0], element: element(inner) },
            ColumnType::Map(inner) => Values::Map { offsets: vec![0], keys: ByteValues::new(), values: element(inner) },
            ColumnType::Struct(columns) => Values::Struct(Box::new(ObjectReader::new(columns))),
        };
        Self { data_type: data_type.clone(), nullable, nulls: NullBufferBuilder::new(1024), values }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Reads the value at the scanner. On error the column may hold part of it, until it is cut back.
    #[inline]
    pub fn read(&mut self, scanner: &mut Scanner<'_>) -> Checked<()> {
        if scanner.peek() == b'n' && scanner.literal(b"null") {
            return self.append_null("null");
        }
        self.read_value(scanner)?;
        self.nulls.append_non_null();
        Ok(())
    }

    /// A null, or the fault of a column that has none.
    pub fn append_null(&mut self, found: &'static str) -> Checked<()> {
        if !self.nullable {
            return Err(Fault::new(format!("{} NOT NULL", self.data_type), found));
        }
        self.append_masked()
    }

    /// A null, whatever the column says: it lies below a null of its parent.
    fn append_masked(&mut self) -> Checked<()> {
        self.nulls.append_null();
        match &mut self.values {
            Values::Boolean(values) => values.append(false),
            Values::Int(values) | Values::Date(values) => values.push(0),
            Values::BigInt(values) | Values::Time(values) | Values::Timestamp { values, .. } => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Double(values) => values.push(0.0),
            Values::Decimal { values, .. } => values.push(0),
            Values::String(values) | Values::Binary(values) => values.close()?,
            Values::Uuid(values) => values.extend_from_slice(&[0; 16]),
            Values::Array { offsets, element } => push_offset(offsets, element.len())?,
            Values::Map { offsets, keys, .. } => push_offset(offsets, keys.len())?,
            Values::Struct(reader) => {
                for column in reader.columns_mut() {
                    column.append_masked()?;
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn read_value(&mut self, scanner: &mut Scanner<'_>) -> Checked<()> {
        let start = scanner.position();
        match &mut self.values {
            Values::BigInt(values) => {
                if let Some(value) = scanner.small_integer() {
                    values.push(value);
                    return Ok(());
                }
                if let Some(value) = wide_integer(scanner)? {
                    values.push(value);
                    return Ok(());
                }
            }
            Values::Int(values) => {
                if let Some(value) = scanner.small_integer().and_then(|value| i32::try_from(value).ok()) {
                    values.push(value);
                    return Ok(());
                }
            }
            Values::String(values) => {
                if scanner.peek() == b'"' {
                    scanner.string_into(&mut values.data)?;
                    return values.close();
                }
            }
            Values::Double(values) => {
                if is_number(scanner.peek())
                    && let Some(value) = scanner.number()?.to_f64()
                {
                    values.push(value);
                    return Ok(());
                }
            }
            Values::Float(values) => {
                if is_number(scanner.peek())
                    && let Some(value) = scanner.number()?.to_f32()
                {
                    values.push(value);
                    return Ok(());
                }
            }
            Values::Boolean(values) => {
                if scanner.literal(b"true") {
                    values.append(true);
                    return Ok(());
                }
                if scanner.literal(b"false") {
                    values.append(false);
                    return Ok(());
                }
            }
            Values::Decimal { values, precision, scale } => {
                if let Some(value) = read_decimal(scanner, *precision, *scale)? {
                    values.push(value);
                    return Ok(());
                }
            }
            Values::Timestamp { values, fraction, zoned } => {
                if let Some(value) = read_timestamp(scanner, *fraction, *zoned)? {
                    values.push(value);
                    return Ok(());
                }
            }
            Values::Date(values) => {
                if scanner.peek() == b'"'
                    && let Some(value) = parse_date(scanner.text(&mut Vec::new())?)
                {
                    values.push(value);
                    return Ok(());
                }
            }
            Values::Time(values) => {
                if scanner.peek() == b'"'
                    && let Some(clock) = parse_time(scanner.text(&mut Vec::new())?)
                {
                    values.push(clock.micros);
                    return Ok(());
                }
            }
            Values::Uuid(values) => {
                if scanner.peek() == b'"'
                    && let Some(value) = parse_uuid(scanner.text(&mut Vec::new())?)
                {
                    values.extend_from_slice(&value);
                    return Ok(());
                }
            }
            Values::Binary(values) => {
                if scanner.peek() == b'"' && binary::decode(scanner.text(&mut Vec::new())?, &mut values.data) {
                    return values.close();
                }
            }
            Values::Array { offsets, element } => {
                if scanner.peek() == b'[' {
                    read_array(scanner, element)?;
                    return push_offset(offsets, element.len());
                }
            }
            Values::Map { offsets, keys, values } => {
                if scanner.peek() == b'{' {
                    read_map(scanner, keys, values)?;
                    return push_offset(offsets, keys.len());
                }
            }
            Values::Struct(reader) => {
                if scanner.peek() == b'{' {
                    return reader.read(scanner);
                }
            }
        }
        Err(self.refuse(scanner, start))
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self, scanner: &mut Scanner<'_>, start: usize) -> Box<Fault> {
        let hint = match &self.data_type {
            ColumnType::Int => ": an integer from -2147483648 to 2147483647",
            ColumnType::BigInt => ": an integer of 64 bits, without point or exponent",
            ColumnType::Float | ColumnType::Double => ": a JSON number within its range",
            ColumnType::Decimal { .. } => ": a number (or a number in quotes) that needs no rounding",
            ColumnType::Date => ": \"YYYY-MM-DD\"",
            ColumnType::Time => ": \"HH:MM:SS\" with at most 6 fraction digits",
            ColumnType::Timestamp(SecondFraction::Micros) => {
                ": \"YYYY-MM-DD HH:MM:SS\" with at most 6 fraction digits and no zone, or epoch milliseconds"
            }
            ColumnType::Timestamp(SecondFraction::Millis) => {
                ": \"YYYY-MM-DD HH:MM:SS\" no finer than milliseconds and no zone, or epoch milliseconds"
            }
            ColumnType::TimestampTz(SecondFraction::Micros) => {
                ": \"YYYY-MM-DDTHH:MM:SS\" with at most 6 fraction digits, then Z or an offset such as +02:00; or epoch milliseconds"
            }
            ColumnType::TimestampTz(SecondFraction::Millis) => {
                ": \"YYYY-MM-DDTHH:MM:SS\" no finer than milliseconds, then Z or an offset such as +02:00; or epoch milliseconds"
            }
            ColumnType::Binary => ": base64 text",
            ColumnType::Uuid => ": \"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx\" in hexadecimal",
            ColumnType::Array(_) => ": a JSON array",
            ColumnType::Map(_) | ColumnType::Struct(_) => ": a JSON object",
            ColumnType::Boolean => ": true or false",
            ColumnType::String => ": a JSON string",
        };
        scanner.mismatch(start, format!("{}{hint}", self.data_type))
    }

    /// Cuts the column back to its first `len` values.
    pub fn truncate(&mut self, len: usize) {
        self.nulls.truncate(len);
        match &mut self.values {
            Values::Boolean(values) => values.truncate(len),
            Values::Int(values) | Values::Date(values) => values.truncate(len),
            Values::BigInt(values) | Values::Time(values) | Values::Timestamp { values, .. } => values.truncate(len),
            Values::Float(values) => values.truncate(len),
            Values::Double(values) => values.truncate(len),
            Values::Decimal { values, .. } => values.truncate(len),
            Values::String(values) | Values::Binary(values) => values.truncate(len),
            Values::Uuid(values) => values.truncate(len * 16),
            Values::Array { offsets, element } => {
                offsets.truncate(len + 1);
                element.truncate(usize_of(offsets[len]));
            }
            Values::Map { offsets, keys, values } => {
                offsets.truncate(len + 1);
                keys.truncate(usize_of(offsets[len]));
                values.truncate(usize_of(offsets[len]));
            }
            Values::Struct(reader) => reader.truncate(len),
        }
    }

    /// The values so far as an Arrow array of `data_type`; the column starts empty again.
    pub fn finish(&mut self, data_type: &DataType) -> ArrayRef {
        let len = self.len();
        let nulls: Option<NullBuffer> = self.nulls.finish().filter(|nulls| nulls.null_count() > 0);
        match (&mut self.values, data_type) {
            (Values::Boolean(values), _) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            (Values::Int(values), _) => Arc::new(Int32Array::new(take(values).into(), nulls)),
            (Values::BigInt(values), _) => Arc::new(Int64Array::new(take(values).into(), nulls)),
            (Values::Float(values), _) => Arc::new(Float32Array::new(take(values).into(), nulls)),
            (Values::Double(values), _) => Arc::new(Float64Array::new(take(values).into(), nulls)),
            (Values::Decimal { values, .. }, _) => {
                Arc::new(Decimal128Array::new(take(values).into(), nulls).with_data_type(data_type.clone()))
            }
            (Values::String(values), _) => {
                let (offsets, data) = values.finish();
                Arc::new(StringArray::new(offsets, data, nulls))
            }
            (Values::Binary(values), _) => {
                let (offsets, data) = values.finish();
                Arc::new(BinaryArray::new(offsets, data, nulls))
            }
            (Values::Date(values), _) => Arc::new(Date32Array::new(take(values).into(), nulls)),
            (Values::Time(values), _) => Arc::new(Time64MicrosecondArray::new(take(values).into(), nulls)),
            (Values::Timestamp { values, .. }, _) => {
                Arc::new(TimestampMicrosecondArray::new(take(values).into(), nulls).with_data_type(data_type.clone()))
            }
            (Values::Uuid(values), _) => Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(take(values)), nulls)),
            (Values::Array { offsets, element }, DataType::List(field)) => {
                let values = element.finish(field.data_type());
                Arc::new(ListArray::new(Arc::clone(field), finish_offsets(offsets), values, nulls))
            }
            (Values::Map { offsets, keys, values }, DataType::Map(field, sorted)) => {
                let DataType::Struct(fields) = field.data_type() else { unreachable!("map entries are a struct") };
                let (key_offsets, key_data) = keys.finish();
                let keys: ArrayRef = Arc::new(StringArray::new(key_offsets, key_data, None));
                let values = values.finish(fields[1].data_type());
                let entries = StructArray::new(fields.clone(), vec![keys, values], None);
                Arc::new(MapArray::new(Arc::clone(field), finish_offsets(offsets), entries, nulls, *sorted))
            }
            (Values::Struct(reader), DataType::Struct(fields)) => {
                let arrays = reader.finish(fields);
                let array = StructArray::try_new_with_length(fields.clone(), arrays, nulls, len);
                Arc::new(array.expect("children have the struct's length and fields"))
            }
            (Values::Array { .. } | Values::Map { .. } | Values::Struct(_), other) => {
                unreachable!("column of type {} finished as {other}", self.data_type)
            }
        }
    }
}

fn push_offset(offsets: &mut Vec<i32>, len: usize) -> Checked<()> {
    match i32::try_from(len) {
        Ok(end) => {
            offsets.push(end);
            Ok(())
        }
        Err(_) => Err(Fault::new("fewer than 2^31 elements in one batch", format!("{len} elements"))),
    }
}

#[inline(always)]
pub(super) const fn is_number(byte: u8) -> bool {
    byte == b'-' || byte.is_ascii_digit()
}

/// An integer of 19 digits that still fits; `None` for anything that is not an integer of 64 bits.
#[cold]
fn wide_integer(scanner: &mut Scanner<'_>) -> Checked<Option<i64>> {
    if !is_number(scanner.peek()) {
        return Ok(None);
    }
    let number = scanner.number()?;
    Ok(std::str::from_utf8(number.text).ok().and_then(|text| text.parse().ok()))
}

fn read_decimal(scanner: &mut Scanner<'_>, precision: u8, scale: u8) -> Checked<Option<i128>> {
    if is_number(scanner.peek()) {
        return Ok(scanner.number()?.to_decimal(precision, scale));
    }
    if scanner.peek() != b'"' {
        return Ok(None);
    }
    let mut scratch = Vec::new();
    let mut quoted = Scanner::new(scanner.text(&mut scratch)?);
    let number = quoted.number();
    Ok(match (number, quoted.peek()) {
        (Ok(number), 0) => number.to_decimal(precision, scale),
        _ => None,
    })
}

#[inline]
fn read_timestamp(scanner: &mut Scanner<'_>, fraction: SecondFraction, zoned: bool) -> Checked<Option<i64>> {
    if scanner.peek() != b'"' {
        return Ok(scanner.small_integer().and_then(|millis| millis.checked_mul(1000)));
    }
    let mut scratch = Vec::new();
    let Some(text) = parse_timestamp(scanner.text(&mut scratch)?) else { return Ok(None) };
    let wall = text.wall_micros();
    let micros = match (zoned, text.zone) {
        (false, []) => wall,
        (true, [_, ..]) => match parse_zone(text.zone) {
            Some(minutes) => wall - i64::from(minutes) * MICROS_PER_MINUTE,
            None => return Ok(None),
        },
        (false, _) | (true, []) => return Ok(None),
    };
    Ok((fraction == SecondFraction::Micros || micros % 1000 == 0).then_some(micros))
}

fn read_array(scanner: &mut Scanner<'_>, element: &mut ColumnBuffer) -> Checked<()> {
    scanner.expect(b'[', "`[`")?;
    scanner.skip_ws();
    if scanner.eat(b']') {
        return Ok(());
    }
    loop {
        scanner.skip_ws();
        element.read(scanner).map_err(|fault| fault.within("element"))?;
        scanner.skip_ws();
        if scanner.eat(b']') {
            return Ok(());
        }
        scanner.expect(b',', "`,` or `]`")?;
    }
}

fn read_map(scanner: &mut Scanner<'_>, keys: &mut ByteValues, values: &mut ColumnBuffer) -> Checked<()> {
    let first = keys.len();
    scanner.expect(b'{', "`{`")?;
    scanner.skip_ws();
    if scanner.eat(b'}') {
        return Ok(());
    }
    loop {
        scanner.skip_ws();
        scanner.string_into(&mut keys.data)?;
        keys.close()?;
        scanner.skip_ws();
        scanner.expect(b':', "`:` after a key")?;
        scanner.skip_ws();
        values.read(scanner).map_err(|fault| fault.within("value"))?;
        scanner.skip_ws();
        if scanner.eat(b'}') {
            return unique_keys(keys, first);
        }
        scanner.expect(b',', "`,` or `}`")?;
    }
}

/// Refuses a map that names a key twice: which of the values counts would be anybody's guess.
fn unique_keys(keys: &ByteValues, first: usize) -> Checked<()> {
    let mut seen: Vec<&[u8]> = (first..keys.len()).map(|index| keys.value(index)).collect();
    seen.sort_unstable();
    match seen.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Fault::new("each key once", format!("key \"{}\" twice", super::error::excerpt(pair[0])))),
        None => Ok(()),
    }
}
