//! The directory of an open segment: its footer, checked and in memory.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_ipc::reader::{read_footer_length, read_record_batch};
use arrow_ipc::root_as_message;
use parking_lot::Mutex;
use weir_model::{Offset, OffsetRange};

use super::super::checksum::crc32c;
use super::super::file::SealedFile;
use super::super::{SegmentError, SegmentMeta};
use super::columns::{ColumnSpan, column_spans};
use super::footer::{BlockEntry, FORMAT_VERSION, Footer, FooterError, Place};
use super::message::flatbuffer_of;
use super::plan::{BlockRequest, ReadPlan};
use super::style::{style_as_read, styles_of};
use super::{BlockInfo, END_OF_STREAM, MAGIC, METADATA_VERSION, VALUE_STYLE, is_system, with_style_type};

/// Footer length and magic.
const TRAILER_BYTES: u64 = 10;
/// First read of the end of the file; holds the whole footer of a segment of some 50 blocks.
const TAIL_BYTES: u64 = 64 << 10;

/// Everything a read needs to know before it touches a block.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) file: SealedFile,
    pub(super) footer: Footer,
    /// As readers see the entries of the footer.
    pub(super) blocks: Vec<BlockInfo>,
    /// `_value_style` as numbers: what blocks decode to.
    numbered: SchemaRef,
    spans: Vec<ColumnSpan>,
    pub(super) names: Vec<String>,
    styles: Mutex<Option<StringArray>>,
}

impl Directory {
    /// Reads the footer and checks it against what the manifest says.
    pub(super) fn read(file: &SealedFile, meta: &SegmentMeta) -> Result<Self, SegmentError> {
        let mut footer = read_footer(file, meta)?;
        let numbered = with_style_type(&footer.schema, &DataType::Int32);
        let spans = column_spans(&numbered)?;
        let names: Vec<String> = numbered.fields().iter().map(|field| field.name().clone()).collect();
        let blocks = check_blocks(file, &mut footer)?;
        Ok(Self { file: file.clone(), footer, blocks, numbered, spans, names, styles: Mutex::new(None) })
    }

    pub(super) fn block(&self, index: usize) -> Result<&(Place, BlockEntry), SegmentError> {
        let blocks = &self.footer.blocks;
        blocks.get(index).ok_or_else(|| SegmentError::NoSuchBlock {
            file: self.file.path.to_path_buf(),
            index,
            count: blocks.len(),
        })
    }

