//! A projected read of one block: which bytes to fetch, what to check, and the message that describes what came.

use std::collections::BTreeSet;
use std::ops::Range;

use arrow_ipc::Buffer;

use super::super::SegmentError;
use super::super::checksum::crc32c;
use super::super::file::SealedFile;
use super::columns::ColumnSpan;
use super::footer::Place;
use super::message::{BatchLayout, flatbuffer_of};

/// A block and the columns wanted of it.
pub(super) struct BlockRequest<'a> {
    pub(super) file: &'a SealedFile,
    pub(super) index: usize,
    pub(super) place: Place,
    pub(super) message_crc32c: u32,
    pub(super) spans: &'a [ColumnSpan],
    pub(super) names: &'a [String],
}

/// What a projected read will do. The body it fills is compact: the wanted columns in file order, each once.
pub(super) struct ReadPlan<'a> {
    request: BlockRequest<'a>,
    /// Describes the compact body, its columns in the order of the projection.
    pub(super) layout: BatchLayout,
    runs: Vec<Run>,
    checks: Vec<Check>,
}

/// Adjacent buffers, read at once.
struct Run {
    position: u64,
    body: Range<usize>,
}

struct Check {
    body: Range<usize>,
    checksum: u32,
    column: usize,
}

impl<'a> ReadPlan<'a> {
    /// Reads and checks the block's message, and plans the rest.
    pub(super) fn new(request: BlockRequest<'a>, projection: &[usize]) -> Result<Self, SegmentError> {
        let bytes = request.file.read(request.place.position, request.place.message_length)?;
        let computed = crc32c(&bytes);
        if computed != request.message_crc32c {
            return Err(request.damage(
                None,
                format!(
                    "the CRC-32C of its message is {computed:#010x}, the footer says {:#010x}",
                    request.message_crc32c
                ),
            ));
        }
        let (whole, checksums) =
            flatbuffer_of(&bytes).and_then(BatchLayout::parse).map_err(|what| request.damage(None, what))?;
        let (nodes, buffers) = request.spans.last().map_or((0, 0), |last| (last.nodes.end, last.buffers.end));
        if (whole.nodes.len(), whole.buffers.len(), checksums.len()) != (nodes, buffers, buffers)
            || whole.body_length != request.place.body_length
        {
            return Err(request.damage(None, "its message does not describe the columns of the schema".to_owned()));
        }
        Ok(Self::of(request, &whole, &checksums, projection))
    }

    fn of(request: BlockRequest<'a>, whole: &BatchLayout, checksums: &[u32], projection: &[usize]) -> Self {
        let (mut runs, mut checks): (Vec<Run>, Vec<Check>) = (Vec::new(), Vec::new());
        let mut end = 0;
        // Where the buffers of each wanted column begin in the compact body, less where they begin in the whole one.
        let mut moved = vec![0_i64; request.spans.len()];
        for column in projection.iter().copied().collect::<BTreeSet<_>>() {
            let buffers = request.spans[column].buffers.clone();
            if buffers.is_empty() {
                continue;
            }
            let (from, to) = (whole.extent(buffers.start).0, whole.extent(buffers.end - 1).1);
            let position = request.place.body_position() + from;
            let body = end..end + in_memory(to - from);
            moved[column] = signed(body.start as u64) - signed(from);
            for buffer in buffers {
                let (buffer_from, buffer_to) = whole.extent(buffer);
                let at = |place: u64| body.start + in_memory(place - from);
                checks.push(Check { body: at(buffer_from)..at(buffer_to), checksum: checksums[buffer], column });
            }
            end = body.end;
            match runs.last_mut() {
                Some(run) if run.position + run.body.len() as u64 == position => run.body.end = body.end,
                _ => runs.push(Run { position, body }),
            }
        }
        let nodes =
            projection.iter().flat_map(|&column| whole.nodes[request.spans[column].nodes.clone()].iter().copied());
        let buffers = projection.iter().flat_map(|&column| {
            let moved = moved[column];
            whole.buffers[request.spans[column].buffers.clone()]
                .iter()
                .map(move |buffer| Buffer::new(buffer.offset() + moved, buffer.length()))
        });
        let layout = BatchLayout {
            rows: whole.rows,
            nodes: nodes.collect(),
            buffers: buffers.collect(),
            compression: whole.compression,
            body_length: end as u64,
        };
        Self { request, layout, runs, checks }
    }

    /// Size of the compact body.
    pub(super) fn body_bytes(&self) -> usize {
        in_memory(self.layout.body_length)
    }

    /// Bytes the whole read takes from the file, the message included.
    pub(super) fn bytes_read(&self) -> u64 {
        self.request.place.message_length + self.layout.body_length
    }

    /// Reads the body into `body`, which has [`Self::body_bytes`], and checks each buffer.
    pub(super) fn fill(&self, body: &mut [u8]) -> Result<(), SegmentError> {
        for run in &self.runs {
            self.request.file.read_into(&mut body[run.body.clone()], run.position)?;
        }
        for check in &self.checks {
            let computed = crc32c(&body[check.body.clone()]);
            if computed != check.checksum {
                return Err(self.request.damage(
                    Some(check.column),
                    format!("the CRC-32C of a buffer is {computed:#010x}, the message says {:#010x}", check.checksum),
                ));
            }
        }
        Ok(())
    }

    /// Damage that shows only when the columns are decoded.
    pub(super) fn undecodable(&self, what: impl std::fmt::Display) -> SegmentError {
        self.request.damage(None, format!("its columns do not decode: {what}"))
    }
}

impl BlockRequest<'_> {
    fn damage(&self, column: Option<usize>, what: String) -> SegmentError {
        let name = column.map(|column| self.names[column].as_str());
        SegmentError::corrupt_block(&self.file.path, self.index, name, what)
    }
}

fn in_memory(length: u64) -> usize {
    usize::try_from(length).expect("64-bit address space")
}

fn signed(length: u64) -> i64 {
    i64::try_from(length).expect("a file is smaller than i64::MAX")
}
