use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::builder::{ListBuilder, MapBuilder, StringBuilder};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, Float64Array, Int8Array,
    Int64Array, RecordBatch, StringArray, StructArray,
};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt16Type};
use arrow_ipc::reader::{FileReader, StreamReader};
use proptest::prelude::*;
use weir_model::{Offset, TopicId};

use super::super::{SegmentError, SegmentMeta};
use super::*;

/// System columns in front of the user's.
const USER: usize = 7;

fn at(offset: i64) -> Offset {
    Offset::new(offset).expect("not negative")
}

fn info() -> ArrowSegmentInfo {
    ArrowSegmentInfo { topic_id: TopicId::random(), partition: 3, schema_id: 9 }
}

/// Rows `from..to`, every third offset left out, with user columns of every shape.
fn rows(from: i64, to: i64) -> RecordBatch {
    let offsets: Vec<i64> = (from..to).map(|row| row + row / 2).collect();
    let some = |row: i64, every: i64| row % every != 0;
    let mut tags = ListBuilder::new(StringBuilder::new());
    let mut prices = MapBuilder::new(None, StringBuilder::new(), arrow::array::Int64Builder::new());
    for row in from..to {
        for tag in 0..row % 3 {
            tags.values().append_value(format!("tag{tag}"));
        }
        tags.append(some(row, 7));
        prices.keys().append_value(format!("k{}", row % 5));
        prices.values().append_option(some(row, 4).then_some(row));
        prices.append(true).expect("as many keys as values");
    }
    let of_text =
        |text: &dyn Fn(i64) -> Option<String>| -> ArrayRef { Arc::new((from..to).map(text).collect::<StringArray>()) };
    let place: ArrayRef = Arc::new(StructArray::from(vec![
        (
            Arc::new(Field::new("x", DataType::Float64, true)),
            Arc::new((from..to).map(|row| some(row, 5).then_some(row as f64)).collect::<Float64Array>()) as ArrayRef,
        ),
        (Arc::new(Field::new("label", DataType::Utf8, true)), of_text(&|row| Some(format!("p{row}")))),
    ]));
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("_offset", Arc::new(Int64Array::from(offsets)), false),
        (
            "_timestamp",
            Arc::new((from..to).map(|row| Some(1_000 + (row * 37) % 1_000 + row)).collect::<Int64Array>()),
            false,
        ),
        ("_timestamp_type", Arc::new(Int8Array::from(vec![0; (to - from) as usize])), false),
        (
            "_key",
            Arc::new(
                (from..to).map(|row| some(row, 10).then(|| format!("k{row}").into_bytes())).collect::<BinaryArray>(),
            ),
            true,
        ),
        ("_headers", Arc::new((from..to).map(|_| None::<Vec<u8>>).collect::<BinaryArray>()), true),
        ("_value_style", of_text(&|row| some(row, 11).then(|| format!("style {}", row / 1000 % 3))), true),
        (
            "_value_raw",
            Arc::new((from..to).map(|row| (!some(row, 11)).then_some(b"{}")).collect::<BinaryArray>()),
            true,
        ),
        ("id", Arc::new((from..to).collect::<Int64Array>()), false),
        ("name", of_text(&|row| some(row, 6).then(|| format!("name of row {row}"))), true),
        (
            "price",
            Arc::new((from..to).map(|row| some(row, 9).then_some(row as f64 / 8.0)).collect::<Float64Array>()),
            true,
        ),
        ("paid", Arc::new((from..to).map(|row| some(row, 8).then_some(row % 2 == 0)).collect::<BooleanArray>()), true),
        (
            "amount",
            Arc::new(
                Decimal128Array::from((from..to).map(i128::from).collect::<Vec<_>>())
                    .with_precision_and_scale(20, 2)
                    .expect("fits"),
            ),
            true,
        ),
        ("tags", Arc::new(tags.finish()), true),
        ("prices", Arc::new(prices.finish()), true),
        ("place", place, true),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column, nullable)| Field::new(*name, column.data_type().clone(), *nullable))
        .collect();
    let columns = columns.into_iter().map(|(_, column, _)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("well-formed")
}

