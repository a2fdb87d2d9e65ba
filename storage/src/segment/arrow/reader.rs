//! Reading an `.arrow` segment.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow_ipc::reader::{read_footer_length, read_record_batch};
use arrow_ipc::root_as_message;
use arrow_ipc::writer::IpcWriteOptions;
use bytes::Bytes;
use parking_lot::Mutex;
use weir_model::Offset;

use super::super::checksum::crc32c;
use super::super::file::SealedFile;
use super::super::{SegmentError, SegmentMeta, TimestampMatch};
use super::columns::{ColumnSpan, column_spans};
use super::footer::{FORMAT_VERSION, Footer, FooterError, Place};
use super::message::{encapsulate, flatbuffer_of, schema_message};
use super::plan::{BlockRequest, ReadPlan};
use super::style::{style_as_read, styles_of};
use super::{
    ArrowSegmentInfo, ColumnStats, END_OF_STREAM, IpcStreamBytes, MAGIC, METADATA_VERSION, OFFSET, TIMESTAMP, VALUE_STYLE,
    is_system, with_style_type,
};

/// Footer length and magic.
const TRAILER_BYTES: u64 = 10;
/// First read of the end of the file; holds the whole footer of a segment of some 50 blocks.
const TAIL_BYTES: u64 = 64 << 10;

/// One block, as its directory entry tells it.
#[derive(Clone, Copy, Debug)]
pub struct BlockInfo<'a> {
    /// Offset of the first row.
    pub first_offset: Offset,
    /// Offset of the last row.
    pub last_offset: Offset,
    /// Number of rows.
    pub rows: u64,
    /// Smallest timestamp.
    pub min_timestamp: i64,
    /// Largest timestamp.
    pub max_timestamp: i64,
    /// Bytes in the file, all columns.
    pub size_bytes: u64,
    /// Statistics, in the order of the log schema.
    pub columns: &'a [ColumnStats],
}

/// Rows of a block, and what they cost.
#[derive(Clone, Debug)]
pub struct BlockRead {
    /// The columns asked for, in the order asked for. `_value_style` is a dictionary with `UInt16` keys, or text when a
    /// segment has more than 65,536 styles.
    pub batch: RecordBatch,
    /// Bytes taken from the file.
    pub bytes_read: u64,
}

/// A sealed `.arrow` segment: its footer in memory, its blocks on disk. Cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct ArrowSegment {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: SealedFile,
    meta: SegmentMeta,
    footer: Footer,
    /// `_value_style` as numbers: what blocks decode to.
    numbered: SchemaRef,
    spans: Vec<ColumnSpan>,
    names: Vec<String>,
    styles: Mutex<Option<StringArray>>,
}

impl ArrowSegment {
    /// Opens the segment and reads its footer, nothing else.
    ///
    /// # Errors
    /// [`SegmentError::Io`]; [`SegmentError::Corrupt`] when size or footer are not what was sealed;
    /// [`SegmentError::UnsupportedVersion`].
    pub fn open(dir: &Path, meta: &SegmentMeta) -> Result<Self, SegmentError> {
        let file = SealedFile::open(&dir.join(&meta.file), meta.size_bytes)?;
        let footer = read_footer(&file, meta)?;
        let numbered = with_style_type(&footer.schema, &DataType::Int32);
        let spans = column_spans(&numbered)?;
        let names = numbered.fields().iter().map(|field| field.name().clone()).collect();
        let shared = Shared { file, meta: meta.clone(), footer, numbered, spans, names, styles: Mutex::new(None) };
        shared.check_directory()?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What the manifest keeps of it.
    pub fn meta(&self) -> &SegmentMeta {
        &self.shared.meta
    }

    /// What it says about itself.
    pub fn info(&self) -> ArrowSegmentInfo {
        self.shared.footer.info
    }

    /// The table's columns as declared when it was written.
    pub fn schema_sql(&self) -> &str {
        &self.shared.footer.schema_sql
    }

    /// The columns by position: the log's own, then the user's. `_value_style` is shown as in the file.
    pub fn schema(&self) -> &SchemaRef {
        &self.shared.footer.schema
    }

    /// Number of blocks.
    pub fn block_count(&self) -> usize {
        self.shared.footer.blocks.len()
    }

    /// The directory, in offset order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = BlockInfo<'_>> {
        self.shared.footer.blocks.iter().map(|(place, entry)| BlockInfo {
            first_offset: at_offset(entry.first_offset),
            last_offset: at_offset(entry.last_offset),
            rows: entry.rows,
            min_timestamp: entry.min_timestamp,
            max_timestamp: entry.max_timestamp,
            size_bytes: place.message_length + place.body_length,
            columns: &entry.columns,
        })
    }

