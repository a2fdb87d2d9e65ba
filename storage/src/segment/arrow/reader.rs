//! Reading an `.arrow` segment.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::MutableBuffer;
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::root_as_message;
use arrow_ipc::writer::IpcWriteOptions;
use bytes::Bytes;
use weir_model::{Offset, OffsetRange};

use super::super::checksum::crc32c;
use super::super::file::SealedFile;
use super::super::{SegmentError, SegmentMeta, TimestampMatch};
use super::directory::Directory;
use super::message::{encapsulate, schema_message};
use super::{
    ArrowSegmentInfo, ColumnStats, END_OF_STREAM, IpcStreamBytes, METADATA_VERSION, OFFSET, TIMESTAMP, VALUE_STYLE,
};

/// One block, as its directory entry tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockInfo {
    /// From the offset of the first row to just after that of the last.
    pub range: OffsetRange,
    /// Number of rows.
    pub rows: u64,
    /// Smallest timestamp.
    pub min_timestamp: i64,
    /// Largest timestamp.
    pub max_timestamp: i64,
    /// Bytes in the file, all columns.
    pub size_bytes: u64,
    /// Statistics, in the order of the log schema.
    pub columns: Vec<ColumnStats>,
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

/// A sealed `.arrow` segment. Cheap to clone, usable from any thread; its footer is read at the first use and kept.
#[derive(Clone, Debug)]
pub struct ArrowSegment {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: SealedFile,
    meta: SegmentMeta,
    directory: OnceLock<Directory>,
}

impl ArrowSegment {
    /// Opens the segment and checks its size. Reads nothing, so that a broker with a thousand segments starts at once.
    ///
    /// # Errors
    /// [`SegmentError::Io`], or [`SegmentError::Corrupt`] when the size is not the sealed one.
    pub fn open(dir: &Path, meta: &SegmentMeta) -> Result<Self, SegmentError> {
        let file = SealedFile::open(&dir.join(&meta.file), meta.size_bytes)?;
        Ok(Self { shared: Arc::new(Shared { file, meta: meta.clone(), directory: OnceLock::new() }) })
    }

    /// What the manifest keeps of it.
    pub fn meta(&self) -> &SegmentMeta {
        &self.shared.meta
    }

    /// The footer. Two threads that come first may both read it; one result is kept.
    fn directory(&self) -> Result<&Directory, SegmentError> {
        let shared = &*self.shared;
        if let Some(directory) = shared.directory.get() {
            return Ok(directory);
        }
        let directory = Directory::read(&shared.file, &shared.meta)?;
        Ok(shared.directory.get_or_init(|| directory))
    }

    /// What it says about itself. This and all that follow read the footer when nothing did before.
    ///
    /// # Errors
    /// [`SegmentError::Io`]; [`SegmentError::Corrupt`] when the footer is not what was sealed;
    /// [`SegmentError::UnsupportedVersion`].
    pub fn info(&self) -> Result<ArrowSegmentInfo, SegmentError> {
        Ok(self.directory()?.footer.info)
    }

    /// The table's columns as declared when it was written.
    ///
    /// # Errors
    /// As [`Self::info`].
    pub fn schema_sql(&self) -> Result<&str, SegmentError> {
        Ok(&self.directory()?.footer.schema_sql)
    }

    /// The columns by position: the log's own, then the user's. `_value_style` is shown as in the file.
    ///
    /// # Errors
    /// As [`Self::info`].
    pub fn schema(&self) -> Result<&SchemaRef, SegmentError> {
        Ok(&self.directory()?.footer.schema)
    }

    /// Number of columns, the log's own and the user's.
    ///
    /// # Errors
    /// As [`Self::info`].
    pub fn column_count(&self) -> Result<usize, SegmentError> {
        Ok(self.directory()?.names.len())
    }

    /// The blocks, in offset order. A segment of aborted rows only has none.
    ///
    /// # Errors
    /// As [`Self::info`].
    pub fn blocks(&self) -> Result<&[BlockInfo], SegmentError> {
        Ok(&self.directory()?.blocks)
    }