/// Opens a segment and reads its footer.
fn open(dir: &Path, meta: &SegmentMeta) -> Result<ArrowSegment, SegmentError> {
    let segment = ArrowSegment::open(dir, meta)?;
    segment.blocks()?;
    Ok(segment)
}

/// The directory of an undamaged segment.
fn blocks(segment: &ArrowSegment) -> &[BlockInfo] {
    segment.blocks().expect("undamaged")
}

fn writer(dir: &Path, base_offset: i64, schema: &SchemaRef, compression: ArrowCompression) -> ArrowSegmentWriter {
    ArrowSegmentWriter::with_log_schema(
        dir,
        at(base_offset),
        info(),
        schema,
        "id BIGINT NOT NULL".to_owned(),
        compression,
    )
    .expect("create")
}

/// A segment of `count` rows, appended in pieces of `piece`.
fn sealed(count: i64, piece: i64, compression: ArrowCompression) -> (tempfile::TempDir, SegmentMeta, RecordBatch) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let all = rows(0, count);
    let mut writer = writer(dir.path(), 0, &all.schema(), compression);
    let mut from = 0;
    while from < count {
        let length = piece.min(count - from);
        writer.append(&all.slice(from as usize, length as usize)).expect("append");
        from += length;
    }
    let meta = writer.finish(5).expect("finish");
    (dir, meta, all)
}

/// The batch with its styles as plain text, as [`rows`] makes them.
fn plain(batch: &RecordBatch) -> RecordBatch {
    let columns: Vec<ArrayRef> = batch
        .columns()
        .iter()
        .map(|column| match column.data_type() {
            DataType::Dictionary(_, value_type) => cast(column, value_type).expect("a dictionary of texts"),
            _ => Arc::clone(column),
        })
        .collect();
    let fields: Vec<_> = batch
        .schema()
        .fields()
        .iter()
        .zip(&columns)
        .map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone()))
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("well-formed")
}

fn read_all(segment: &ArrowSegment, projection: Option<&[usize]>) -> Result<RecordBatch, SegmentError> {
    let blocks = (0..blocks(segment).len())
        .map(|index| Ok(plain(&segment.read_block(index, projection)?.batch)))
        .collect::<Result<Vec<_>, SegmentError>>()?;
    Ok(concat_batches(&blocks[0].schema(), &blocks).expect("one schema"))
}

#[test]
fn rows_come_back_whatever_the_compression_and_the_size_of_the_pieces() {
    for compression in [ArrowCompression::Zstd, ArrowCompression::Lz4, ArrowCompression::None] {
        for (count, piece) in [(1, 1), (700, 1), (20_000, 999), (50_000, 50_000)] {
            let (dir, meta, all) = sealed(count, piece, compression);
            let segment = open(dir.path(), &meta).expect("open");
            segment.verify().expect("undamaged");
            assert_eq!(
                read_all(&segment, None).expect("read"),
                all,
                "{count} rows, {piece} at a time, {compression:?}"
            );
            assert_eq!(meta.file, "00000000000000000000.arrow");
            assert_eq!((meta.rows, meta.schema_id, meta.created_ms), (count as u64, 9, 5));
            assert_eq!(meta.range.end, at((count - 1) + (count - 1) / 2 + 1));
        }
    }
}

#[test]
fn blocks_are_full_whatever_the_producers_sent() {
    let (dir, meta, _) = sealed(60_000, 100, ArrowCompression::Lz4);
    let segment = open(dir.path(), &meta).expect("open");
    let sizes: Vec<u64> = blocks(&segment).iter().map(|block| block.rows).collect();
    let (last, full) = sizes.split_last().expect("there are blocks");
    assert!(full.iter().all(|rows| *rows > 8_000 && *rows <= BLOCK_ROWS as u64), "{sizes:?}");
    assert!(*last > 0);
    assert_eq!(sizes.iter().sum::<u64>(), 60_000);
}