    /// The first block with a row at or above `offset`; `None` when there is no such row.
    pub fn find_block(&self, offset: Offset) -> Option<usize> {
        let blocks = &self.shared.footer.blocks;
        let index = blocks.partition_point(|(_, entry)| entry.last_offset < offset.get());
        (index < blocks.len()).then_some(index)
    }

    /// The columns `projection` of block `index`, all when `None`, decoded. Positions are those of [`Self::schema`]; any
    /// order, repeats allowed; an empty projection answers the number of rows and reads nothing.
    ///
    /// Reads the block's message and the buffers of these columns, adjacent ones at once, and checks their CRC-32C.
    ///
    /// # Errors
    /// [`SegmentError::NoSuchBlock`], [`SegmentError::NoSuchColumn`], [`SegmentError::Corrupt`], [`SegmentError::Io`].
    pub fn read_block(&self, index: usize, projection: Option<&[usize]>) -> Result<BlockRead, SegmentError> {
        let shared = &*self.shared;
        let all: Vec<usize>;
        let projection = match projection {
            Some(projection) => projection,
            None => {
                all = (0..shared.names.len()).collect();
                &all
            }
        };
        let schema = shared.project(projection)?;
        if projection.is_empty() {
            let rows = usize::try_from(shared.block(index)?.1.rows).expect("blocks are small");
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(schema, vec![], &options)?;
            return Ok(BlockRead { batch, bytes_read: 0 });
        }
        let plan = shared.plan(index, projection)?;
        let mut body = MutableBuffer::from_len_zeroed(plan.body_bytes());
        plan.fill(&mut body)?;
        let message = plan.layout.encode(&[]);
        let batch = root_as_message(&message)
            .ok()
            .and_then(|message| message.header_as_record_batch())
            .expect("a message just made is a record batch");
        let batch = read_record_batch(&body.into(), batch, schema, &HashMap::new(), None, &METADATA_VERSION)
            .map_err(|error| plan.undecodable(error))?;
        let (batch, style_bytes) = shared.resolve_styles(batch)?;
        Ok(BlockRead { batch, bytes_read: plan.bytes_read() + style_bytes })
    }

    /// The columns `projection` of block `index` as an Arrow IPC stream, the buffers copied as they are stored: no
    /// decompression. `None` gives the user's columns; `_offset`, `_timestamp` and others can be asked for by position.
    /// CRCs are checked.
    ///
    /// # Errors
    /// As [`Self::read_block`], and [`SegmentError::NotStreamable`] for `_value_style`.
    pub fn read_block_ipc(&self, index: usize, projection: Option<&[usize]>) -> Result<IpcStreamBytes, SegmentError> {
        let shared = &*self.shared;
        let user: Vec<usize>;
        let projection = match projection {
            Some(projection) => projection,
            None => {
                user = shared.user_columns();
                &user
            }
        };
        let schema = shared.project(projection)?;
        if schema.fields().iter().any(|field| field.name() == VALUE_STYLE) {
            return Err(SegmentError::NotStreamable { column: VALUE_STYLE.to_owned() });
        }
        let plan = shared.plan(index, projection)?;
        let mut bytes = encapsulate(&schema_message(&schema, &IpcWriteOptions::default()));
        bytes.extend(encapsulate(&plan.layout.encode(&[])));
        let body_from = bytes.len();
        let body_to = body_from + plan.body_bytes();
        let mut stream = vec![0; body_to + END_OF_STREAM.len()];
        stream[..body_from].copy_from_slice(&bytes);
        plan.fill(&mut stream[body_from..body_to])?;
        stream[body_to..].copy_from_slice(&END_OF_STREAM);
        let (_, entry) = shared.block(index)?;
        Ok(IpcStreamBytes {
            bytes: Bytes::from(stream),
            rows: entry.rows,
            first_offset: at_offset(entry.first_offset),
            last_offset: at_offset(entry.last_offset),
            bytes_read: plan.bytes_read(),
        })
    }

