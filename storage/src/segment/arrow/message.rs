//! Record batch messages: taken apart, put together.

use arrow::datatypes::Schema;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_ipc::{Buffer, CompressionType, FieldNode, MessageHeader, root_as_message};
use flatbuffers::FlatBufferBuilder;

use super::{ALIGNMENT, METADATA_VERSION};

/// Key in a message's custom metadata: the CRC-32C of each buffer with its padding, eight hex digits each, in order.
pub(super) const BUFFER_CHECKSUMS: &str = "weir.buffer.crc32c";

/// What a record batch message says: how many rows, and where each buffer lies in the body.
#[derive(Clone, Debug)]
pub(super) struct BatchLayout {
    pub(super) rows: i64,
    pub(super) nodes: Vec<FieldNode>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) compression: Option<CompressionType>,
    pub(super) body_length: u64,
}

impl BatchLayout {
    /// Takes a message apart, with the buffer checksums if it has them. Checks that the buffers tile the body in order.
    pub(super) fn parse(flatbuffer: &[u8]) -> Result<(Self, Vec<u32>), String> {
        let message =
            root_as_message(flatbuffer).map_err(|error| format!("the message is not an Arrow message: {error}"))?;
        let batch = message.header_as_record_batch().ok_or("the message is not a record batch")?;
        let buffers: Vec<Buffer> = batch.buffers().map(|buffers| buffers.iter().copied().collect()).unwrap_or_default();
        let layout = Self {
            rows: batch.length(),
            nodes: batch.nodes().map(|nodes| nodes.iter().copied().collect()).unwrap_or_default(),
            buffers,
            compression: batch.compression().map(|compression| compression.codec()),
            body_length: u64::try_from(message.bodyLength()).map_err(|_| "the body length is negative")?,
        };
        layout.check()?;
        let stored = message
            .custom_metadata()
            .iter()
            .flatten()
            .find(|pair| pair.key() == Some(BUFFER_CHECKSUMS))
            .and_then(|pair| pair.value());
        let checksums = match stored {
            Some(text) => decode_checksums(text).ok_or("the buffer checksums are not hexadecimal")?,
            None => Vec::new(),
        };
        Ok((layout, checksums))
    }

    fn check(&self) -> Result<(), String> {
        if self.rows < 0 {
            return Err(format!("it has {} rows", self.rows));
        }
        let mut end = 0;
        for (index, buffer) in self.buffers.iter().enumerate() {
            let (Ok(offset), Ok(length)) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length())) else {
                return Err(format!("buffer {index} has a negative place"));
            };
            if offset < end || offset.checked_add(length).is_none_or(|end| end > self.body_length) {
                return Err(format!("buffer {index} overlaps another or runs past the body"));
            }
            end = offset + length;
        }
        Ok(())
    }

    /// Bytes of the body that belong to buffer `index`: the buffer and the padding after it. The extents tile the body, so
    /// that their checksums leave no byte out.
    pub(super) fn extent(&self, index: usize) -> (u64, u64) {
        let offset_of = |buffer: &Buffer| u64::try_from(buffer.offset()).expect("checked when the message was parsed");
        let start = if index == 0 { 0 } else { self.buffers.get(index).map_or(self.body_length, offset_of) };
        let end = self.buffers.get(index + 1).map_or(self.body_length, offset_of);
        (start, end)
    }

    /// The message as a flatbuffer.
    pub(super) fn encode(&self, custom_metadata: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::with_capacity(256 + 16 * (self.nodes.len() + self.buffers.len()));
        let pairs: Vec<_> = custom_metadata
            .iter()
            .map(|(key, value)| {
                let (key, value) = (builder.create_string(key), builder.create_string(value));
                let mut pair = arrow_ipc::KeyValueBuilder::new(&mut builder);
                pair.add_key(key);
                pair.add_value(value);
                pair.finish()
            })
            .collect();
        let pairs = (!pairs.is_empty()).then(|| builder.create_vector(&pairs));
        let compression = self.compression.map(|codec| {
            let mut compression = arrow_ipc::BodyCompressionBuilder::new(&mut builder);
            compression.add_method(arrow_ipc::BodyCompressionMethod::BUFFER);
            compression.add_codec(codec);
            compression.finish()
        });
        let nodes = builder.create_vector(&self.nodes);
        let buffers = builder.create_vector(&self.buffers);
        let mut batch = arrow_ipc::RecordBatchBuilder::new(&mut builder);
        batch.add_length(self.rows);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        if let Some(compression) = compression {
            batch.add_compression(compression);
        }
        let batch = batch.finish().as_union_value();
        let mut message = arrow_ipc::MessageBuilder::new(&mut builder);
        message.add_version(METADATA_VERSION);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_header(batch);
        message.add_bodyLength(i64::try_from(self.body_length).expect("a body is smaller than the address space"));
        if let Some(pairs) = pairs {
            message.add_custom_metadata(pairs);
        }
        let message = message.finish();
        builder.finish(message, None);
        builder.finished_data().to_vec()
    }
}

/// The schema message as a flatbuffer.
pub(super) fn schema_message(schema: &Schema, options: &IpcWriteOptions) -> Vec<u8> {
    let mut tracker = DictionaryTracker::new(true);
    IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, options).ipc_message
}

/// The message as it stands in a file or stream: continuation marker, length, flatbuffer, zeros up to the alignment.
pub(super) fn encapsulate(flatbuffer: &[u8]) -> Vec<u8> {
    let padded = (flatbuffer.len() + 8).next_multiple_of(usize::from(ALIGNMENT));
    let mut bytes = Vec::with_capacity(padded);
    bytes.extend_from_slice(&END_OF_LENGTHS);
    bytes.extend_from_slice(&i32::try_from(padded - 8).expect("a message is under 2 GiB").to_le_bytes());
    bytes.extend_from_slice(flatbuffer);
    bytes.resize(padded, 0);
    bytes
}

/// Marks a message of the format since Arrow 0.15.
const END_OF_LENGTHS: [u8; 4] = [0xff; 4];

/// The flatbuffer inside an encapsulated message.
pub(super) fn flatbuffer_of(encapsulated: &[u8]) -> Result<&[u8], String> {
    match encapsulated {
        [0xff, 0xff, 0xff, 0xff, _, _, _, _, flatbuffer @ ..] => Ok(flatbuffer),
        _ => Err("the message does not begin with a continuation marker".to_owned()),
    }
}

pub(super) fn encode_checksums(checksums: &[u32]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(8 * checksums.len());
    for checksum in checksums {
        let _ = write!(text, "{checksum:08x}");
    }
    text
}

fn decode_checksums(text: &str) -> Option<Vec<u32>> {
    let (digits, []) = text.as_bytes().as_chunks::<8>() else { return None };
    digits.iter().map(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()).collect()
}
