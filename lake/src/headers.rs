//! Record headers: from the bytes on the wire to a list that engines can query, and back to the same bytes.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, ListArray, NullBufferBuilder, StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use weir_model::record_batch::{put_varint, put_varlong};

use crate::LakeError;

/// Headers of many rows: what the list can hold, and the wire bytes of the rows that it cannot.
pub(crate) struct LakeHeaders {
    pub(crate) list: ListArray,
    pub(crate) raw: BinaryArray,
}

/// Splits wire headers into the lake's list, whose item field is `item`. A row whose bytes the list would not give back
/// exactly (a key that is not UTF-8, a length written longer than needed) keeps them in `raw` and its list is null.
pub(crate) fn to_lake(wire: &BinaryArray, item: &Arc<Field>) -> Result<LakeHeaders, LakeError> {
    let mut keys = StringBuilder::new();
    let mut values = BinaryBuilder::new();
    let mut raw = BinaryBuilder::new();
    let mut lengths = Vec::with_capacity(wire.len());
    let mut valid = NullBufferBuilder::new(wire.len());
    let mut again = Vec::new();
    for row in 0..wire.len() {
        if wire.is_null(row) {
            raw.append_null();
            valid.append_null();
            lengths.push(0);
            continue;
        }
        let bytes = wire.value(row);
        let parsed = parse(bytes).filter(|headers| {
            again.clear();
            write(&mut again, headers.len(), headers.iter().map(|(key, value)| (key.as_bytes(), *value)));
            again == bytes
        });
        match parsed {
            Some(headers) => {
                lengths.push(headers.len());
                valid.append_non_null();
                raw.append_null();
                for (key, value) in headers {
                    keys.append_value(key);
                    values.append_option(value);
                }
            }
            None => {
                lengths.push(0);
                valid.append_null();
                raw.append_value(bytes);
            }
        }
    }
    let DataType::Struct(fields) = item.data_type() else {
        unreachable!("the headers of a lake table are a list of structs, by the schema this crate makes");
    };
    let columns: Vec<ArrayRef> = vec![Arc::new(keys.finish()), Arc::new(values.finish())];
    let entries = StructArray::try_new(fields.clone(), columns, None)?;
    let list =
        ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), Arc::new(entries), valid.finish())?;
    Ok(LakeHeaders { list, raw: raw.finish() })
}

/// The wire bytes that [`to_lake`] was given. Either array may be missing from a file, as all null.
pub(crate) fn to_wire(
    list: Option<&ListArray>,
    raw: Option<&BinaryArray>,
    rows: usize,
) -> Result<BinaryArray, LakeError> {
    let no_list = list.is_none_or(|list| list.null_count() == list.len());
    if no_list {
        return Ok(raw.cloned().unwrap_or_else(|| BinaryArray::new_null(rows)));
    }
    let list = list.expect("a list with values was just found");
    let entries = list.values().as_struct();
    let text = arrow::compute::cast(column(entries, "key")?, &DataType::Utf8)?;
    let data = arrow::compute::cast(column(entries, "value")?, &DataType::Binary)?;
    let (keys, values) = (text.as_string::<i32>(), data.as_binary::<i32>());
    let mut out = BinaryBuilder::with_capacity(rows, keys.values().len() + values.values().len() + rows * 4);
    let mut wire = Vec::new();
    for row in 0..rows {
        if let Some(raw) = raw.filter(|raw| raw.is_valid(row)) {
            out.append_value(raw.value(row));
        } else if list.is_null(row) {
            out.append_null();
        } else {
            let offsets = list.value_offsets();
            let range = usize::try_from(offsets[row]).unwrap_or(0)..usize::try_from(offsets[row + 1]).unwrap_or(0);
            wire.clear();
            let headers =
                range.clone().map(|at| (keys.value(at).as_bytes(), values.is_valid(at).then(|| values.value(at))));
            write(&mut wire, range.len(), headers);
            out.append_value(&wire);
        }
    }
    Ok(out.finish())
}