    /// The first row at or above `from` with a timestamp of at least `timestamp`, in offset order (S-60). Reads two columns
    /// of the blocks whose statistics allow one.
    ///
    /// # Errors
    /// As [`Self::read_block`].
    pub fn offset_for_timestamp(&self, timestamp: i64, from: Offset) -> Result<Option<TimestampMatch>, SegmentError> {
        let shared = &*self.shared;
        let projection = [shared.position_of(OFFSET)?, shared.position_of(TIMESTAMP)?];
        let first = self.find_block(from).unwrap_or(self.block_count());
        for (index, (_, entry)) in shared.footer.blocks.iter().enumerate().skip(first) {
            if entry.max_timestamp < timestamp {
                continue;
            }
            let batch = self.read_block(index, Some(&projection))?.batch;
            let column = |at: usize| {
                batch.column(at).as_primitive_opt::<Int64Type>().ok_or_else(|| {
                    SegmentError::corrupt_block(&shared.file.path, index, Some(&shared.names[projection[at]]), "it is not Int64")
                })
            };
            let rows = column(0)?.values().iter().zip(column(1)?.values());
            for (&offset, &found) in rows {
                if found >= timestamp && offset >= from.get() {
                    return Ok(Some(TimestampMatch { offset: at_offset(offset), timestamp: found, leader_epoch: None }));
                }
            }
        }
        Ok(None)
    }

    /// Reads everything and compares every checksum; no byte of the file is left out.
    ///
    /// # Errors
    /// [`SegmentError::Corrupt`] names the first damage, [`SegmentError::Io`].
    pub fn verify(&self) -> Result<(), SegmentError> {
        let shared = &*self.shared;
        let path = &shared.file.path;
        let mut position = shared.first_place().map_or(shared.end_of_messages()?, |place| place.position);
        if crc32c(&shared.file.read(0, position)?) != shared.footer.head_crc32c {
            return Err(SegmentError::corrupt(path, "magic and schema message do not have the CRC-32C that the footer says"));
        }
        let all: Vec<usize> = (0..shared.names.len()).collect();
        for (index, (place, entry)) in shared.footer.blocks.iter().enumerate() {
            let plan = shared.plan(index, &all)?;
            let rows = plan.layout.rows;
            if place.position != position || u64::try_from(rows) != Ok(entry.rows) {
                return Err(SegmentError::corrupt_block(path, index, None, "its place or size is not what the directory says"));
            }
            plan.fill(&mut vec![0; plan.body_bytes()])?;
            position = place.end();
        }
        if let Some((place, _)) = shared.footer.dictionary {
            shared.load_styles()?;
            position = place.end();
        }
        if position != shared.end_of_messages()? || shared.file.read(position, 8)? != END_OF_STREAM {
            return Err(SegmentError::corrupt(path, format!("no end of stream at byte {position}, where the last message ends")));
        }
        Ok(())
    }
}

impl Shared {
    fn block(&self, index: usize) -> Result<&(Place, super::footer::BlockEntry), SegmentError> {
        let blocks = &self.footer.blocks;
        blocks.get(index).ok_or_else(|| SegmentError::NoSuchBlock {
            file: self.file.path.to_path_buf(),
            index,
            count: blocks.len(),
        })
    }

