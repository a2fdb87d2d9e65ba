use arrow::datatypes::TimeUnit;
use proptest::prelude::*;

use super::*;

fn refused(sql: &str) -> String {
    TableSchema::parse_sql(sql).expect_err("refused").to_string()
}

#[test]
fn every_type_is_read_and_written_back() {
    let sql = "a BOOLEAN, b INT, c BIGINT NOT NULL, d FLOAT, e DOUBLE, f DECIMAL(38,10), g STRING, h BINARY, i DATE, j TIME, \
               k TIMESTAMP, l TIMESTAMP(3), m TIMESTAMP WITH TIME ZONE, n TIMESTAMP(3) WITH TIME ZONE, o UUID, \
               p ARRAY<ARRAY<INT NOT NULL>> NOT NULL, q MAP<STRING, STRUCT<x INT NOT NULL, y ARRAY<STRING>>>";
    let schema = TableSchema::parse_sql(sql).expect("a good schema");
    assert_eq!(schema.to_sql(), sql);
    assert_eq!(TableSchema::parse_sql(&schema.to_sql()), Ok(schema));
}

#[test]
fn synonyms_mean_the_same_type() {
    let left = TableSchema::parse_sql(
        "a VARCHAR, b TEXT, c BYTES, d integer, e double precision, f numeric(5), g timestamptz, h Timestamp_LTZ(3), i bool, j TIMESTAMP(6) WITHOUT TIME ZONE, k STRUCT<x: INT>",
    );
    let right = TableSchema::parse_sql(
        "a STRING, b STRING, c BINARY, d INT, e DOUBLE, f DECIMAL(5,0), g TIMESTAMP WITH TIME ZONE, h TIMESTAMP(3) WITH TIME ZONE, i BOOLEAN, j TIMESTAMP, k STRUCT<x INT>",
    );
    assert_eq!(left.expect("synonyms"), right.expect("canonical names"));
}

#[test]
fn arrow_types_are_those_of_iceberg() {
    let schema = TableSchema::parse_sql("t TIMESTAMPTZ, u UUID NOT NULL, m MAP<STRING,INT>, at TIMESTAMP")
        .expect("a good schema");
    let arrow = schema.arrow();
    assert_eq!(arrow.field(0).data_type(), &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
    assert_eq!(arrow.field(1).data_type(), &DataType::FixedSizeBinary(16));
    assert!(!arrow.field(1).is_nullable());
    assert!(matches!(arrow.field(2).data_type(), DataType::Map(entries, false) if entries.name() == "key_value"));
    assert_eq!(arrow.field(3).data_type(), &DataType::Timestamp(TimeUnit::Microsecond, None));
}

#[test]
fn log_schema_is_the_system_columns_then_the_users() {
    let log = TableSchema::parse_sql("id BIGINT").expect("a good schema").log_schema();
    let names: Vec<_> = log.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(
        names,
        ["_offset", "_timestamp", "_timestamp_type", "_key", "_headers", "_value_style", "_value_raw", "id"]
    );
}

#[test]
fn quoted_names_keep_their_spelling() {
    let schema =
        TableSchema::parse_sql("\"a b\"\"c\" INT, `größe` INT, at TIMESTAMP, Date DATE").expect("a good schema");
    let names: Vec<_> = schema.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["a b\"c", "größe", "at", "Date"]);
    assert_eq!(TableSchema::parse_sql(&schema.to_sql()), Ok(schema));
}

#[test]
fn an_unknown_type_is_answered_with_the_nearest_and_the_list() {
    let message = refused("id BIGITN");
    assert!(message.contains("did you mean BIGINT?") && message.contains("TIMESTAMP WITH TIME ZONE"), "{message}");
    assert!(refused("id DATETIME").contains("did you mean TIMESTAMP?"));
    assert!(!refused("id FOOBARQUX").contains("did you mean"));
    assert!(refused("a STRUCT<b STRUCT<c NOPE>>").contains("column a.b.c"));
}

#[test]
fn every_other_mistake_says_what_to_write() {
    for (sql, part) in [
        ("", "names no column"),
        ("  ", "names no column"),
        ("id BIGINT,", "a column name"),
        ("id", "a type"),
        ("id BIGINT id2 INT", "separate columns by commas"),
        ("id BIGINT PRIMARY KEY", "weir.primary.key"),
        ("id BIGINT DEFAULT 5", "let the producer write"),
        ("id BIGINT, ID INT", "declared twice"),
        ("_id BIGINT", "such as `id`"),
        ("\"\" BIGINT", "empty name"),
        ("d DECIMAL", "DECIMAL(10,2)"),
        ("d DECIMAL(39,2)", "1 to 38"),
        ("d DECIMAL(5,6)", "1 to 38"),
        ("t TIMESTAMP(9)", "TIMESTAMP(6)"),
        ("m MAP<INT, INT>", "MAP<STRING"),
        ("v VARCHAR(20)", "plain STRING"),
        ("CREATE TABLE t (id INT)", "without CREATE TABLE"),
        ("a ARRAY", "ARRAY<STRING>"),
        ("a INT); DROP TABLE x", "`,` and another column"),
        ("a INT NOT FOUND", "write NOT NULL"),
        ("a STRUCT<>", "a column name"),
    ] {
        let message = refused(sql);
        assert!(message.contains(part), "{sql}: {message}");
    }
}

#[test]
fn deep_nesting_is_refused() {
    let sql = format!("a {}INT{}", "ARRAY<".repeat(40), ">".repeat(40));
    assert!(refused(&sql).contains("flatten it"));
}

#[test]
fn a_schema_is_persisted_as_its_sql() {
    let schema = TableSchema::parse_sql("id BIGINT NOT NULL, a ARRAY<INT>").expect("a good schema");
    let text = serde_json::to_string(&schema).expect("serializes");
    assert_eq!(text, "\"id BIGINT NOT NULL, a ARRAY<INT>\"");
    assert_eq!(serde_json::from_str::<TableSchema>(&text).expect("reads back"), schema);
    let raw: TableSchema = serde_json::from_str("null").expect("no schema");
    assert!(raw.is_raw() && raw == TableSchema::raw() && raw != TableSchema::parse_sql("value BINARY").expect("good"));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_panic(sql in "\\PC{0,80}") {
        if let Ok(schema) = TableSchema::parse_sql(&sql) {
            prop_assert_eq!(TableSchema::parse_sql(&schema.to_sql()), Ok(schema));
        }
    }
}