#[test]
fn a_row_larger_than_a_block_is_a_block() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let schema = Arc::new(Schema::new(vec![
        Field::new("_offset", DataType::Int64, false),
        Field::new("_timestamp", DataType::Int64, false),
        Field::new("value", DataType::Utf8, true),
    ]));
    let large = "x".repeat(BLOCK_BYTES + 1);
    let batch = RecordBatch::try_new(
        Arc::clone(&schema),
        vec![
            Arc::new(Int64Array::from(vec![5, 6, 7])),
            Arc::new(Int64Array::from(vec![-1, -1, -1])),
            Arc::new(StringArray::from(vec![large.as_str(), large.as_str(), "small"])),
        ],
    )
    .expect("well-formed");
    let mut writer = writer(dir.path(), 0, &schema, ArrowCompression::Zstd);
    writer.append(&batch).expect("append");
    let meta = writer.finish(0).expect("finish");
    let segment = open(dir.path(), &meta).expect("open");
    assert!(blocks(&segment).len() >= 2);
    assert_eq!(read_all(&segment, None).expect("read"), batch);
    segment.verify().expect("undamaged");
}

#[test]
fn a_projection_is_what_arrow_projects_in_any_order() {
    let (dir, meta, all) = sealed(30_000, 7_000, ArrowCompression::Zstd);
    let segment = open(dir.path(), &meta).expect("open");
    let every: Vec<Vec<usize>> = (0..all.num_columns()).map(|column| vec![column]).collect();
    let some = [vec![0, 1], vec![14, 0, 8], vec![5, 13], vec![9, 9], vec![12, 13, 14], vec![3, 5, 7, 9, 11]];
    for projection in every.iter().chain(&some) {
        let read = read_all(&segment, Some(projection)).expect("read");
        assert_eq!(read, all.project(projection).expect("project"), "{projection:?}");
    }
    let none = segment.read_block(0, Some(&[])).expect("read");
    assert_eq!(
        (none.batch.num_rows() as u64, none.bytes_read),
        (blocks(&segment).iter().next().expect("first").rows, 0)
    );
}

#[test]
fn a_projection_reads_bytes_in_proportion() {
    let (dir, meta, _) = sealed(60_000, 60_000, ArrowCompression::None);
    let segment = open(dir.path(), &meta).expect("open");
    let bytes = |projection: Option<&[usize]>| segment.read_block(1, projection).expect("read").bytes_read;
    let rows = blocks(&segment)[1].rows;
    let (all, id) = (bytes(None), bytes(Some(&[USER])));
    // Eight bytes a row, a bit for its validity, and the message.
    assert!(id >= rows * 8 && id < rows * 9 + 8192, "{id} bytes for {rows} integers");
    assert!(id * 8 < all, "{id} of {all}");
    let ipc = segment.read_block_ipc(1, Some(&[USER])).expect("read");
    assert_eq!(ipc.bytes_read, id);
}

#[test]
fn arrow_itself_reads_the_file() {
    let (dir, meta, all) = sealed(30_000, 4_000, ArrowCompression::Zstd);
    let file = std::fs::File::open(dir.path().join(&meta.file)).expect("open");
    let reader = FileReader::try_new(file, None).expect("an Arrow file");
    assert_eq!(reader.custom_metadata()["weir.format.version"], "1");
    assert_eq!(reader.custom_metadata()["weir.partition"], "3");
    let blocks: Vec<RecordBatch> = reader.map(|batch| plain(&batch.expect("read"))).collect();
    assert_eq!(concat_batches(&all.schema(), &blocks).expect("one schema"), all);
}