    fn plan(&self, index: usize, projection: &[usize]) -> Result<ReadPlan<'_>, SegmentError> {
        let (place, entry) = self.block(index)?;
        let request = BlockRequest {
            file: &self.file,
            index,
            place: *place,
            message_crc32c: entry.message_crc32c,
            spans: &self.spans,
            names: &self.names,
        };
        ReadPlan::new(request, projection)
    }

    /// The schema of some columns, styles as numbers. Checks the positions.
    fn project(&self, projection: &[usize]) -> Result<SchemaRef, SegmentError> {
        let fields = self.numbered.fields();
        let column = |&index: &usize| {
            fields.get(index).cloned().ok_or_else(|| SegmentError::NoSuchColumn {
                file: self.file.path.to_path_buf(),
                index,
                count: fields.len(),
            })
        };
        let fields = projection.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        Ok(Arc::new(Schema::new(fields)))
    }

    fn user_columns(&self) -> Vec<usize> {
        self.numbered.fields().iter().enumerate().filter(|(_, field)| !is_system(field)).map(|(index, _)| index).collect()
    }

    fn position_of(&self, name: &str) -> Result<usize, SegmentError> {
        let position = self.names.iter().position(|column| column == name);
        position.ok_or_else(|| SegmentError::corrupt(&self.file.path, format!("it has no column {name}")))
    }

    /// Offsets of the directory must rise inside the range, or lookups would go astray.
    fn check_directory(&self) -> Result<(), SegmentError> {
        let mut least = self.footer.range.start.get();
        for (index, (_, entry)) in self.footer.blocks.iter().enumerate() {
            if entry.first_offset < least || entry.last_offset < entry.first_offset || entry.last_offset >= self.footer.range.end.get()
            {
                return Err(SegmentError::corrupt_block(
                    &self.file.path,
                    index,
                    None,
                    format!("offsets {}..={} are out of order", entry.first_offset, entry.last_offset),
                ));
            }
            least = entry.last_offset + 1;
        }
        Ok(())
    }

    fn first_place(&self) -> Option<Place> {
        let first = self.footer.blocks.first().map(|(place, _)| *place);
        first.or(self.footer.dictionary.map(|(place, _)| place))
    }

    /// Where the marker stands that ends the messages: just before the footer.
    fn end_of_messages(&self) -> Result<u64, SegmentError> {
        let trailer = read_trailer(&self.file)?;
        let after = TRAILER_BYTES + trailer + END_OF_STREAM.len() as u64;
        self.file.size_bytes.checked_sub(after).ok_or_else(|| SegmentError::corrupt(&self.file.path, "the footer is too long"))
    }

    /// Puts texts in the place of style numbers. Answers the bytes read for that: the dictionary is read once.
    fn resolve_styles(&self, batch: RecordBatch) -> Result<(RecordBatch, u64), SegmentError> {
        let numbered = batch.schema();
        if numbered.fields().iter().all(|field| field.name() != VALUE_STYLE) {
            return Ok((batch, 0));
        }
        let (texts, bytes_read) = self.styles()?;
        let data_type = style_as_read(texts.len());
        let schema = with_style_type(&numbered, &data_type);
        let columns = batch.columns().iter().zip(numbered.fields()).map(|(column, field)| {
            if field.name() == VALUE_STYLE { styles_of(column, &texts) } else { Ok(Arc::clone(column)) }
        });
        let styled = columns.collect::<Result<Vec<_>, _>>().and_then(|columns| RecordBatch::try_new(schema, columns));
        let styled = styled.map_err(|error| SegmentError::corrupt(&self.file.path, format!("{VALUE_STYLE}: {error}")))?;
        Ok((styled, bytes_read))
    }

    fn styles(&self) -> Result<(StringArray, u64), SegmentError> {
        let mut slot = self.styles.lock();
        if let Some(texts) = &*slot {
            return Ok((texts.clone(), 0));
        }
        let (texts, bytes_read) = self.load_styles()?;
        *slot = Some(texts.clone());
        Ok((texts, bytes_read))
    }

    /// Reads and checks the dictionary.
    fn load_styles(&self) -> Result<(StringArray, u64), SegmentError> {
        let damage = |what: String| SegmentError::corrupt(&self.file.path, format!("dictionary of {VALUE_STYLE}: {what}"));
        let (place, checksum) = self.footer.dictionary.ok_or_else(|| damage("there is none".to_owned()))?;
        let length = place.end() - place.position;
        let bytes = self.file.read(place.position, length)?;
        let computed = crc32c(&bytes);
        if computed != checksum {
            return Err(damage(format!("its CRC-32C is {computed:#010x}, the footer says {checksum:#010x}")));
        }
        let bytes = Buffer::from_vec(bytes);
        let message_length = usize::try_from(place.message_length).expect("64-bit address space");
        let message = flatbuffer_of(&bytes[..message_length]).map_err(damage)?;
        let message = root_as_message(message).map_err(|error| damage(error.to_string()))?;
        let batch = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let batch = batch.ok_or_else(|| damage("its message is of another kind".to_owned()))?;
        let schema = Arc::new(Schema::new(vec![Field::new(VALUE_STYLE, DataType::Utf8, true)]));
        let body = bytes.slice(message_length);
        let texts = read_record_batch(&body, batch, schema, &HashMap::new(), None, &METADATA_VERSION)
            .map_err(|error| damage(error.to_string()))?;
        Ok((texts.column(0).as_string::<i32>().clone(), length))
    }
}

