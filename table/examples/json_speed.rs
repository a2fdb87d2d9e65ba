//! Prints how fast rows are decoded, sealed and encoded, in MB of JSON per second of CPU time (1 MB = 10^6 bytes): the thread's own
//! time where Linux tells it, so that a busy machine does not blur the figure; the best of some rounds.
//!
//! `cargo run --release -p weir-table --example json_speed [rows]`

use std::hint::black_box;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch};
use weir_table::{TableSchema, ValueEncoder, decode_batch, seal_values};

const SCHEMA: &str = "id BIGINT NOT NULL, customer_id BIGINT, item STRING, amount DECIMAL(10,2), quantity INT, price DOUBLE, paid BOOLEAN, \
    currency STRING, at TIMESTAMP WITH TIME ZONE, note STRING";
const BATCH: usize = 5000;
const ROUNDS: usize = 9;

fn row(index: u64, separators: (&str, &str)) -> String {
    let random = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
    let (item, colon) = separators;
    let fields = [
        ("id", format!("{}", 1_000_000 + index)),
        ("customer_id", format!("{}", random % 10_000_000)),
        ("item", format!("\"SKU-{:06} blue shirt\"", random % 999_983)),
        ("amount", format!("{}.{:02}", random % 10_000, 1 + random % 99)),
        ("quantity", format!("{}", 1 + random % 9)),
        ("price", format!("{}.{}5", random % 1000, random % 97)),
        ("paid", format!("{}", random.is_multiple_of(3))),
        ("currency", "\"EUR\"".to_owned()),
        (
            "at",
            format!(
                "\"2026-03-{:02}T{:02}:{:02}:{:02}.{:03}Z\"",
                1 + random % 28,
                random % 24,
                random % 60,
                random / 7 % 60,
                random % 1000
            ),
        ),
        ("note", if random.is_multiple_of(4) { "null".to_owned() } else { "\"leave at door\"".to_owned() }),
    ];
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\"{colon}{value}")).collect();
    format!("{{{}}}", fields.join(item))
}

/// Seconds this thread has run; on systems without schedstat, seconds of the wall clock.
fn cpu_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos: Option<u64> = schedstat.and_then(|text| text.split(' ').next()?.parse().ok());
    match nanos {
        Some(nanos) => nanos as f64 / 1e9,
        None => START.get_or_init(Instant::now).elapsed().as_secs_f64(),
    }
}

fn rate(what: &str, bytes: usize, rows: usize, mut work: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = cpu_seconds();
        work();
        best = best.min(cpu_seconds() - start);
    }
    println!(
        "{what:<28} {:>7.0} MB/s  {:>6.2} M rows/s  {:>5.0} ns/row",
        bytes as f64 / best / 1e6,
        rows as f64 / best / 1e6,
        best / rows as f64 * 1e9
    );
}

fn main() {
    let rows: usize = std::env::args().nth(1).and_then(|rows| rows.parse().ok()).unwrap_or(200_000);
    let schema = TableSchema::parse_sql(SCHEMA).expect("a good schema");
    for (name, separators) in [("compact", (",", ":")), ("python", (", ", ": "))] {
        let texts: Vec<String> = (0..rows as u64).map(|index| row(index, separators)).collect();
        let values: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        let bytes: usize = values.iter().map(|value| value.len()).sum();
        println!("{name}: {rows} rows of {} B, 10 fields", bytes / rows);
        rate("  decode", bytes, rows, || {
            for batch in values.chunks(BATCH) {
                black_box(decode_batch(&schema, batch.iter().map(|value| Some(*value))).expect("good rows"));
            }
        });
        let decoded: Vec<RecordBatch> = values
            .chunks(BATCH)
            .map(|batch| decode_batch(&schema, batch.iter().map(|value| Some(*value))).expect("good rows"))
            .collect();
        rate("  seal (find and verify)", bytes, rows, || {
            for (batch, values) in decoded.iter().zip(values.chunks(BATCH)) {
                black_box(seal_values(&schema, batch, values, false));
            }
        });
        let mut kept = 0;
        let sealed: Vec<RecordBatch> = decoded
            .iter()
            .zip(values.chunks(BATCH))
            .map(|(batch, values)| {
                let sealed = seal_values(&schema, batch, values, false);
                kept += sealed.raw_rows();
                let mut columns: Vec<(&str, ArrayRef, bool)> =
                    vec![("_value_style", sealed.style, true), ("_value_raw", Arc::new(sealed.raw), true)];
                for (column, array) in schema.columns().iter().zip(batch.columns()) {
                    columns.push((&column.name, Arc::clone(array), true));
                }
                RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
            })
            .collect();
        println!("  rows kept raw: {kept}");
        let encode = |projection: Option<&[usize]>| {
            let mut encoder = ValueEncoder::new(&schema, projection);
            let mut out = Vec::new();
            let mut total = 0;
            for batch in &sealed {
                out.clear();
                for row in 0..batch.num_rows() {
                    encoder.encode(batch, row, &mut out).expect("a value");
                }
                total += out.len();
            }
            total
        };
        assert_eq!(encode(None), bytes, "every byte comes back");
        rate("  encode", bytes, rows, || {
            black_box(encode(None));
        });
        rate("  encode 2 of 10 columns", bytes, rows, || {
            black_box(encode(Some(&[0, 3])));
        });
        let memory: usize =
            decoded.iter().flat_map(RecordBatch::columns).map(|array| array.get_array_memory_size()).sum();
        println!("  columns in memory: {} B per row", memory / rows);
    }
}