#[test]
fn a_raw_stream_is_the_projected_block() {
    for compression in [ArrowCompression::Zstd, ArrowCompression::Lz4, ArrowCompression::None] {
        let (dir, meta, all) = sealed(20_000, 3_000, compression);
        let segment = open(dir.path(), &meta).expect("open");
        let user: Vec<usize> = (USER..all.num_columns()).collect();
        for projection in [None, Some(vec![9, 8]), Some(vec![0, 1, 14]), Some(vec![])] {
            let stream = segment.read_block_ipc(0, projection.as_deref()).expect("read");
            let mut reader = StreamReader::try_new(&stream.bytes[..], None).expect("a stream");
            let batch = reader.next().expect("one batch").expect("read");
            assert!(reader.next().is_none());
            let expected = all.project(projection.as_deref().unwrap_or(&user)).expect("project");
            assert_eq!(batch, expected.slice(0, batch.num_rows()));
            assert_eq!(stream.rows, batch.num_rows() as u64);
            assert_eq!(stream.range, blocks(&segment)[0].range);
        }
        let refused = segment.read_block_ipc(0, Some(&[5]));
        assert!(matches!(refused, Err(SegmentError::NotStreamable { .. })));
    }
}

#[test]
fn a_batch_in_memory_becomes_a_stream() {
    let batch = rows(5, 500);
    for compression in [ArrowCompression::Zstd, ArrowCompression::None] {
        let bytes = ipc_stream_with(&batch, compression).expect("encode");
        let back = StreamReader::try_new(&bytes[..], None).expect("a stream").next().expect("one batch").expect("read");
        assert_eq!(back, batch);
    }
}

#[test]
fn styles_may_come_as_a_dictionary_and_return_as_one() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let all = rows(0, 3_000);
    let texts = all.column(5).as_string::<i32>();
    let dictionary: DictionaryArray<UInt16Type> = texts.iter().collect();
    let mut columns = all.columns().to_vec();
    columns[5] = Arc::new(dictionary);
    let schema = with_style_type(&all.schema(), columns[5].data_type());
    let given = RecordBatch::try_new(schema, columns).expect("well-formed");
    let mut writer = writer(dir.path(), 0, &all.schema(), ArrowCompression::Zstd);
    writer.append(&given).expect("append");
    let meta = writer.finish(0).expect("finish");
    let segment = open(dir.path(), &meta).expect("open");
    let read = segment.read_block(0, None).expect("read").batch;
    assert_eq!(read.column(5).data_type(), given.column(5).data_type());
    assert_eq!(read_all(&segment, None).expect("read"), all);
}

#[test]
fn more_styles_than_sixteen_bits_can_number_come_back_as_text() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let schema = Arc::new(Schema::new(vec![
        Field::new("_offset", DataType::Int64, false),
        Field::new("_timestamp", DataType::Int64, false),
        Field::new("_value_style", DataType::Utf8, true),
    ]));
    let count = 70_000_i64;
    let columns: Vec<ArrayRef> = vec![
        Arc::new((0..count).collect::<Int64Array>()),
        Arc::new((0..count).collect::<Int64Array>()),
        Arc::new((0..count).map(|row| Some(format!("s{row}"))).collect::<StringArray>()),
    ];
    let all = RecordBatch::try_new(Arc::clone(&schema), columns).expect("well-formed");
    let mut writer = writer(dir.path(), 0, &schema, ArrowCompression::Zstd);
    writer.append(&all).expect("append");
    let meta = writer.finish(0).expect("finish");
    let segment = open(dir.path(), &meta).expect("open");
    assert_eq!(segment.read_block(0, None).expect("read").batch.column(2).data_type(), &DataType::Utf8);
    assert_eq!(read_all(&segment, None).expect("read"), all);
}

