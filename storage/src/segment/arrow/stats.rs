//! Statistics of one column in one block.

use std::fmt::Write as _;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use serde::{Deserialize, Serialize};

/// Longest text or binary bound; longer ones are cut to a bound that still holds. Enough to tell names, keys and ids apart,
/// and small beside a block of half a megabyte.
const MAX_BOUND_BYTES: usize = 48;

/// Bounds of a column in a block, and its number of nulls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, Option<StatValue>, Option<StatValue>)", into = "(u64, Option<StatValue>, Option<StatValue>)")]
pub struct ColumnStats {
    /// Number of null values.
    pub null_count: u64,
    /// No value is smaller. `None`: no value at all, a NaN among them, or a type without order.
    pub min: Option<StatValue>,
    /// No value is larger. `None` as for `min`, or when a long text has no short bound above it.
    pub max: Option<StatValue>,
}

impl From<(u64, Option<StatValue>, Option<StatValue>)> for ColumnStats {
    fn from((null_count, min, max): (u64, Option<StatValue>, Option<StatValue>)) -> Self {
        Self { null_count, min, max }
    }
}

impl From<ColumnStats> for (u64, Option<StatValue>, Option<StatValue>) {
    fn from(stats: ColumnStats) -> Self {
        (stats.null_count, stats.min, stats.max)
    }
}

/// A bound. Written as text behind a letter for its kind, because JSON numbers hold neither 64-bit integers nor every float.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StatValue {
    /// `ztrue`, `zfalse`.
    Bool(bool),
    /// `i42`: integers, dates (days), times and timestamps (in the column's unit).
    Int(i64),
    /// `f1.5`.
    Float(f64),
    /// `d4200`: the digits without the point.
    Decimal(i128),
    /// `tabc`: at most 48 bytes.
    Text(String),
    /// `b00ff`: at most 48 bytes, in hex.
    Bytes(Vec<u8>),
}

impl From<StatValue> for String {
    fn from(value: StatValue) -> Self {
        match value {
            StatValue::Bool(value) => format!("z{value}"),
            StatValue::Int(value) => format!("i{value}"),
            // `{:?}` prints the shortest text that parses back to the same float.
            StatValue::Float(value) => format!("f{value:?}"),
            StatValue::Decimal(value) => format!("d{value}"),
            StatValue::Text(value) => format!("t{value}"),
            StatValue::Bytes(value) => value.iter().fold("b".to_owned(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }),
        }
    }
}

impl TryFrom<String> for StatValue {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut letters = text.chars();
        let kind = letters.next();
        let rest = letters.as_str();
        let parsed = match kind {
            Some('z') => rest.parse().ok().map(Self::Bool),
            Some('i') => rest.parse().ok().map(Self::Int),
            Some('f') => rest.parse().ok().map(Self::Float),
            Some('d') => rest.parse().ok().map(Self::Decimal),
            Some('t') => Some(Self::Text(rest.to_owned())),
            Some('b') => parse_hex(rest).map(Self::Bytes),
            _ => None,
        };
        parsed.ok_or_else(|| format!("{text:?} is not a bound"))
    }
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The statistics of one column. The log's own binary columns get no bounds: nobody filters by headers or by the raw value.
pub(super) fn column_stats(field: &Field, column: &ArrayRef) -> ColumnStats {
    let null_count = u64::try_from(column.null_count()).expect("rows are fewer");
    let bounds = if super::is_system(field) && field.data_type() == &DataType::Binary && field.name() != "_key" {
        None
    } else {
        bounds(column)
    };
    let (min, max) = bounds.unwrap_or((None, None));
    ColumnStats { null_count, min, max }
}

type Bounds = Option<(Option<StatValue>, Option<StatValue>)>;

fn bounds(column: &ArrayRef) -> Bounds {
    match column.data_type() {
        DataType::Boolean => {
            let column = column.as_boolean();
            Some((compute::min_boolean(column).map(StatValue::Bool), compute::max_boolean(column).map(StatValue::Bool)))
        }
        DataType::Int8 => integers::<Int8Type>(column),
        DataType::Int16 => integers::<Int16Type>(column),
        DataType::Int32 => integers::<Int32Type>(column),
        DataType::Int64 => integers::<Int64Type>(column),
        DataType::Date32 => integers::<Date32Type>(column),
        DataType::Time32(TimeUnit::Second) => integers::<Time32SecondType>(column),
        DataType::Time32(_) => integers::<Time32MillisecondType>(column),
        DataType::Time64(TimeUnit::Microsecond) => integers::<Time64MicrosecondType>(column),
        DataType::Time64(_) => integers::<Time64NanosecondType>(column),
        DataType::Timestamp(TimeUnit::Second, _) => integers::<TimestampSecondType>(column),
        DataType::Timestamp(TimeUnit::Millisecond, _) => integers::<TimestampMillisecondType>(column),
        DataType::Timestamp(TimeUnit::Microsecond, _) => integers::<TimestampMicrosecondType>(column),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => integers::<TimestampNanosecondType>(column),
        DataType::Float32 => floats::<Float32Type>(column),
        DataType::Float64 => floats::<Float64Type>(column),
        DataType::Decimal128(_, _) => {
            let column = column.as_primitive::<Decimal128Type>();
            Some((compute::min(column).map(StatValue::Decimal), compute::max(column).map(StatValue::Decimal)))
        }
        DataType::Utf8 => {
            let column = column.as_string::<i32>();
            let max = compute::max_string(column).and_then(text_above);
            Some((compute::min_string(column).map(text_below), max.map(StatValue::Text)))
        }
        DataType::Binary => {
            let column = column.as_binary::<i32>();
            let max = compute::max_binary(column).and_then(bytes_above);
            Some((compute::min_binary(column).map(bytes_below), max.map(StatValue::Bytes)))
        }
        // Nested types have no order. UUIDs have, but ranges of random ones exclude nothing.
        _ => None,
    }
}

