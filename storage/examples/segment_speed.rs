//! What `.arrow` segments cost: one million rows of twenty columns written, read whole, and read in part.
//!
//! `cargo run --release -p weir-storage --example segment_speed [DIR]`. CPU time is user and system, of the one thread that works.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int8Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::DataType;
use weir_model::{Offset, TopicId};
use weir_storage::segment::{ArrowCompression, ArrowSegment, ArrowSegmentInfo, ArrowSegmentWriter};
use weir_table::TableSchema;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const ROWS: i64 = 1_000_000;
/// Rows per appended batch, about what a producer sends at once.
const PIECE: i64 = 500;
/// Schedulers count in ticks of some milliseconds.
const LONG_ENOUGH: Duration = Duration::from_millis(500);
/// `order_id` and `amount_0`.
const TWO: [usize; 2] = [7, 15];

const SQL: &str = "order_id BIGINT NOT NULL, customer BIGINT, session BIGINT, clicks BIGINT, total BIGINT, \
    quantity INT, shelf INT, region INT, \
    amount_0 DOUBLE, amount_1 DOUBLE, amount_2 DOUBLE, amount_3 DOUBLE, \
    created TIMESTAMP, updated TIMESTAMP, \
    name STRING, city STRING, status STRING, note STRING, \
    paid BOOLEAN, shipped BOOLEAN";

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from).join("weir-segment-speed");
    std::fs::create_dir_all(&dir)?;
    let schema = TableSchema::parse_sql(SQL)?;
    let pieces: Vec<RecordBatch> =
        (0..ROWS / PIECE).map(|piece| rows(&schema, piece * PIECE, (piece + 1) * PIECE)).collect::<Result<_>>()?;
    println!("{ROWS} rows, {} user columns, appended {PIECE} at a time", schema.columns().len());
    for compression in [ArrowCompression::Zstd, ArrowCompression::Lz4, ArrowCompression::None] {
        println!("\n{compression:?}");
        let info = ArrowSegmentInfo { topic_id: TopicId::random(), partition: 0, schema_id: 1 };
        let meta = measure("write, synced", || {
            let mut writer = ArrowSegmentWriter::create(&dir, Offset::ZERO, info, &schema, compression)?;
            for piece in &pieces {
                writer.append(piece)?;
            }
            let meta = writer.finish(0)?;
            Ok((meta.size_bytes, meta))
        })?;
        let segment = measure("open, read the footer", || {
            let segment = ArrowSegment::open(&dir, &meta)?;
            segment.blocks()?;
            Ok((0, segment))
        })?;
        measure("verify (warms the cache)", || Ok((meta.size_bytes, segment.verify()?)))?;
        let user: Vec<usize> = (7..27).collect();
        for (what, projection) in [
            ("read 27 of 27, decoded", None),
            ("read 20 of 20, decoded", Some(&user[..])),
            ("read  2 of 20, decoded", Some(&TWO[..])),
        ] {
            measure(what, || {
                let mut bytes = 0;
                for block in 0..segment.blocks()?.len() {
                    bytes += segment.read_block(block, projection)?.bytes_read;
                }
                Ok((bytes, ()))
            })?;
        }
        for (what, projection) in [("read 20 of 20, raw stream", None), ("read  2 of 20, raw stream", Some(&TWO[..]))] {
            measure(what, || {
                let mut bytes = 0;
                for block in 0..segment.blocks()?.len() {
                    bytes += segment.read_block_ipc(block, projection)?.bytes_read;
                }
                Ok((bytes, ()))
            })?;
        }
        std::fs::remove_file(dir.join(&meta.file))?;
    }
    Ok(())
}

/// Runs `act`, which answers its bytes, often enough to be seen, and prints what one run cost.
fn measure<T>(what: &str, mut act: impl FnMut() -> Result<(u64, T)>) -> Result<T> {
    let (started, cpu) = (Instant::now(), cpu_seconds()?);
    let mut runs = 0.0;
    let (bytes, outcome) = loop {
        let done = act()?;
        runs += 1.0;
        if started.elapsed() > LONG_ENOUGH {
            break done;
        }
    };
    let (wall, cpu) = (started.elapsed().as_secs_f64() / runs, (cpu_seconds()? - cpu) / runs);
    println!(
        "{what:<28} {:>8.1} ms wall {:>8.1} ms CPU {:>8.1} M rows/CPU-s {:>8.2} MB of file",
        wall * 1e3,
        cpu * 1e3,
        ROWS as f64 / cpu / 1e6,
        bytes as f64 / 1e6
    );
    Ok(outcome)
}