#[test]
fn offsets_and_timestamps_are_found() {
    let (dir, meta, all) = sealed(40_000, 40_000, ArrowCompression::Zstd);
    let segment = open(dir.path(), &meta).expect("open");
    let offsets = all.column(0).as_primitive::<arrow::datatypes::Int64Type>().values();
    let timestamps = all.column(1).as_primitive::<arrow::datatypes::Int64Type>().values();
    for offset in [0, 1, 2, 24_575, 24_576, 30_000, 59_998] {
        let block = &blocks(&segment)[segment.find_block(at(offset)).expect("undamaged").expect("a block")];
        let expected = offsets.iter().find(|found| **found >= offset).expect("a row");
        assert!(block.range.contains(at(*expected)));
    }
    assert_eq!(segment.find_block(at(59_999)).expect("undamaged"), None);
    for (timestamp, from) in
        [(0, 0), (1_500, 0), (2_000, 0), (30_000, 0), (30_000, 45_000), (meta.max_timestamp, 0), (1 << 40, 0)]
    {
        let naive = offsets.iter().zip(timestamps).find(|(offset, found)| **found >= timestamp && **offset >= from);
        let found = segment.offset_for_timestamp(timestamp, at(from)).expect("search");
        assert_eq!(
            found.map(|found| (found.offset.get(), found.timestamp)),
            naive.map(|(offset, found)| (*offset, *found))
        );
    }
}

#[test]
fn statistics_bound_every_block() {
    let (dir, meta, all) = sealed(20_000, 20_000, ArrowCompression::Zstd);
    let segment = open(dir.path(), &meta).expect("open");
    let block = blocks(&segment).iter().next().expect("first");
    let rows = i64::try_from(block.rows).expect("few");
    assert_eq!(block.columns.len(), all.num_columns());
    let id = &block.columns[USER];
    assert_eq!(
        (id.null_count, id.min.clone(), id.max.clone()),
        (0, Some(StatValue::Int(0)), Some(StatValue::Int(rows - 1)))
    );
    let name = &block.columns[USER + 1];
    assert_eq!(name.min, Some(StatValue::Text("name of row 1".to_owned())));
    assert_eq!(name.null_count, all.column(USER + 1).slice(0, block.rows as usize).null_count() as u64);
    assert_eq!(block.columns[USER + 4].max, Some(StatValue::Decimal(i128::from(rows - 1))));
    assert_eq!(block.columns[5].max, None);
}

#[test]
fn rows_of_another_schema_or_out_of_order_are_refused() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let all = rows(0, 10);
    let mut writer = writer(dir.path(), 0, &all.schema(), ArrowCompression::Zstd);
    let fewer = all.project(&[0, 1, 2]).expect("project");
    assert!(matches!(writer.append(&fewer), Err(SegmentError::SchemaMismatch { index: 3, .. })));
    writer.append(&all.slice(5, 5)).expect("append");
    assert!(matches!(writer.append(&all.slice(0, 5)), Err(SegmentError::OffsetsNotRising { previous: 13, found: 0 })));
    writer.cover_to(at(13));
    assert!(matches!(writer.finish(0), Err(SegmentError::OutsideCover { offset: 13, .. })));
    assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0, "nothing is left behind");
}

#[test]
fn a_segment_may_cover_more_than_its_rows_even_when_it_has_none() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let all = rows(10, 20);
    for batch in [Some(all.clone()), None] {
        let mut writer = writer(dir.path(), 3, &all.schema(), ArrowCompression::Zstd);
        if let Some(batch) = &batch {
            writer.append(batch).expect("append");
        }
        writer.cover_to(at(500));
        let meta = writer.finish(0).expect("finish");
        assert_eq!((meta.range.start, meta.range.end), (at(3), at(500)));
        let segment = open(dir.path(), &meta).expect("open");
        segment.verify().expect("undamaged");
        assert_eq!(segment.find_block(at(3)).expect("undamaged"), batch.as_ref().map(|_| 0));
    }
    let nothing = writer(dir.path(), 0, &all.schema(), ArrowCompression::Zstd).finish(0);
    assert!(matches!(nothing, Err(SegmentError::Empty)));
}

#[test]
fn a_file_that_is_not_the_sealed_one_does_not_open() {
    let (dir, meta, _) = sealed(100, 100, ArrowCompression::Zstd);
    let (other_dir, other, _) = sealed(100, 100, ArrowCompression::Zstd);
    std::fs::copy(other_dir.path().join(&other.file), dir.path().join(&meta.file)).expect("copy");
    assert!(open(dir.path(), &meta).expect_err("another topic's").is_corrupt());
}

