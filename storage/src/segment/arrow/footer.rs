//! The footer: an ordinary Arrow footer whose custom metadata holds the block directory.
//!
//! | key | value |
//! |---|---|
//! | `weir.format.version` | `1` |
//! | `weir.topic.id` | uuid of the topic |
//! | `weir.partition`, `weir.schema.id` | numbers |
//! | `weir.schema.sql` | the table's columns, as declared |
//! | `weir.offset.start`, `weir.offset.end` | the stretch of the log, half-open |
//! | `weir.timestamp.min`, `weir.timestamp.max`, `weir.rows` | over all rows |
//! | `weir.head.crc32c` | hex, of the file up to the first block: magic and schema message |
//! | `weir.dictionary.crc32c` | hex, of the dictionary block, message and body |
//! | `weir.blocks` | JSON, one object per block: [`BlockEntry`] |
//! | `weir.check` | `weir.footer.crc32c=` and eight hex digits, of the footer with these eight as zeros |
//!
//! The check is the first string written into the flatbuffer. Flatbuffers grow from their end, and its 27 letters and their
//! zero need no padding, so it is always the footer's last 28 bytes: a reader checks it before it parses anything.

use std::collections::HashMap;

use arrow::datatypes::{Schema, SchemaRef};
use arrow_ipc::Block;
use arrow_ipc::convert::{IpcSchemaEncoder, fb_to_schema};
use arrow_ipc::writer::DictionaryTracker;
use flatbuffers::FlatBufferBuilder;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use uuid::Uuid;
use weir_model::{Offset, OffsetRange, TopicId};

use super::super::checksum::Crc32c;
use super::stats::ColumnStats;
use super::{ArrowSegmentInfo, METADATA_VERSION};

/// The version this build writes, and the newest it reads.
pub(super) const FORMAT_VERSION: u32 = 1;
const CHECK_PREFIX: &str = "weir.footer.crc32c=";
const CHECK_DIGITS: usize = 8;
/// The zero that ends a flatbuffer string.
const CHECK_END: usize = 1;

/// What the directory says of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BlockEntry {
    pub(super) first_offset: i64,
    pub(super) last_offset: i64,
    pub(super) rows: u64,
    pub(super) min_timestamp: i64,
    pub(super) max_timestamp: i64,
    /// Of the encapsulated message; the message holds those of the buffers.
    pub(super) message_crc32c: u32,
    /// In the order of the schema: `[null count, min, max]`.
    pub(super) columns: Vec<ColumnStats>,
}

/// Where a message and its body lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) position: u64,
    pub(super) message_length: u64,
    pub(super) body_length: u64,
}

impl Place {
    pub(super) fn body_position(&self) -> u64 {
        self.position + self.message_length
    }

    pub(super) fn end(&self) -> u64 {
        self.body_position() + self.body_length
    }

    fn to_block(self) -> Block {
        let signed = |value: u64| i64::try_from(value).expect("a file is smaller than i64::MAX");
        let message_length = i32::try_from(self.message_length).expect("a message is under 2 GiB");
        Block::new(signed(self.position), message_length, signed(self.body_length))
    }

    fn from_block(block: &Block, file_bytes: u64) -> Option<Self> {
        let place = Self {
            position: u64::try_from(block.offset()).ok()?,
            message_length: u64::try_from(block.metaDataLength()).ok()?,
            body_length: u64::try_from(block.bodyLength()).ok()?,
        };
        let end = place.position.checked_add(place.message_length)?.checked_add(place.body_length)?;
        (end <= file_bytes).then_some(place)
    }
}

/// The footer of a segment.
#[derive(Clone, Debug)]
pub(super) struct Footer {
    pub(super) info: ArrowSegmentInfo,
    pub(super) schema_sql: String,
    /// As in the file: `_value_style` is a dictionary.
    pub(super) schema: SchemaRef,
    pub(super) range: OffsetRange,
    pub(super) rows: u64,
    pub(super) min_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) head_crc32c: u32,
    pub(super) dictionary: Option<(Place, u32)>,
    pub(super) blocks: Vec<(Place, BlockEntry)>,
}

/// Why a footer is of no use.
#[derive(Debug)]
pub(super) enum FooterError {
    Damaged(String),
    Version(u32),
}

impl From<String> for FooterError {
    fn from(what: String) -> Self {
        Self::Damaged(what)
    }
}