    /// The first block with a row at or above `offset`; `None` when there is no such row.
    ///
    /// # Errors
    /// As [`Self::info`].
    pub fn find_block(&self, offset: Offset) -> Result<Option<usize>, SegmentError> {
        let blocks = &self.directory()?.blocks;
        let index = blocks.partition_point(|block| block.range.end <= offset);
        Ok((index < blocks.len()).then_some(index))
    }

    /// The columns `projection` of block `index`, all when `None`, decoded. Positions are those of [`Self::schema`]; any
    /// order, repeats allowed; an empty projection answers the number of rows and reads nothing.
    ///
    /// Reads the block's message and the buffers of these columns, adjacent ones at once, and checks their CRC-32C.
    ///
    /// # Errors
    /// As [`Self::info`], and [`SegmentError::NoSuchBlock`], [`SegmentError::NoSuchColumn`].
    pub fn read_block(&self, index: usize, projection: Option<&[usize]>) -> Result<BlockRead, SegmentError> {
        let directory = self.directory()?;
        let all: Vec<usize>;
        let projection = match projection {
            Some(projection) => projection,
            None => {
                all = (0..directory.names.len()).collect();
                &all
            }
        };
        let schema = directory.project(projection)?;
        if projection.is_empty() {
            let rows = usize::try_from(directory.block(index)?.1.rows).expect("blocks are small");
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(schema, vec![], &options)?;
            return Ok(BlockRead { batch, bytes_read: 0 });
        }
        let plan = directory.plan(index, projection)?;
        let mut body = MutableBuffer::from_len_zeroed(plan.body_bytes());
        plan.fill(&mut body)?;
        let message = plan.layout.encode(&[]);
        let batch = root_as_message(&message)
            .ok()
            .and_then(|message| message.header_as_record_batch())
            .expect("a message just made is a record batch");
        let batch = read_record_batch(&body.into(), batch, schema, &HashMap::new(), None, &METADATA_VERSION)
            .map_err(|error| plan.undecodable(error))?;
        let (batch, style_bytes) = directory.resolve_styles(batch)?;
        Ok(BlockRead { batch, bytes_read: plan.bytes_read() + style_bytes })
    }

    /// The columns `projection` of block `index` as an Arrow IPC stream, the buffers copied as they are stored: no
    /// decompression. `None` gives the user's columns; `_offset`, `_timestamp` and others can be asked for by position.
    /// CRCs are checked.
    ///
    /// # Errors
    /// As [`Self::read_block`], and [`SegmentError::NotStreamable`] for `_value_style`.
    pub fn read_block_ipc(&self, index: usize, projection: Option<&[usize]>) -> Result<IpcStreamBytes, SegmentError> {
        let directory = self.directory()?;
        let user: Vec<usize>;
        let projection = match projection {
            Some(projection) => projection,
            None => {
                user = directory.user_columns();
                &user
            }
        };
        let schema = directory.project(projection)?;
        if schema.fields().iter().any(|field| field.name() == VALUE_STYLE) {
            return Err(SegmentError::NotStreamable { column: VALUE_STYLE.to_owned() });
        }
        let plan = directory.plan(index, projection)?;
        let mut bytes = encapsulate(&schema_message(&schema, &IpcWriteOptions::default()));
        bytes.extend(encapsulate(&plan.layout.encode(&[])));
        let body_from = bytes.len();
        let body_to = body_from + plan.body_bytes();
        let mut stream = vec![0; body_to + END_OF_STREAM.len()];
        stream[..body_from].copy_from_slice(&bytes);
        plan.fill(&mut stream[body_from..body_to])?;
        stream[body_to..].copy_from_slice(&END_OF_STREAM);
        let block = &directory.blocks[index];
        Ok(IpcStreamBytes {
            bytes: Bytes::from(stream),
            rows: block.rows,
            range: block.range,
            bytes_read: plan.bytes_read(),
        })
    }

