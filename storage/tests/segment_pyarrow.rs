//! `pyarrow` reads what `weir_storage::segment` writes: the file, and the streams cut from it.
//!
//! Takes the interpreter from `COMPAT_PYTHON`. Without it the test says so and passes, unless `CI=true`.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int8Array, Int64Array, RecordBatch, StringArray, new_null_array};
use arrow::array::{Float64Array, ListArray};
use arrow::datatypes::{DataType, Int64Type};
use weir_model::{Offset, TopicId};
use weir_storage::segment::{
    ArrowCompression, ArrowSegment, ArrowSegmentInfo, ArrowSegmentWriter, SegmentMeta, ipc_stream_with,
};
use weir_table::TableSchema;

const ROWS: i64 = 40_000;
/// Positions in the log schema: seven columns of the log come first.
const ID: usize = 7;
const PRICE: usize = 9;

/// `Some` interpreter that has pyarrow, or `None` after a loud word.
fn python() -> Option<String> {
    let Ok(python) = std::env::var("COMPAT_PYTHON") else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "set COMPAT_PYTHON to a python that has pyarrow");
        eprintln!(
            "SKIPPED: set COMPAT_PYTHON to a python that has pyarrow, or nothing shows that others can read segments"
        );
        return None;
    };
    let found = Command::new(&python).args(["-c", "import pyarrow"]).status().expect("COMPAT_PYTHON starts");
    assert!(found.success(), "{python} has no pyarrow; pip install pyarrow");
    Some(python)
}

/// What the script prints, one line per answer.
fn run(python: &str, script: &str, file: &Path) -> Vec<String> {
    let output = Command::new(python).arg("-c").arg(script).arg(file).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

fn rows(schema: &TableSchema) -> RecordBatch {
    let log_schema = schema.log_schema();
    let count = usize::try_from(ROWS).expect("few");
    let columns: Vec<ArrayRef> = log_schema
        .fields()
        .iter()
        .map(|field| -> ArrayRef {
            match field.name().as_str() {
                "_offset" | "id" => Arc::new((0..ROWS).collect::<Int64Array>()),
                "_timestamp" => Arc::new((0..ROWS).map(|row| Some(1_000 + row)).collect::<Int64Array>()),
                "_timestamp_type" => Arc::new(Int8Array::from(vec![0; count])),
                "_key" => Arc::new((0..ROWS).map(|row| Some(format!("k{row}").into_bytes())).collect::<BinaryArray>()),
                "_value_style" => {
                    Arc::new((0..ROWS).map(|row| Some(format!("style {}", row / 30_000))).collect::<StringArray>())
                }
                "name" => Arc::new(
                    (0..ROWS).map(|row| (row % 10 != 0).then(|| format!("näme {row}"))).collect::<StringArray>(),
                ),
                "price" => {
                    Arc::new((0..ROWS).map(|row| (row % 4 != 0).then_some(row as f64 / 2.0)).collect::<Float64Array>())
                }
                "tags" => {
                    let tags = (0..ROWS).map(|row| Some((0..row % 3).map(Some).collect::<Vec<_>>()));
                    arrow::compute::cast(&ListArray::from_iter_primitive::<Int64Type, _, _>(tags), field.data_type())
                        .expect("a list")
                }
                _ => new_null_array(field.data_type(), count),
            }
        })
        .collect();
    RecordBatch::try_new(log_schema, columns).expect("of the log schema")
}

fn sealed(dir: &Path, compression: ArrowCompression) -> SegmentMeta {
    let schema =
        TableSchema::parse_sql("id BIGINT NOT NULL, name STRING, price DOUBLE, tags ARRAY<BIGINT>").expect("a schema");
    let info = ArrowSegmentInfo { topic_id: TopicId::random(), partition: 0, schema_id: 1 };
    let mut writer = ArrowSegmentWriter::create(dir, Offset::ZERO, info, &schema, compression).expect("create");
    writer.append(&rows(&schema)).expect("append");
    writer.finish(0).expect("finish")
}

#[test]
fn pyarrow_opens_a_segment_as_an_ordinary_file() {
    let Some(python) = python() else { return };
    let script = "
import sys, pyarrow as pa, pyarrow.compute as pc
with pa.memory_map(sys.argv[1]) as source:
    reader = pa.ipc.open_file(source)
    table = reader.read_all()
    table.validate(full=True)
    print(reader.num_record_batches > 1)
    print(table.num_rows, pc.sum(table['id']), pc.sum(table['price']), table['name'].null_count)
    print(pc.sum(pc.list_flatten(table['tags'])))
    print(','.join(table.column_names))
    print(pc.unique(table['_value_style'].combine_chunks().cast(pa.string())).to_pylist())
    print(table['name'][39999], table['_key'][7])
    print(reader.get_batch(1).schema.field('_value_style').type)
";
    for compression in [ArrowCompression::Zstd, ArrowCompression::Lz4, ArrowCompression::None] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let meta = sealed(dir.path(), compression);
        let answers = run(&python, script, &dir.path().join(&meta.file));
        let price: f64 = (0..ROWS).filter(|row| row % 4 != 0).map(|row| row as f64 / 2.0).sum();
        let tags: i64 = (0..ROWS).map(|row| if row % 3 == 2 { 1 } else { 0 }).sum();
        assert_eq!(answers[0], "True", "{compression:?}");
        assert_eq!(answers[1], format!("{ROWS} {} {price:.1} {}", ROWS * (ROWS - 1) / 2, ROWS / 10));
        assert_eq!(answers[2], tags.to_string());
        assert_eq!(
            answers[3],
            "_offset,_timestamp,_timestamp_type,_key,_headers,_value_style,_value_raw,id,name,price,tags"
        );
        assert_eq!(answers[4], "['style 0', 'style 1']");
        assert_eq!(answers[5], "näme 39999 b'k7'");
        assert_eq!(answers[6], "dictionary<values=string, indices=int32, ordered=0>");
    }
}

#[test]
fn pyarrow_opens_a_projected_block_as_a_stream() {
    let Some(python) = python() else { return };
    let script = "
import sys, pyarrow as pa, pyarrow.compute as pc
reader = pa.ipc.open_stream(open(sys.argv[1], 'rb').read())
table = reader.read_all()
table.validate(full=True)
print(','.join(table.column_names), table.num_rows, pc.sum(table['id']))
";
    for compression in [ArrowCompression::Zstd, ArrowCompression::Lz4, ArrowCompression::None] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let segment = ArrowSegment::open(dir.path(), &sealed(dir.path(), compression)).expect("open");
        let file = dir.path().join("stream");
        for (projection, names) in [(vec![PRICE, ID], "price,id"), (vec![0, ID, 10], "_offset,id,tags")] {
            let stream = segment.read_block_ipc(1, Some(&projection)).expect("read");
            std::fs::write(&file, &stream.bytes).expect("write");
            let sum: i64 = (stream.range.start.get()..stream.range.end.get()).sum();
            assert_eq!(run(&python, script, &file), [format!("{names} {} {sum}", stream.rows)], "{compression:?}");
        }
        let decoded = segment.read_block(0, Some(&[ID, 8])).expect("read").batch;
        std::fs::write(&file, ipc_stream_with(&decoded, compression).expect("encode")).expect("write");
        let rows = decoded.num_rows();
        assert_eq!(run(&python, script, &file), [format!("id,name {rows} {}", rows * (rows - 1) / 2)]);
        assert_eq!(decoded.column(0).data_type(), &DataType::Int64);
    }
}