impl Footer {
    /// The flatbuffer and its CRC-32C.
    pub(super) fn encode(&self) -> (Vec<u8>, u32) {
        let mut builder = FlatBufferBuilder::new();
        let check = builder.create_string(&format!("{CHECK_PREFIX}{:01$}", 0, CHECK_DIGITS));
        let mut pairs = Vec::new();
        for (key, value) in self.metadata() {
            let value = builder.create_string(&value);
            pairs.push((key, value));
        }
        pairs.push(("weir.check", check));
        let pairs: Vec<_> = pairs
            .into_iter()
            .map(|(key, value)| {
                let key = builder.create_string(key);
                let mut pair = arrow_ipc::KeyValueBuilder::new(&mut builder);
                pair.add_key(key);
                pair.add_value(value);
                pair.finish()
            })
            .collect();
        let pairs = builder.create_vector(&pairs);
        let dictionaries: Vec<_> = self.dictionary.iter().map(|(place, _)| place.to_block()).collect();
        let dictionaries = builder.create_vector(&dictionaries);
        let blocks: Vec<_> = self.blocks.iter().map(|(place, _)| place.to_block()).collect();
        let blocks = builder.create_vector(&blocks);
        let mut tracker = DictionaryTracker::new(true);
        let schema = IpcSchemaEncoder::new()
            .with_dictionary_tracker(&mut tracker)
            .schema_to_fb_offset(&mut builder, &self.schema);
        let mut footer = arrow_ipc::FooterBuilder::new(&mut builder);
        footer.add_version(METADATA_VERSION);
        footer.add_schema(schema);
        footer.add_dictionaries(dictionaries);
        footer.add_recordBatches(blocks);
        footer.add_custom_metadata(pairs);
        let footer = footer.finish();
        builder.finish(footer, None);
        let mut bytes = builder.finished_data().to_vec();
        let checksum = checksum(&bytes).expect("a footer ends with its check");
        let digits = bytes.len() - CHECK_END - CHECK_DIGITS;
        bytes[digits..digits + CHECK_DIGITS].copy_from_slice(format!("{checksum:08x}").as_bytes());
        (bytes, checksum)
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        let entries: Vec<_> = self.blocks.iter().map(|(_, entry)| entry).collect();
        let blocks = serde_json::to_string(&entries).expect("integers and strings are always JSON");
        let mut pairs = vec![
            ("weir.format.version", FORMAT_VERSION.to_string()),
            ("weir.topic.id", self.info.topic_id.as_uuid().to_string()),
            ("weir.partition", self.info.partition.to_string()),
            ("weir.schema.id", self.info.schema_id.to_string()),
            ("weir.schema.sql", self.schema_sql.clone()),
            ("weir.offset.start", self.range.start.to_string()),
            ("weir.offset.end", self.range.end.to_string()),
            ("weir.timestamp.min", self.min_timestamp.to_string()),
            ("weir.timestamp.max", self.max_timestamp.to_string()),
            ("weir.rows", self.rows.to_string()),
            ("weir.head.crc32c", format!("{:08x}", self.head_crc32c)),
            ("weir.blocks", blocks),
        ];
        if let Some((_, checksum)) = self.dictionary {
            pairs.push(("weir.dictionary.crc32c", format!("{checksum:08x}")));
        }
        pairs
    }