#[test]
fn a_column_or_block_that_is_not_there_is_named() {
    let (dir, meta, _) = sealed(100, 100, ArrowCompression::Zstd);
    let segment = open(dir.path(), &meta).expect("open");
    assert!(matches!(segment.read_block(0, Some(&[99])), Err(SegmentError::NoSuchColumn { index: 99, count: 15, .. })));
    assert!(matches!(segment.read_block(1, Some(&[0])), Err(SegmentError::NoSuchBlock { index: 1, count: 1, .. })));
}

#[test]
fn a_damaged_buffer_is_named_and_the_other_columns_still_read() {
    let (dir, meta, all) = sealed(1_000, 1_000, ArrowCompression::None);
    let path = dir.path().join(&meta.file);
    let mut bytes = std::fs::read(&path).expect("read");
    let needle = b"name of row 7";
    let position = bytes.windows(needle.len()).position(|window| window == needle).expect("stored as is");
    bytes[position] ^= 4;
    std::fs::write(&path, bytes).expect("write");
    let segment = open(dir.path(), &meta).expect("open");
    let error = segment.read_block(0, Some(&[USER + 1])).expect_err("damaged");
    assert!(
        matches!(&error, SegmentError::Corrupt { block: Some(0), column: Some(column), .. } if column == "name"),
        "{error}"
    );
    assert!(segment.read_block_ipc(0, Some(&[USER + 1])).is_err());
    assert_eq!(read_all(&segment, Some(&[USER])).expect("read"), all.project(&[USER]).expect("project"));
    assert!(segment.verify().is_err());
}

#[test]
fn every_single_byte_is_covered_by_a_checksum() {
    let (dir, meta, _) = sealed(40, 40, ArrowCompression::Zstd);
    let path = dir.path().join(&meta.file);
    let bytes = std::fs::read(&path).expect("read");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
    for (position, byte) in bytes.iter().enumerate() {
        file.write_all_at(&[byte ^ 0x10], position as u64).expect("write");
        let outcome = open(dir.path(), &meta).and_then(|segment| segment.verify());
        assert!(outcome.is_err(), "byte {position} of {}", bytes.len());
        file.write_all_at(&[*byte], position as u64).expect("write");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn flipped_bits_are_found_or_change_nothing(place in 0.0..1.0_f64, bit in 0..8_u8, column in 0..15_usize) {
        let (dir, meta, all) = sealed(300, 300, ArrowCompression::Zstd);
        let path = dir.path().join(&meta.file);
        let mut bytes = std::fs::read(&path).expect("read");
        let position = ((bytes.len() as f64) * place) as usize;
        bytes[position] ^= 1 << bit;
        std::fs::write(&path, &bytes).expect("write");
        if let Ok(segment) = open(dir.path(), &meta) {
            prop_assert!(segment.verify().is_err());
            if let Ok(read) = read_all(&segment, Some(&[column])) {
                prop_assert_eq!(read, all.project(&[column]).expect("project"));
            }
            let _ = segment.offset_for_timestamp(1_200, Offset::ZERO);
        }
    }

    #[test]
    fn a_cut_file_does_not_open_whatever_the_manifest_says(place in 0.0..1.0_f64) {
        let (dir, mut meta, _) = sealed(300, 300, ArrowCompression::Zstd);
        let path = dir.path().join(&meta.file);
        let bytes = std::fs::read(&path).expect("read");
        let cut = &bytes[..((bytes.len() as f64) * place) as usize];
        std::fs::write(&path, cut).expect("write");
        prop_assert!(open(dir.path(), &meta).is_err());
        meta.size_bytes = cut.len() as u64;
        prop_assert!(open(dir.path(), &meta).expect_err("no footer").is_corrupt());
    }
}
