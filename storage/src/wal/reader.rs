//! Reads one WAL file in large chunks and cuts entries out of them without copying.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::entry::{EntryHeader, HEADER_SIZE};
use crate::disk::{BLOCK_SIZE, DiskFile, align_down, align_up, aligned_start};

/// Read at a time: large enough for direct I/O at full speed, small enough to be checksummed from the cache.
const CHUNK_BYTES: usize = 2 * 1024 * 1024;

/// An entry whose CRC was checked.
pub(super) struct ReadEntry {
    pub(super) header: EntryHeader,
    pub(super) payload: Bytes,
}

/// Sequential reader of one file: positions asked for should not go back by more than what one chunk holds.
pub(super) struct EntryReader {
    file: Arc<dyn DiskFile>,
    size: u64,
    /// The bytes of the file from `chunk_position` on.
    chunk: Bytes,
    chunk_position: u64,
    /// The allocations of this chunk and of the one before, to be used in turn: an entry across two chunks is carried
    /// from one to the other.
    backings: [Bytes; 2],
}

impl EntryReader {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> io::Result<EntryReader> {
        // Files are made in whole blocks; a crash may leave a length that is not, and the rest holds no whole group.
        let size = align_down(file.size()?);
        Ok(EntryReader {
            file,
            size,
            chunk: Bytes::new(),
            chunk_position: 0,
            backings: [Bytes::new(), Bytes::new()],
        })
    }

    /// The readable length, whole blocks.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The plausible header at `position`, if there is one whose entry fits the file. The CRC is not checked.
    pub(super) fn header_at(&mut self, position: u64) -> io::Result<Option<EntryHeader>> {
        if position + 64 > self.size {
            return Ok(None);
        }
        self.load(position, HEADER_SIZE)?;
        let at = self.offset(position);
        let mut bytes = [0; HEADER_SIZE];
        bytes.copy_from_slice(&self.chunk[at..at + HEADER_SIZE]);
        Ok(EntryHeader::parse(&bytes).filter(|header| position + header.total_size() <= self.size))
    }

    /// The entry at `position` that `wanted` accepts by its header and whose CRC is right.
    pub(super) fn entry_at(
        &mut self,
        position: u64,
        wanted: impl Fn(&EntryHeader) -> bool,
    ) -> io::Result<Option<ReadEntry>> {
        let Some(header) = self.header_at(position)?.filter(|header| wanted(header)) else {
            return Ok(None);
        };
        let total = usize::try_from(header.total_size()).expect("an entry fits the address space");
        self.load(position, total)?;
        let at = self.offset(position);
        if !header.matches(&self.chunk[at..at + total]) {
            return Ok(None);
        }
        let payload = self.chunk.slice(at + HEADER_SIZE..at + total);
        Ok(Some(ReadEntry { header, payload }))
    }

    fn offset(&self, position: u64) -> usize {
        usize::try_from(position - self.chunk_position).expect("within the chunk")
    }

    /// Sees to it that the chunk holds `need` bytes from `position`, which must lie in the file.
    fn load(&mut self, position: u64, need: usize) -> io::Result<()> {
        let chunk_end = self.chunk_position + len_u64(self.chunk.len());
        let end = position + len_u64(need);
        if position >= self.chunk_position && end <= chunk_end {
            return Ok(());
        }
        // What the old chunk has of it moves to the front of the new one; the rest is read behind it, block aligned.
        let overlaps = position >= self.chunk_position && position < chunk_end;
        let (carried, read_from) = if overlaps {
            (self.chunk.slice(self.offset(position)..), chunk_end)
        } else {
            (Bytes::new(), align_down(position))
        };
        let read_to = align_up(end).max(read_from + len_u64(CHUNK_BYTES)).min(self.size);
        let read_len = usize::try_from(read_to - read_from).expect("a chunk fits the address space");
        let room = carried.len() + read_len + 2 * BLOCK_SIZE;
        let mut buffer = self.take_backing(room);
        let read_at = carried.len() + aligned_start(&buffer[carried.len()..]);
        buffer[read_at - carried.len()..read_at].copy_from_slice(&carried);
        self.file
            .read_exact_at(&mut buffer[read_at..read_at + read_len], read_from)?;
        let start = read_at - carried.len();
        self.chunk_position = read_from - len_u64(carried.len());
        let backing = buffer.freeze();
        self.chunk = backing.slice(start..read_at + read_len);
        self.backings.swap(0, 1);
        self.backings[0] = backing;
        Ok(())
    }

    /// The memory of the chunk before this one when nobody kept a slice of it, else new memory.
    fn take_backing(&mut self, room: usize) -> BytesMut {
        match std::mem::take(&mut self.backings[1]).try_into_mut() {
            Ok(unique) if unique.len() >= room => unique,
            _ => BytesMut::zeroed(room),
        }
    }
}

fn len_u64(len: usize) -> u64 {
    u64::try_from(len).expect("a length fits 64 bits")
}