    /// Checks and parses a footer of a file of `file_bytes`; also answers its CRC-32C.
    pub(super) fn decode(bytes: &[u8], file_bytes: u64) -> Result<(Self, u32), FooterError> {
        let computed = checksum(bytes).ok_or_else(|| "the footer is not one that weir wrote".to_owned())?;
        let digits = &bytes[bytes.len() - CHECK_END - CHECK_DIGITS..bytes.len() - CHECK_END];
        let stored = std::str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, 16).ok());
        if stored != Some(computed) {
            return Err(FooterError::Damaged(format!(
                "the footer's CRC-32C is {computed:#010x}, it says {stored:#010x?}"
            )));
        }
        // The footer is what weir wrote from here on, so Arrow's conversions cannot meet anything they do not know.
        let options = flatbuffers::VerifierOptions { max_tables: usize::MAX, ..Default::default() };
        let footer = arrow_ipc::root_as_footer_with_opts(&options, bytes)
            .map_err(|error| format!("the footer is not an Arrow footer: {error}"))?;
        let pairs: HashMap<&str, &str> =
            footer.custom_metadata().iter().flatten().filter_map(|pair| pair.key().zip(pair.value())).collect();
        let version: u32 = parse(&pairs, "weir.format.version")?;
        if version > FORMAT_VERSION {
            return Err(FooterError::Version(version));
        }
        let schema = Arc::new(schema_of(&footer)?);
        let entries: Vec<BlockEntry> = serde_json::from_str(text(&pairs, "weir.blocks")?)
            .map_err(|error| format!("the block directory is not readable: {error}"))?;
        let places = places(footer.recordBatches().iter().flatten(), file_bytes)?;
        if places.len() != entries.len() {
            return Err(FooterError::Damaged(format!(
                "{} blocks, but {} directory entries",
                places.len(),
                entries.len()
            )));
        }
        let dictionary = match places_of_dictionaries(&footer, file_bytes)?[..] {
            [] => None,
            [place] => Some((place, hex(&pairs, "weir.dictionary.crc32c")?)),
            _ => return Err(FooterError::Damaged("more than one dictionary".to_owned())),
        };
        let topic_id =
            Uuid::parse_str(text(&pairs, "weir.topic.id")?).map_err(|error| format!("weir.topic.id: {error}"))?;
        let (start, end) = (offset(&pairs, "weir.offset.start")?, offset(&pairs, "weir.offset.end")?);
        if start > end {
            return Err(FooterError::Damaged(format!("the offset range runs backwards: {start}..{end}")));
        }
        let decoded = Self {
            info: ArrowSegmentInfo {
                topic_id: TopicId::from_uuid(topic_id),
                partition: parse(&pairs, "weir.partition")?,
                schema_id: parse(&pairs, "weir.schema.id")?,
            },
            schema_sql: text(&pairs, "weir.schema.sql")?.to_owned(),
            schema,
            range: OffsetRange::new(start, end),
            rows: parse(&pairs, "weir.rows")?,
            min_timestamp: parse(&pairs, "weir.timestamp.min")?,
            max_timestamp: parse(&pairs, "weir.timestamp.max")?,
            head_crc32c: hex(&pairs, "weir.head.crc32c")?,
            dictionary,
            blocks: places.into_iter().zip(entries).collect(),
        };
        Ok((decoded, computed))
    }
}

/// CRC-32C of a footer with the digits of its own check as zeros; `None` when it does not end with one.
fn checksum(footer: &[u8]) -> Option<u32> {
    let digits = footer.len().checked_sub(CHECK_END + CHECK_DIGITS)?;
    let before = &footer[..digits];
    if !before.ends_with(CHECK_PREFIX.as_bytes()) || !footer.ends_with(&[0]) {
        return None;
    }
    let mut checksum = Crc32c::new();
    checksum.update(before);
    checksum.update(&[b'0'; CHECK_DIGITS]);
    checksum.update(&[0; CHECK_END]);
    Some(checksum.value())
}

fn schema_of(footer: &arrow_ipc::Footer<'_>) -> Result<Schema, String> {
    let schema = footer.schema().ok_or("the footer has no schema")?;
    Ok(fb_to_schema(schema))
}

fn places<'a>(blocks: impl Iterator<Item = &'a Block>, file_bytes: u64) -> Result<Vec<Place>, String> {
    blocks
        .map(|block| Place::from_block(block, file_bytes).ok_or_else(|| "a block lies outside the file".to_owned()))
        .collect()
}

fn places_of_dictionaries(footer: &arrow_ipc::Footer<'_>, file_bytes: u64) -> Result<Vec<Place>, String> {
    places(footer.dictionaries().iter().flatten(), file_bytes)
}

fn text<'a>(pairs: &HashMap<&str, &'a str>, key: &str) -> Result<&'a str, String> {
    pairs.get(key).copied().ok_or_else(|| format!("the footer lacks {key}"))
}

fn parse<T: std::str::FromStr>(pairs: &HashMap<&str, &str>, key: &str) -> Result<T, String> {
    let value = text(pairs, key)?;
    value.parse().map_err(|_| format!("{key} is {value:?}"))
}

fn hex(pairs: &HashMap<&str, &str>, key: &str) -> Result<u32, String> {
    let value = text(pairs, key)?;
    u32::from_str_radix(value, 16).map_err(|_| format!("{key} is {value:?}"))
}

fn offset(pairs: &HashMap<&str, &str>, key: &str) -> Result<Offset, String> {
    let value: i64 = parse(pairs, key)?;
    Offset::new(value).ok_or_else(|| format!("{key} is {value}"))
}
