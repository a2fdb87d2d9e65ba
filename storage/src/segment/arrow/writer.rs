//! Writing an `.arrow` segment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, Int32Array, RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef};
use arrow_ipc::writer::{CompressionContext, DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use weir_model::{Offset, OffsetRange};
use weir_table::TableSchema;

use super::super::checksum::{Crc32c, crc32c};
use super::super::file::SegmentFileWriter;
use super::super::{SegmentError, SegmentKind, SegmentMeta, SegmentName, sync_dir};
use super::columns::column_spans;
use super::footer::{BlockEntry, Footer, Place};
use super::message::{BUFFER_CHECKSUMS, BatchLayout, encapsulate, encode_checksums, schema_message};
use super::stats::column_stats;
use super::style::StyleNumbers;
use super::{
    ALIGNMENT, ARROW, ArrowCompression, ArrowSegmentInfo, BLOCK_BYTES, BLOCK_ROWS, END_OF_STREAM, MAGIC,
    METADATA_VERSION, OFFSET, TIMESTAMP, VALUE_STYLE, style_in_file, with_style_type,
};

/// Small batches are joined when there are that many, so that a thousand rows sent one by one are not a thousand arrays
/// per column for long.
const MAX_LOOSE: usize = 256;

/// Writes an `.arrow` segment from rows of the log schema. Batches of any size come in; blocks of [`BLOCK_ROWS`] or
/// [`BLOCK_BYTES`] go out. Nothing is visible under the final name before [`Self::finish`].
pub struct ArrowSegmentWriter {
    dir: PathBuf,
    name: SegmentName,
    file: SegmentFileWriter,
    encoder: BlockEncoder,
    footer: Footer,
    covered_to: Option<Offset>,
    /// The log schema with numbers for styles: what blocks are made of.
    numbered: SchemaRef,
    styles: StyleNumbers,
    pending: Pending,
    last_offset: Option<i64>,
}

/// Rows that wait for their block to fill.
#[derive(Default)]
struct Pending {
    joined: Vec<RecordBatch>,
    loose: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

/// Arrow's encoder and its settings.
struct BlockEncoder {
    options: IpcWriteOptions,
    context: CompressionContext,
}

impl ArrowSegmentWriter {
    /// Starts the segment of this name, whose base offset is at or before its first row; an offset alone names one of
    /// generation 0. `dir` exists and belongs to the partition.
    ///
    /// # Errors
    /// [`SegmentError::UnsupportedType`] for a column type that segments do not store, [`SegmentError::Io`].
    pub fn create(
        dir: &Path,
        name: impl Into<SegmentName>,
        info: ArrowSegmentInfo,
        schema: &TableSchema,
        compression: ArrowCompression,
    ) -> Result<Self, SegmentError> {
        Self::with_log_schema(dir, name, info, &schema.log_schema(), schema.to_sql(), compression)
    }

    /// As [`Self::create`], for rows of `log_schema`.
    pub(super) fn with_log_schema(
        dir: &Path,
        name: impl Into<SegmentName>,
        info: ArrowSegmentInfo,
        log_schema: &Schema,
        schema_sql: String,
        compression: ArrowCompression,
    ) -> Result<Self, SegmentError> {
        let name = name.into();
        let numbered = with_style_type(log_schema, &DataType::Int32);
        column_spans(&numbered)?;
        let schema = with_style_type(log_schema, &style_in_file());
        let options = IpcWriteOptions::try_new(usize::from(ALIGNMENT), false, METADATA_VERSION)?
            .try_with_compression(compression.codec())?;
        let mut file = SegmentFileWriter::create(dir, &name.file(ARROW))?;
        let mut head = MAGIC.to_vec();
        head.resize(usize::from(ALIGNMENT), 0);
        head.extend(encapsulate(&schema_message(&schema, &options)));
        file.write_all(&head)?;
        let footer = Footer {
            info,
            schema_sql,
            schema,
            range: OffsetRange::new(name.base_offset, name.base_offset),
            rows: 0,
            min_timestamp: i64::MAX,
            max_timestamp: i64::MIN,
            head_crc32c: crc32c(&head),
            dictionary: None,
            blocks: Vec::new(),
        };
        Ok(Self {
            dir: dir.to_owned(),
            name,
            file,
            encoder: BlockEncoder { options, context: CompressionContext::default() },
            footer,
            covered_to: None,
            numbered,
            styles: StyleNumbers::default(),
            pending: Pending::default(),
            last_offset: None,
        })
    }

    /// Says that the segment stands for the log up to `end`, past its last record: what lies between was aborted or
    /// compacted away.
    pub fn cover_to(&mut self, end: Offset) {
        self.covered_to = Some(end);
    }

    /// Bytes written so far; the block that is filling is not counted.
    pub fn size_bytes(&self) -> u64 {
        self.file.position()
    }

    /// Appends rows of the log schema, offsets rising. `_value_style` may be text or any dictionary of texts.
    ///
    /// Encodes and writes a block each time one is full; a few milliseconds of CPU each.
    ///
    /// # Errors
    /// [`SegmentError::SchemaMismatch`], [`SegmentError::OffsetsNotRising`] (nothing was taken);
    /// [`SegmentError::Io`], [`SegmentError::Encode`] (the segment is of no use any more).
    pub fn append(&mut self, batch: &RecordBatch) -> Result<(), SegmentError> {
        self.check_schema(batch)?;
        self.check_offsets(batch)?;
        let mut rest = self.number_styles(batch)?;
        while rest.num_rows() > 0 {
            let row_bytes = (bytes_of(&rest)? / rest.num_rows()).max(1);
            let room = BLOCK_BYTES.saturating_sub(self.pending.bytes) / row_bytes;
            // A row that is a block by itself still goes somewhere.
            let least = usize::from(self.pending.rows == 0);
            let take = rest.num_rows().min(BLOCK_ROWS - self.pending.rows).min(room.max(least));
            self.pending.push(rest.slice(0, take), take * row_bytes)?;
            rest = rest.slice(take, rest.num_rows() - take);
            if rest.num_rows() > 0 || self.pending.rows == BLOCK_ROWS {
                self.write_block()?;
            }
        }
        Ok(())
    }

    fn check_schema(&self, batch: &RecordBatch) -> Result<(), SegmentError> {
        let schema = batch.schema();
        let count = self.numbered.fields().len().max(schema.fields().len());
        for index in 0..count {
            let (expected, found) = (self.numbered.fields().get(index), schema.fields().get(index));
            let fits = match (expected, found) {
                (Some(expected), Some(found)) => {
                    expected.name() == found.name()
                        && (expected.data_type() == found.data_type() || found.name() == VALUE_STYLE)
                }
                _ => false,
            };
            if !fits {
                let describe = |field: Option<&Arc<Field>>| {
                    field.map_or("no column".to_owned(), |field| format!("{} {}", field.name(), field.data_type()))
                };
                return Err(SegmentError::SchemaMismatch {
                    index,
                    expected: describe(expected),
                    found: describe(found),
                });
            }
        }
        Ok(())
    }

    fn check_offsets(&mut self, batch: &RecordBatch) -> Result<(), SegmentError> {
        let mut previous = self.last_offset.unwrap_or(self.footer.range.start.get() - 1);
        for &offset in log_column(batch, OFFSET)? {
            if offset <= previous {
                return Err(SegmentError::OffsetsNotRising { previous, found: offset });
            }
            previous = offset;
        }
        if batch.num_rows() > 0 {
            self.last_offset = Some(previous);
        }
        Ok(())
    }

    fn number_styles(&mut self, batch: &RecordBatch) -> Result<RecordBatch, SegmentError> {
        let schema = batch.schema();
        let columns =
            batch.columns().iter().zip(schema.fields()).map(|(column, field)| -> Result<ArrayRef, SegmentError> {
                if field.name() == VALUE_STYLE {
                    return Ok(Arc::new(self.styles.number(column)?));
                }
                Ok(Arc::clone(column))
            });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.numbered), columns, &options)?)
    }

    fn write_block(&mut self) -> Result<(), SegmentError> {
        let Some(block) = self.pending.take(&self.numbered)? else { return Ok(()) };
        let (message, body) = self.encoder.encode(&block)?;
        let place = self.write_message(&message, &body)?;
        let offsets = log_column(&block, OFFSET)?;
        let timestamps = log_column(&block, TIMESTAMP)?;
        let least = timestamps.iter().copied().min().expect("a block has rows");
        let largest = timestamps.iter().copied().max().expect("a block has rows");
        let columns = self
            .numbered
            .fields()
            .iter()
            .zip(block.columns())
            .map(|(field, column)| numbered_stats(field, column))
            .collect();
        let entry = BlockEntry {
            first_offset: offsets[0],
            last_offset: offsets[offsets.len() - 1],
            rows: block.num_rows() as u64,
            min_timestamp: least,
            max_timestamp: largest,
            message_crc32c: crc32c(&message),
            columns,
        };
        self.footer.rows += entry.rows;
        self.footer.min_timestamp = self.footer.min_timestamp.min(least);
        self.footer.max_timestamp = self.footer.max_timestamp.max(largest);
        self.footer.blocks.push((place, entry));
        Ok(())
    }

    fn write_message(&mut self, message: &[u8], body: &[u8]) -> Result<Place, SegmentError> {
        let position = self.file.position();
        self.file.write_all(message)?;
        self.file.write_all(body)?;
        self.file.pad_to(u64::from(ALIGNMENT))?;
        let place = Place { position, message_length: message.len() as u64, body_length: body.len() as u64 };
        assert_eq!(place.end(), self.file.position(), "Arrow pads bodies to the alignment it was told");
        Ok(place)
    }

    fn write_dictionary(&mut self) -> Result<(), SegmentError> {
        let Some(field) = self.footer.schema.fields().iter().find(|field| field.name() == VALUE_STYLE) else {
            return Ok(());
        };
        let schema = Arc::new(Schema::new(vec![Arc::clone(field)]));
        // Arrow's encoder emits a dictionary in front of the batch that uses it; the batch itself is not wanted here.
        let mut tracker = DictionaryTracker::new(true);
        let generator = IpcDataGenerator::default();
        generator.schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &self.encoder.options);
        let none = Int32Array::from(Vec::<Option<i32>>::new());
        let column = DictionaryArray::<Int32Type>::try_new(none, Arc::new(self.styles.texts()))?;
        let batch = RecordBatch::try_new(schema, vec![Arc::new(column)])?;
        let (dictionaries, _) =
            generator.encode(&batch, &mut tracker, &self.encoder.options, &mut self.encoder.context)?;
        for dictionary in dictionaries {
            let message = encapsulate(&dictionary.ipc_message);
            let mut checksum = Crc32c::new();
            checksum.update(&message);
            checksum.update(&dictionary.arrow_data);
            let place = self.write_message(&message, &dictionary.arrow_data)?;
            self.footer.dictionary = Some((place, checksum.value()));
        }
        Ok(())
    }

    /// Writes what is left, syncs the segment and gives it its name. It is durable when this returns.
    ///
    /// # Errors
    /// [`SegmentError::Empty`], [`SegmentError::OutsideCover`], [`SegmentError::Io`], [`SegmentError::Encode`]; the
    /// temporary file is then removed.
    pub fn finish(mut self, created_ms: i64) -> Result<SegmentMeta, SegmentError> {
        self.write_block()?;
        self.footer.range.end = self.end()?;
        if self.footer.rows == 0 {
            (self.footer.min_timestamp, self.footer.max_timestamp) = (-1, -1);
        }
        self.write_dictionary()?;
        let (footer, digest) = self.footer.encode();
        self.file.write_all(&END_OF_STREAM)?;
        self.file.write_all(&footer)?;
        self.file.write_all(&i32::try_from(footer.len()).expect("a footer is under 2 GiB").to_le_bytes())?;
        self.file.write_all(MAGIC)?;
        let name = self.name.file(ARROW);
        let finished = self.file.finish(&self.dir.join(&name))?;
        sync_dir(&self.dir)?;
        Ok(SegmentMeta {
            kind: SegmentKind::Arrow,
            file: name,
            generation: self.name.generation,
            range: self.footer.range,
            size_bytes: finished.size_bytes,
            min_timestamp: self.footer.min_timestamp,
            max_timestamp: self.footer.max_timestamp,
            rows: self.footer.rows,
            created_ms,
            schema_id: self.footer.info.schema_id,
            digest,
            index_digest: 0,
        })
    }

    fn end(&self) -> Result<Offset, SegmentError> {
        let start = self.footer.range.start;
        let written =
            self.last_offset.map_or(start, |last| Offset::new(last).expect("offsets rise from the base").next());
        let end = self.covered_to.unwrap_or(written);
        if end < written {
            let covered = OffsetRange { start, end };
            return Err(SegmentError::OutsideCover { covered, offset: self.last_offset.unwrap_or(start.get()) });
        }
        if end <= start { Err(SegmentError::Empty) } else { Ok(end) }
    }
}

