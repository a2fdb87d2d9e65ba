//! The `weir.*` options in a client id, and their columns against a table.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weir_table::{ReadOptions, TableSchema};

static SCHEMA: LazyLock<TableSchema> =
    LazyLock::new(|| TableSchema::parse_sql("id BIGINT, amount DECIMAL(10,2), `a b` STRING").expect("written here"));

fuzz_target!(|client_id: &str| match ReadOptions::from_client_id(client_id) {
    Err(error) => assert!(error.to_string().len() < 2000 + 4 * client_id.len()),
    Ok(None) => {}
    Ok(Some(options)) => {
        assert!(client_id.to_ascii_lowercase().contains("weir."));
        if let Ok(Some(columns)) = options.resolve(&SCHEMA) {
            assert!(columns.iter().all(|column| *column < SCHEMA.columns().len()));
        }
    }
});