fn integers<T: ArrowPrimitiveType<Native: Into<i64>>>(column: &ArrayRef) -> Bounds {
    let column = column.as_primitive::<T>();
    let bound = |value: Option<T::Native>| value.map(|value| StatValue::Int(value.into()));
    Some((bound(compute::min(column)), bound(compute::max(column))))
}

fn floats<T: ArrowPrimitiveType<Native: Into<f64>>>(column: &ArrayRef) -> Bounds {
    let column = column.as_primitive::<T>();
    // Arrow sorts NaN by sign, above or below all numbers, so it always shows in a bound.
    let min: f64 = compute::min(column)?.into();
    let max: f64 = compute::max(column)?.into();
    (!min.is_nan() && !max.is_nan()).then_some((Some(StatValue::Float(min)), Some(StatValue::Float(max))))
}

fn text_below(text: &str) -> StatValue {
    StatValue::Text(text[..text.floor_char_boundary(MAX_BOUND_BYTES)].to_owned())
}

/// The text, or a short one above it: cut, and the last letter that has a next one raised to it.
fn text_above(text: &str) -> Option<String> {
    if text.len() <= MAX_BOUND_BYTES {
        return Some(text.to_owned());
    }
    let mut cut = text[..text.floor_char_boundary(MAX_BOUND_BYTES)].to_owned();
    while let Some(last) = cut.pop() {
        // Letters beside the surrogates have no next one in `char`; UTF-8 order is that of code points.
        if let Some(next) = char::from_u32(u32::from(last) + 1) {
            cut.push(next);
            return Some(cut);
        }
    }
    None
}

fn bytes_below(bytes: &[u8]) -> StatValue {
    StatValue::Bytes(bytes[..bytes.len().min(MAX_BOUND_BYTES)].to_vec())
}

fn bytes_above(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() <= MAX_BOUND_BYTES {
        return Some(bytes.to_vec());
    }
    let mut cut = bytes[..MAX_BOUND_BYTES].to_vec();
    while let Some(last) = cut.pop() {
        if let Some(next) = last.checked_add(1) {
            cut.push(next);
            return Some(cut);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryArray, Float64Array, Int64Array, StringArray};

    use super::*;

    fn stats_of(column: ArrayRef) -> ColumnStats {
        column_stats(&Field::new("a", column.data_type().clone(), true), &column)
    }

    #[test]
    fn bounds_survive_the_trip_through_text_exactly() {
        let values = [
            StatValue::Bool(true),
            StatValue::Int(i64::MIN),
            StatValue::Float(0.1 + 0.2),
            StatValue::Float(f64::INFINITY),
            StatValue::Float(-0.0),
            StatValue::Decimal(i128::MIN),
            StatValue::Text("\"ä\n".to_owned()),
            StatValue::Bytes(vec![0, 255]),
        ];
        for value in values {
            let text = serde_json::to_string(&value).expect("encode");
            assert_eq!(serde_json::from_str::<StatValue>(&text).expect("decode"), value, "{text}");
        }
    }

    #[test]
    fn a_long_text_is_bounded_from_both_sides() {
        let long = "ä".repeat(100);
        let stats = stats_of(Arc::new(StringArray::from(vec![Some(long.as_str()), None])));
        let (Some(StatValue::Text(min)), Some(StatValue::Text(max))) = (stats.min, stats.max) else {
            panic!("two texts")
        };
        assert!(min.as_str() <= long.as_str() && long.as_str() <= max.as_str());
        assert!(min.len() <= 48 && max.len() <= 48);
        assert_eq!(stats.null_count, 1);
    }

    #[test]
    fn a_long_binary_of_only_ff_has_no_bound_above() {
        let stats = stats_of(Arc::new(BinaryArray::from(vec![&[0xff_u8; 100][..]])));
        assert_eq!(stats.max, None);
        assert_eq!(stats.min, Some(StatValue::Bytes(vec![0xff; 48])));
    }

    #[test]
    fn a_nan_leaves_the_column_without_bounds() {
        let stats = stats_of(Arc::new(Float64Array::from(vec![1.0, f64::NAN, 2.0])));
        assert_eq!((stats.min, stats.max), (None, None));
        let stats = stats_of(Arc::new(Float64Array::from(vec![1.0, 2.0])));
        assert_eq!((stats.min, stats.max), (Some(StatValue::Float(1.0)), Some(StatValue::Float(2.0))));
    }

    #[test]
    fn a_column_of_nulls_has_no_bounds() {
        let stats = stats_of(Arc::new(Int64Array::from(vec![None, None])));
        assert_eq!(stats, ColumnStats { null_count: 2, min: None, max: None });
    }
}
