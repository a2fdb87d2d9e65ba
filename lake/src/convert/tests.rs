//! What is poured comes back.

use arrow::array::Int32Builder;
use arrow::array::{
    BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array, ListArray, MapBuilder, StringArray,
    StringBuilder, Time64MicrosecondArray,
};
use proptest::prelude::*;

use super::*;
use crate::schema::{evolved_schema, iceberg_schema, log_schema};

/// Columns of every type a topic can have, values and nulls from `seed`.
pub(crate) fn all_types(rows: usize, seed: i64) -> (Fields, Vec<ArrayRef>) {
    let numbers: Vec<Option<i64>> = (0..rows)
        .map(|row| {
            let value = i64::try_from(row).expect("a small count").wrapping_mul(seed);
            (value % 5 != 0).then_some(value)
        })
        .collect();
    let small = |value: i64| i32::try_from(value.rem_euclid(1000)).expect("below 1000");
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(
        numbers.iter().map(|value| value.map(|value| vec![Some(small(value)), None])),
    );
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for value in &numbers {
        if let Some(value) = value {
            map.keys().append_value("a");
            map.values().append_value(small(*value));
        }
        map.append(value.is_some()).expect("a map entry");
    }
    let inner: ArrayRef = Arc::new(Int64Array::from(numbers.clone()));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("b", Arc::new(numbers.iter().map(|value| value.map(|value| value % 2 == 0)).collect::<BooleanArray>())),
        ("i", Arc::new(numbers.iter().map(|value| value.map(small)).collect::<Int32Array>())),
        ("l", Arc::new(Int64Array::from(numbers.clone()))),
        ("d", Arc::new(numbers.iter().map(|value| value.map(|value| value as f64 / 3.0)).collect::<Float64Array>())),
        ("s", Arc::new(numbers.iter().map(|value| value.map(|value| format!("s{value}"))).collect::<StringArray>())),
        ("x", Arc::new(numbers.iter().map(|value| value.map(|value| value.to_le_bytes())).collect::<BinaryArray>())),
        ("day", Arc::new(numbers.iter().map(|value| value.map(small)).collect::<Date32Array>())),
        ("t", Arc::new(numbers.iter().map(|value| value.map(i64::abs)).collect::<Time64MicrosecondArray>())),
        ("ts", Arc::new(numbers.iter().copied().collect::<TimestampMicrosecondArray>())),
        ("tz", Arc::new(numbers.iter().copied().collect::<TimestampMicrosecondArray>().with_timezone("UTC"))),
        (
            "dec",
            Arc::new(
                numbers
                    .iter()
                    .map(|value| value.map(|value| i128::from(small(value))))
                    .collect::<Decimal128Array>()
                    .with_precision_and_scale(10, 2)
                    .expect("a legal decimal"),
            ),
        ),
        (
            "u",
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                    numbers.iter().map(|value| value.map(|value| i128::from(value).to_be_bytes())),
                    16,
                )
                .expect("sixteen bytes each"),
            ),
        ),
        ("arr", Arc::new(list)),
        ("m", Arc::new(map.finish())),
        (
            "st",
            Arc::new(
                StructArray::try_new(Fields::from(vec![Field::new("inner", DataType::Int64, true)]), vec![inner], None)
                    .expect("a struct"),
            ),
        ),
    ];
    let fields: Fields =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true)).collect();
    (fields, columns.into_iter().map(|(_, column)| column).collect())
}

fn mapping(kind: TableKind, log: &SchemaRef) -> TableMapping {
    let iceberg = iceberg_schema("orders", kind, log).expect("a schema");
    TableMapping::new("orders", kind, &iceberg, log).expect("a mapping")
}

#[test]
fn every_column_type_comes_back_as_it_was_poured() {
    let (fields, columns) = all_types(100, 7919);
    let log = log_schema(&fields);
    let mut all = test_system_columns(5, 100);
    all.extend(columns);
    let batch = RecordBatch::try_new(Arc::clone(&log), all).expect("a batch");
    let mapping = mapping(TableKind::Columns, &log);
    let lake = mapping.to_lake(3, &batch).expect("to the lake");
    assert_eq!(lake.num_columns(), fields.len() + 1);
    let (partition, offset) = positions(&lake).expect("positions");
    assert!(partition.values().iter().all(|&partition| partition == 3));
    assert_eq!(offset.value(0), 5);
    assert_eq!(mapping.to_log(&lake, &log).expect("to the log"), batch);
}

#[test]
fn a_raw_topic_has_the_columns_key_and_value() {
    let log = log_schema(&Fields::from(vec![Field::new("value", DataType::Binary, true)]));
    let mut all = test_system_columns(0, 4);
    all[5] = new_null_array(&DataType::Utf8, 4);
    all[6] = new_null_array(&DataType::Binary, 4);
    all.push(Arc::new(BinaryArray::from(vec![Some(b"a".as_slice()), None, Some(b""), Some(b"d")])));
    let batch = RecordBatch::try_new(Arc::clone(&log), all).expect("a batch");
    let mapping = mapping(TableKind::Raw, &log);
    let lake = mapping.to_lake(0, &batch).expect("to the lake");
    let names: Vec<&str> = lake.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["key", "value", "_kafka"]);
    assert_eq!(mapping.to_log(&lake, &log).expect("to the log"), batch);
}

#[test]
fn a_new_column_is_added_and_a_changed_type_is_refused() {
    let old = log_schema(&Fields::from(vec![Field::new("id", DataType::Int64, false)]));
    let table = iceberg_schema("orders", TableKind::Columns, &old).expect("a schema");
    let last = table.highest_field_id();
    let new = log_schema(&Fields::from(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("note", DataType::Utf8, false),
    ]));
    let evolved = evolved_schema("orders", &table, last, &new).expect("evolves").expect("has a new column");
    let note = evolved.field_by_name("note").expect("the new column");
    assert_eq!((note.id, note.required), (last + 1, false));
    assert!(evolved_schema("orders", &evolved, last + 1, &new).expect("evolves").is_none());
    let wrong = log_schema(&Fields::from(vec![Field::new("id", DataType::Utf8, false)]));
    let error = evolved_schema("orders", &table, last, &wrong).expect_err("refused").to_string();
    assert!(error.contains("'id'") && error.contains("only new columns"), "{error}");
}

proptest! {
    #[test]
    fn any_timestamp_comes_back(values in prop::collection::vec(prop_oneof![Just(-1i64), any::<i64>(), 0..4_000_000_000_000i64], 1..50)) {
        let (micros, raw) = timestamps_to_lake(&Int64Array::from(values.clone()));
        let fields = Fields::from(vec![
            Field::new("timestamp", micros.data_type().clone(), true),
            Field::new("timestamp_raw", DataType::Int64, true),
        ]);
        let kafka = StructArray::try_new(fields, vec![Arc::new(micros), Arc::new(raw)], None).expect("a struct");
        let back = timestamps_to_log(&kafka, values.len()).expect("to the log");
        prop_assert_eq!(back.as_primitive::<Int64Type>().values().to_vec(), values);
    }

    #[test]
    fn any_numbers_come_back(rows in 1usize..60, seed in 1i64..1_000_000) {
        let (fields, columns) = all_types(rows, seed);
        let log = log_schema(&fields);
        let mut all = test_system_columns(0, rows);
        all.extend(columns);
        let batch = RecordBatch::try_new(Arc::clone(&log), all).expect("a batch");
        let mapping = mapping(TableKind::Columns, &log);
        let lake = mapping.to_lake(0, &batch).expect("to the lake");
        prop_assert_eq!(mapping.to_log(&lake, &log).expect("to the log"), batch);
    }
}
