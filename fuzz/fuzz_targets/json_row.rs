//! JSON rows: what is accepted as a row is given back from its columns, byte for byte. Rows are divided by newlines.
#![no_main]

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, RecordBatch};
use libfuzzer_sys::fuzz_target;
use weir_table::{EncodedValue, JsonDecoder, TableSchema, ValueEncoder, seal_values};

static SCHEMAS: LazyLock<Vec<TableSchema>> = LazyLock::new(|| {
    [
        "id BIGINT NOT NULL, customer STRING, amount DECIMAL(10,2), at TIMESTAMP, ok BOOLEAN",
        "a BOOLEAN, b INT, c BIGINT, d FLOAT, e DOUBLE, f DECIMAL(10,2), g STRING, h BINARY, i DATE, j TIME, \
         k TIMESTAMP, l TIMESTAMPTZ, m UUID, n ARRAY<INT>, o MAP<STRING,INT>, p STRUCT<x INT, y STRING>",
        "l ARRAY<STRUCT<x DOUBLE, m MAP<STRING,ARRAY<STRING>>>>, s STRUCT<t TIMESTAMP, d DECIMAL(38,10)>",
    ]
    .map(|sql| TableSchema::parse_sql(sql).expect("written here"))
    .to_vec()
});

/// The columns that an encoder reads: the user's, and how each row was written.
fn log_batch(schema: &TableSchema, columns: &RecordBatch, rows: &[&[u8]]) -> RecordBatch {
    let sealed = seal_values(schema, columns, rows, false);
    let raw: ArrayRef = Arc::new(sealed.raw);
    let mut named: Vec<(&str, ArrayRef)> = vec![("_value_style", sealed.style), ("_value_raw", raw)];
    for (column, array) in schema.columns().iter().zip(columns.columns()) {
        named.push((&column.name, Arc::clone(array)));
    }
    RecordBatch::try_from_iter_with_nullable(named.into_iter().map(|(name, array)| (name, array, true)))
        .expect("as many rows in each")
}

fuzz_target!(|data: &[u8]| {
    for schema in SCHEMAS.iter() {
        let mut decoder = JsonDecoder::new(schema);
        let mut rows: Vec<&[u8]> = Vec::new();
        for row in data.split(|byte| *byte == b'\n') {
            match decoder.push(row) {
                Ok(()) => rows.push(row),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            assert_eq!(decoder.len(), rows.len());
        }
        let columns = decoder.finish();
        if rows.is_empty() {
            continue;
        }
        let batch = log_batch(schema, &columns, &rows);
        let mut encoder = ValueEncoder::new(schema, None);
        for (row, value) in rows.iter().enumerate() {
            let mut out = Vec::new();
            assert_eq!(encoder.encode(&batch, row, &mut out), Ok(EncodedValue::Bytes));
            assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(value));
        }
    }
});