fn column<'a>(entries: &'a StructArray, name: &str) -> Result<&'a ArrayRef, LakeError> {
    entries.column_by_name(name).ok_or_else(|| LakeError::DataFile {
        file: "headers".to_owned(),
        reason: format!("the headers have no field '{name}'"),
    })
}

/// The item field of a headers list that carries no field ids.
#[cfg(test)]
pub(crate) fn plain_item() -> Arc<Field> {
    let fields = arrow::datatypes::Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Binary, true),
    ]);
    Arc::new(Field::new("element", DataType::Struct(fields), false))
}

type Header<'a> = (&'a str, Option<&'a [u8]>);

fn parse(mut bytes: &[u8]) -> Option<Vec<Header<'_>>> {
    let count = usize::try_from(take_varint(&mut bytes)?).ok()?;
    // A header takes two bytes at least, so a count beyond that is a lie and must not size an allocation.
    let mut headers = Vec::with_capacity(count.min(bytes.len() / 2));
    for _ in 0..count {
        let key = take_bytes(&mut bytes)??;
        let value = take_bytes(&mut bytes)?;
        headers.push((std::str::from_utf8(key).ok()?, value));
    }
    bytes.is_empty().then_some(headers)
}

#[expect(clippy::option_option, reason = "outer: the bytes end early; inner: a null value")]
fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = take_varint(bytes)?;
    if length == -1 {
        return Some(None);
    }
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(Some(taken))
}

fn take_varint(bytes: &mut &[u8]) -> Option<i64> {
    let mut raw = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(9) {
        raw |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed());
        }
    }
    None
}

fn write<'a>(out: &mut Vec<u8>, count: usize, headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) {
    put_length(out, count);
    for (key, value) in headers {
        put_length(out, key.len());
        out.extend_from_slice(key);
        match value {
            Some(value) => {
                put_length(out, value.len());
                out.extend_from_slice(value);
            }
            None => put_varint(out, -1),
        }
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    put_varlong(out, i64::try_from(length).expect("a slice is never longer than i64::MAX bytes"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(rows: Vec<Option<Vec<u8>>>) {
        let wire = BinaryArray::from_iter(rows);
        let lake = to_lake(&wire, &plain_item()).expect("to lake");
        let back = to_wire(Some(&lake.list), Some(&lake.raw), wire.len()).expect("to wire");
        assert_eq!(back, wire);
    }

    #[test]
    fn duplicates_order_and_null_values_survive() {
        let mut bytes = Vec::new();
        let headers: [(&[u8], Option<&[u8]>); 4] =
            [(b"b", Some(b"1")), (b"a", None), (b"b", Some(b"")), (b"", Some(b"x"))];
        write(&mut bytes, headers.len(), headers.into_iter());
        let wire = BinaryArray::from(vec![Some(bytes.as_slice()), None]);
        let lake = to_lake(&wire, &plain_item()).expect("to lake");
        assert_eq!(lake.raw.null_count(), 2, "ordinary headers need no raw copy");
        assert_eq!(lake.list.value(0).len(), 4);
        assert_eq!(to_wire(Some(&lake.list), Some(&lake.raw), 2).expect("to wire"), wire);
    }

    #[test]
    fn a_key_that_is_not_utf8_and_an_overlong_length_keep_their_bytes() {
        round_trip(vec![Some(vec![2, 2, 0xff, 1]), Some(vec![2, 0x82, 0x00, b'k', 1]), None]);
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(rows in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..24)), 0..20)) {
            round_trip(rows);
        }

        #[test]
        fn any_headers_come_back(rows in prop::collection::vec(
            prop::collection::vec((".{0,6}", prop::option::of(prop::collection::vec(any::<u8>(), 0..200))), 1..5), 0..10)) {
            let rows = rows.iter().map(|headers| {
                let mut out = Vec::new();
                write(&mut out, headers.len(), headers.iter().map(|(key, value)| (key.as_bytes(), value.as_deref())));
                Some(out)
            }).collect();
            round_trip(rows);
        }
    }
}