impl std::fmt::Debug for ArrowSegmentWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrowSegmentWriter")
            .field("dir", &self.dir)
            .field("info", &self.footer.info)
            .field("blocks", &self.footer.blocks.len())
            .field("last_offset", &self.last_offset)
            .finish_non_exhaustive()
    }
}

impl Pending {
    fn push(&mut self, batch: RecordBatch, bytes: usize) -> Result<(), SegmentError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.rows += batch.num_rows();
        self.bytes += bytes;
        self.loose.push(batch);
        if self.loose.len() == MAX_LOOSE {
            self.joined.push(concat_batches(&self.loose[0].schema(), &self.loose)?);
            self.loose.clear();
        }
        Ok(())
    }

    /// All of it as one batch.
    fn take(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>, SegmentError> {
        if self.rows == 0 {
            return Ok(None);
        }
        let mut all = std::mem::take(self);
        all.joined.append(&mut all.loose);
        match all.joined.len() {
            1 => Ok(all.joined.pop()),
            _ => Ok(Some(concat_batches(schema, &all.joined)?)),
        }
    }
}

impl BlockEncoder {
    /// The encapsulated message, with the buffers' checksums in it, and the body.
    fn encode(&mut self, block: &RecordBatch) -> Result<(Vec<u8>, Vec<u8>), SegmentError> {
        let mut tracker = DictionaryTracker::new(true);
        let (_, encoded) = IpcDataGenerator::default().encode(block, &mut tracker, &self.options, &mut self.context)?;
        let (layout, _) = BatchLayout::parse(&encoded.ipc_message).expect("Arrow reads its own messages");
        let body = encoded.arrow_data;
        let checksums: Vec<u32> = (0..layout.buffers.len())
            .map(|index| {
                let (from, to) = layout.extent(index);
                let at = |position| usize::try_from(position).expect("the body is in memory");
                crc32c(&body[at(from)..at(to)])
            })
            .collect();
        let message = layout.encode(&[(BUFFER_CHECKSUMS, &encode_checksums(&checksums))]);
        Ok((encapsulate(&message), body))
    }
}