/// Length of the footer, from the last ten bytes.
fn read_trailer(file: &SealedFile) -> Result<u64, SegmentError> {
    let position = file.size_bytes.checked_sub(TRAILER_BYTES);
    let position = position.ok_or_else(|| SegmentError::corrupt(&file.path, "it is too short for an Arrow file"))?;
    trailer_of(file, &file.read(position, TRAILER_BYTES)?)
}

fn trailer_of(file: &SealedFile, tail: &[u8]) -> Result<u64, SegmentError> {
    let trailer = tail.last_chunk::<10>().ok_or_else(|| SegmentError::corrupt(&file.path, "it is too short for an Arrow file"))?;
    let length = read_footer_length(*trailer).map_err(|error| SegmentError::corrupt(&file.path, error.to_string()))?;
    Ok(length as u64)
}

fn read_footer(file: &SealedFile, meta: &SegmentMeta) -> Result<Footer, SegmentError> {
    let tail_bytes = TAIL_BYTES.min(file.size_bytes);
    let mut tail = file.read(file.size_bytes - tail_bytes, tail_bytes)?;
    let footer_bytes = trailer_of(file, &tail)?;
    let end_bytes = footer_bytes + TRAILER_BYTES;
    if end_bytes + MAGIC.len() as u64 > file.size_bytes {
        return Err(SegmentError::corrupt(&file.path, format!("a footer of {footer_bytes} bytes does not fit into the file")));
    }
    if end_bytes > tail_bytes {
        tail = file.read(file.size_bytes - end_bytes, end_bytes)?;
    }
    let in_tail = |bytes: u64| tail.len() - usize::try_from(bytes).expect("the tail is in memory");
    let footer = &tail[in_tail(end_bytes)..in_tail(TRAILER_BYTES)];
    let (footer, digest) = Footer::decode(footer, file.size_bytes).map_err(|error| match error {
        FooterError::Damaged(what) => SegmentError::corrupt(&file.path, what),
        FooterError::Version(found) => {
            SegmentError::UnsupportedVersion { file: file.path.to_path_buf(), found, supported: FORMAT_VERSION }
        }
    })?;
    if digest != meta.digest || footer.range != meta.range || footer.rows != meta.rows {
        return Err(SegmentError::corrupt(
            &file.path,
            format!(
                "it holds {} rows of {}..{} under footer {digest:#010x}; the manifest says {} rows of {}..{} under {:#010x}",
                footer.rows,
                footer.range.start,
                footer.range.end,
                meta.rows,
                meta.range.start,
                meta.range.end,
                meta.digest
            ),
        ));
    }
    Ok(footer)
}

fn at_offset(offset: i64) -> Offset {
    Offset::new(offset).expect("the directory was checked to rise from an offset")
}
