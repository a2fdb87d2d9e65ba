//! The text of `weir.schema`: what is a schema is written as SQL that is the same schema.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_table::TableSchema;

fuzz_target!(|text: &str| {
    let Ok(schema) = TableSchema::parse_sql(text) else { return };
    let sql = schema.to_sql();
    let again = TableSchema::parse_sql(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(again.columns(), schema.columns());
    assert_eq!(again.to_sql(), sql);
    assert_eq!(schema.arrow().fields().len(), schema.columns().len());
});