/// Time this thread has spent on a CPU, to the nanosecond (proc(5), `schedstat`).
fn cpu_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = text.split(' ').next().ok_or("an empty schedstat")?.parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

/// Rows `from..to` of the log schema. Numbers are scrambled so that they compress as little as real ones.
fn rows(schema: &TableSchema, from: i64, to: i64) -> Result<RecordBatch> {
    let count = usize::try_from(to - from)?;
    let scramble =
        |row: i64, salt: i64| (row.wrapping_add(salt).wrapping_mul(0x5851_F42D_4C95_7F2D)).unsigned_abs() >> 33;
    let long = |salt: i64, range: u64| -> ArrayRef {
        Arc::new((from..to).map(|row| i64::try_from(scramble(row, salt) % range).ok()).collect::<Int64Array>())
    };
    let int = |salt: i64, range: u64| -> ArrayRef {
        Arc::new((from..to).map(|row| i32::try_from(scramble(row, salt) % range).ok()).collect::<Int32Array>())
    };
    let double = |salt: i64| -> ArrayRef {
        Arc::new((from..to).map(|row| Some((scramble(row, salt) % 100_000) as f64 / 100.0)).collect::<Float64Array>())
    };
    let time = |salt: i64| -> ArrayRef {
        let at =
            |row: i64| Some(1_700_000_000_000_000 + row * 1_000 + i64::try_from(scramble(row, salt) % 1_000).ok()?);
        Arc::new((from..to).map(at).collect::<TimestampMicrosecondArray>())
    };
    let text = |salt: i64, word: &str, range: u64| -> ArrayRef {
        Arc::new((from..to).map(|row| Some(format!("{word}{}", scramble(row, salt) % range))).collect::<StringArray>())
    };
    let flag = |salt: i64| -> ArrayRef {
        Arc::new((from..to).map(|row| Some(scramble(row, salt) % 3 == 0)).collect::<BooleanArray>())
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new((from..to).collect::<Int64Array>()),
        Arc::new((from..to).map(|row| Some(1_700_000_000_000 + row)).collect::<Int64Array>()),
        Arc::new(Int8Array::from(vec![0; count])),
        Arc::new((from..to).map(|row| Some(format!("order-{row}").into_bytes())).collect::<BinaryArray>()),
        Arc::new(BinaryArray::from(vec![None::<&[u8]>; count])),
        Arc::new(StringArray::from(vec!["compact"; count])),
        Arc::new(BinaryArray::from(vec![None::<&[u8]>; count])),
        Arc::new((from..to).collect::<Int64Array>()),
        long(1, 50_000),
        long(2, 1 << 40),
        long(3, 100),
        long(4, 1_000_000),
        int(5, 20),
        int(6, 1_000),
        int(7, 50),
        double(8),
        double(9),
        double(10),
        double(11),
        time(12),
        time(13),
        text(14, "customer number ", 50_000),
        text(15, "city-", 500),
        text(16, "status-", 5),
        text(17, "a note that nobody reads, ", 1 << 30),
        flag(18),
        flag(19),
    ];
    let schema = schema.log_schema();
    // The example knows the columns, not which unit or key type the table crate gives them.
    let columns = columns.iter().zip(schema.fields()).map(|(column, field)| match field.data_type() {
        data_type if data_type == column.data_type() => Ok(Arc::clone(column)),
        data_type @ (DataType::Timestamp(_, _) | DataType::Dictionary(_, _)) => arrow::compute::cast(column, data_type),
        other => panic!("{} is {other}", field.name()),
    });
    Ok(RecordBatch::try_new(Arc::clone(&schema), columns.collect::<Result<_, arrow::error::ArrowError>>()?)?)
}