    /// The first row at or above `from` with a timestamp of at least `timestamp`, in offset order (S-60). Reads two columns
    /// of the blocks whose statistics allow one.
    ///
    /// # Errors
    /// As [`Self::read_block`].
    pub fn offset_for_timestamp(&self, timestamp: i64, from: Offset) -> Result<Option<TimestampMatch>, SegmentError> {
        let directory = self.directory()?;
        let projection = [directory.position_of(OFFSET)?, directory.position_of(TIMESTAMP)?];
        let first = self.find_block(from)?.unwrap_or(directory.blocks.len());
        for (index, block) in directory.blocks.iter().enumerate().skip(first) {
            if block.max_timestamp < timestamp {
                continue;
            }
            let batch = self.read_block(index, Some(&projection))?.batch;
            let column = |at: usize| {
                batch.column(at).as_primitive_opt::<Int64Type>().ok_or_else(|| {
                    let name = directory.names[projection[at]].as_str();
                    SegmentError::corrupt_block(&directory.file.path, index, Some(name), "it is not Int64")
                })
            };
            let mut rows = column(0)?.values().iter().zip(column(1)?.values());
            if let Some((&offset, &found)) = rows.find(|(offset, found)| **found >= timestamp && **offset >= from.get())
            {
                let offset = Offset::new(offset).ok_or_else(|| {
                    SegmentError::corrupt_block(&directory.file.path, index, Some(OFFSET), "it is negative")
                })?;
                return Ok(Some(TimestampMatch { offset, timestamp: found, leader_epoch: None }));
            }
        }
        Ok(None)
    }

    /// The offsets of the blocks that do not read; all when the footer does not. What lies between is whole.
    ///
    /// # Errors
    /// [`SegmentError::Io`].
    pub fn unreadable(&self) -> Result<Vec<OffsetRange>, SegmentError> {
        let blocks = match self.blocks() {
            Ok(blocks) => blocks,
            Err(error @ SegmentError::Io { .. }) => return Err(error),
            Err(_) => return Ok(vec![self.shared.meta.range]),
        };
        let mut lost = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            match self.read_block(index, None) {
                Ok(_) => {}
                Err(error @ SegmentError::Io { .. }) => return Err(error),
                Err(_) => lost.push(block.range),
            }
        }
        Ok(lost)
    }

    /// Reads everything and compares every checksum; no byte of the file is left out.
    ///
    /// # Errors
    /// [`SegmentError::Corrupt`] names the first damage, [`SegmentError::Io`].
    pub fn verify(&self) -> Result<(), SegmentError> {
        let directory = self.directory()?;
        let path = &directory.file.path;
        let mut position = directory.first_place().map_or(directory.end_of_messages()?, |place| place.position);
        if crc32c(&directory.file.read(0, position)?) != directory.footer.head_crc32c {
            return Err(SegmentError::corrupt(
                path,
                "magic and schema message do not have the CRC-32C that the footer says",
            ));
        }
        let all: Vec<usize> = (0..directory.names.len()).collect();
        let mut body = Vec::new();
        for (index, (place, entry)) in directory.footer.blocks.iter().enumerate() {
            let plan = directory.plan(index, &all)?;
            let rows = plan.layout.rows;
            if place.position != position || u64::try_from(rows) != Ok(entry.rows) {
                return Err(SegmentError::corrupt_block(
                    path,
                    index,
                    None,
                    "its place or size is not what the directory says",
                ));
            }
            body.resize(plan.body_bytes(), 0);
            plan.fill(&mut body)?;
            position = place.end();
        }
        if let Some((place, _)) = directory.footer.dictionary {
            directory.load_styles()?;
            position = place.end();
        }
        if position != directory.end_of_messages()? || directory.file.read(position, 8)? != END_OF_STREAM {
            return Err(SegmentError::corrupt(
                path,
                format!("no end of stream at byte {position}, where the last message ends"),
            ));
        }
        Ok(())
    }
}