    pub(super) fn plan(&self, index: usize, projection: &[usize]) -> Result<ReadPlan<'_>, SegmentError> {
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
    pub(super) fn project(&self, projection: &[usize]) -> Result<SchemaRef, SegmentError> {
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

    pub(super) fn user_columns(&self) -> Vec<usize> {
        self.numbered
            .fields()
            .iter()
            .enumerate()
            .filter(|(_, field)| !is_system(field))
            .map(|(index, _)| index)
            .collect()
    }

    pub(super) fn position_of(&self, name: &str) -> Result<usize, SegmentError> {
        let position = self.names.iter().position(|column| column == name);
        position.ok_or_else(|| SegmentError::corrupt(&self.file.path, format!("it has no column {name}")))
    }

    pub(super) fn first_place(&self) -> Option<Place> {
        let first = self.footer.blocks.first().map(|(place, _)| *place);
        first.or(self.footer.dictionary.map(|(place, _)| place))
    }

    /// Where the marker stands that ends the messages: just before the footer.
    pub(super) fn end_of_messages(&self) -> Result<u64, SegmentError> {
        let trailer = read_trailer(&self.file)?;
        let after = TRAILER_BYTES + trailer + END_OF_STREAM.len() as u64;
        self.file
            .size_bytes
            .checked_sub(after)
            .ok_or_else(|| SegmentError::corrupt(&self.file.path, "the footer is too long"))
    }

    /// Puts texts in the place of style numbers. Answers the bytes read for that: the dictionary is read once.
    pub(super) fn resolve_styles(&self, batch: RecordBatch) -> Result<(RecordBatch, u64), SegmentError> {
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
        let styled =
            styled.map_err(|error| SegmentError::corrupt(&self.file.path, format!("{VALUE_STYLE}: {error}")))?;
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
    pub(super) fn load_styles(&self) -> Result<(StringArray, u64), SegmentError> {
        let damage =
            |what: String| SegmentError::corrupt(&self.file.path, format!("dictionary of {VALUE_STYLE}: {what}"));
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

/// The blocks as readers see them. Their offsets must rise inside the segment's range, or lookups would go astray. The statistics move over.
fn check_blocks(file: &SealedFile, footer: &mut Footer) -> Result<Vec<BlockInfo>, SegmentError> {
    let range = footer.range;
    let mut least = range.start.get();
    let block = |(index, (place, entry)): (usize, &mut (Place, BlockEntry))| {
        let rises = least <= entry.first_offset && entry.first_offset <= entry.last_offset;
        let (true, Some(first), Some(last)) = (
            rises && entry.last_offset < range.end.get(),
            Offset::new(entry.first_offset),
            Offset::new(entry.last_offset),
        ) else {
            let what = format!("offsets {}..={} are out of order", entry.first_offset, entry.last_offset);
            return Err(SegmentError::corrupt_block(&file.path, index, None, what));
        };
        least = entry.last_offset + 1;
        Ok(BlockInfo {
            range: OffsetRange::new(first, last.next()),
            rows: entry.rows,
            min_timestamp: entry.min_timestamp,
            max_timestamp: entry.max_timestamp,
            size_bytes: place.message_length + place.body_length,
            columns: std::mem::take(&mut entry.columns),
        })
    };
    footer.blocks.iter_mut().enumerate().map(block).collect()
}

/// Length of the footer, from the last ten bytes.
fn read_trailer(file: &SealedFile) -> Result<u64, SegmentError> {
    let position = file.size_bytes.checked_sub(TRAILER_BYTES);
    let position = position.ok_or_else(|| SegmentError::corrupt(&file.path, "it is too short for an Arrow file"))?;
    trailer_of(file, &file.read(position, TRAILER_BYTES)?)
}

fn trailer_of(file: &SealedFile, tail: &[u8]) -> Result<u64, SegmentError> {
    let trailer = tail
        .last_chunk::<10>()
        .ok_or_else(|| SegmentError::corrupt(&file.path, "it is too short for an Arrow file"))?;
    let length = read_footer_length(*trailer).map_err(|error| SegmentError::corrupt(&file.path, error.to_string()))?;
    Ok(length as u64)
}

fn read_footer(file: &SealedFile, meta: &SegmentMeta) -> Result<Footer, SegmentError> {
    let (footer, digest) = footer_of(file)?;
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

/// The stretch that the footer of a file names which no manifest describes.
pub(in super::super) fn range_of_file(path: &Path) -> Result<OffsetRange, SegmentError> {
    let size_bytes = std::fs::metadata(path).map_err(SegmentError::io("look at", path))?.len();
    Ok(footer_of(&SealedFile::open(path, size_bytes)?)?.0.range)
}

/// The footer and its CRC-32C, checked against itself.
fn footer_of(file: &SealedFile) -> Result<(Footer, u32), SegmentError> {
    let tail_bytes = TAIL_BYTES.min(file.size_bytes);
    let mut tail = file.read(file.size_bytes - tail_bytes, tail_bytes)?;
    let footer_bytes = trailer_of(file, &tail)?;
    let end_bytes = footer_bytes + TRAILER_BYTES;
    if end_bytes + MAGIC.len() as u64 > file.size_bytes {
        return Err(SegmentError::corrupt(
            &file.path,
            format!("a footer of {footer_bytes} bytes does not fit into the file"),
        ));
    }
    if end_bytes > tail_bytes {
        tail = file.read(file.size_bytes - end_bytes, end_bytes)?;
    }
    let in_tail = |bytes: u64| tail.len() - usize::try_from(bytes).expect("the tail is in memory");
    let footer = &tail[in_tail(end_bytes)..in_tail(TRAILER_BYTES)];
    Footer::decode(footer, file.size_bytes).map_err(|error| match error {
        FooterError::Damaged(what) => SegmentError::corrupt(&file.path, what),
        FooterError::Version(found) => {
            SegmentError::UnsupportedVersion { file: file.path.to_path_buf(), found, supported: FORMAT_VERSION }
        }
    })
}