/// Numbers of styles say nothing about the styles.
fn numbered_stats(field: &Field, column: &ArrayRef) -> super::ColumnStats {
    let stats = column_stats(field, column);
    if field.name() == VALUE_STYLE {
        return super::ColumnStats { min: None, max: None, ..stats };
    }
    stats
}

/// `_offset` or `_timestamp` of a batch: Int64 without nulls.
fn log_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a [i64], SegmentError> {
    let mismatch = |found: String| {
        let index = if name == OFFSET { 0 } else { 1 };
        SegmentError::SchemaMismatch { index, expected: format!("{name} Int64 without nulls"), found }
    };
    let column = batch.column_by_name(name).ok_or_else(|| mismatch("no column".to_owned()))?;
    match column.as_primitive_opt::<Int64Type>() {
        Some(column) if column.null_count() == 0 => Ok(column.values()),
        _ => Err(mismatch(format!("{} with {} nulls", column.data_type(), column.null_count()))),
    }
}

/// Bytes the rows take in memory, without what their arrays share with other slices.
fn bytes_of(batch: &RecordBatch) -> Result<usize, SegmentError> {
    batch.columns().iter().try_fold(0, |bytes, column| Ok(bytes + array_bytes(column.as_ref())?))
}

fn array_bytes(array: &dyn Array) -> Result<usize, SegmentError> {
    // Arrow counts the whole child of a sliced list, which would make a hundred rows of a large batch look like all of it.
    let within = |offsets: &[i32], values: &dyn Array| {
        let at = |offset: Option<&i32>| {
            offset.map_or(0, |offset| usize::try_from(*offset).expect("offsets are not negative"))
        };
        let (from, to) = (at(offsets.first()), at(offsets.last()));
        Ok(size_of_val(offsets) + array_bytes(values.slice(from, to - from).as_ref())?)
    };
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            within(list.value_offsets(), list.values().as_ref())
        }
        DataType::Map(_, _) => {
            let map = array.as_map();
            within(map.value_offsets(), map.entries())
        }
        DataType::Struct(_) => {
            array.as_struct().columns().iter().try_fold(0, |bytes, column| Ok(bytes + array_bytes(column.as_ref())?))
        }
        _ => Ok(array.to_data().get_slice_memory_size()?),
    }
}
