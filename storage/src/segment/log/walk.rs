//! Walking batch headers without reading the batches.

use weir_model::OffsetRange;
use weir_model::record_batch::{BatchHeader, HEADER_SIZE};

use super::super::SegmentError;
use super::super::file::SealedFile;

/// One read. Batches smaller than this share it; for larger ones only the header's page is touched.
const WINDOW_BYTES: u64 = 4096;

/// A batch header and where its batch lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) position: u64,
    pub(super) header: BatchHeader,
}

impl Placed {
    /// First position after the batch.
    pub(super) fn end(&self) -> u64 {
        self.position + self.header.total_size() as u64
    }
}

/// Yields the headers from `position` on, which must be where a batch begins. Checks that batches fit the file, rise in
/// offset and lie in the segment's range: these fields are outside Kafka's CRC.
pub(super) struct HeaderWalk<'a> {
    file: &'a SealedFile,
    range: OffsetRange,
    position: u64,
    least_offset: i64,
    window: Vec<u8>,
    window_from: u64,
}

impl<'a> HeaderWalk<'a> {
    pub(super) fn new(file: &'a SealedFile, range: OffsetRange, position: u64) -> Self {
        Self { file, range, position, least_offset: range.start.get(), window: Vec::new(), window_from: 0 }
    }

    /// The next header, or `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Placed>, SegmentError> {
        if self.position == self.file.size_bytes {
            return Ok(None);
        }
        let position = self.position;
        let header = BatchHeader::parse(self.header_bytes()?)
            .map_err(|error| SegmentError::corrupt(&self.file.path, format!("at byte {position}: {error}")))?;
        let placed = Placed { position, header };
        check(&self.file.path, self.range, self.least_offset, &placed)?;
        if placed.end() > self.file.size_bytes {
            return Err(SegmentError::corrupt(
                &self.file.path,
                format!("the batch at byte {position} has {} bytes and runs past the end", header.total_size()),
            ));
        }
        self.least_offset = header.last_offset() + 1;
        self.position = placed.end();
        Ok(Some(placed))
    }

    fn header_bytes(&mut self) -> Result<&[u8], SegmentError> {
        let wanted_end = self.position + HEADER_SIZE as u64;
        let have_end = self.window_from + self.window.len() as u64;
        if self.position < self.window_from || wanted_end > have_end {
            let length = WINDOW_BYTES.min(self.file.size_bytes - self.position);
            self.window = self.file.read(self.position, length)?;
            self.window_from = self.position;
        }
        let at = usize::try_from(self.position - self.window_from).expect("inside the window");
        Ok(&self.window[at..])
    }
}

/// Offsets of a batch, checked against what came before it and against the segment.
pub(super) fn check(
    path: &std::path::Path,
    range: OffsetRange,
    least_offset: i64,
    placed: &Placed,
) -> Result<(), SegmentError> {
    let Placed { position, header } = placed;
    let fits = header.last_offset_delta >= 0
        && header.base_offset >= least_offset
        && header
            .base_offset
            .checked_add(i64::from(header.last_offset_delta))
            .is_some_and(|last| last < range.end.get());
    if fits {
        return Ok(());
    }
    Err(SegmentError::corrupt(
        path,
        format!(
            "the batch at byte {position} says it holds {} offsets from {}, but {least_offset}..{} are left",
            i64::from(header.last_offset_delta) + 1,
            header.base_offset,
            range.end,
        ),
    ))
}
