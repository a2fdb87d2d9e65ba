//! Reads one WAL file in large chunks and cuts entries out of them without copying.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::entry::{EndMark, EntryHeader, HEADER_SIZE};
use super::read_ahead::{Chunk, ReadAhead};
use crate::disk::{BLOCK_SIZE, DiskFile, align_down, align_up, aligned_start};

/// Read at a time: large enough for direct I/O at full speed, small enough to be checksummed from the cache.
const CHUNK_BYTES: usize = 2 * 1024 * 1024;

/// Room in front of a chunk that is read ahead, for an entry that began in the one before: a batch of Kafka's default size
/// limit. A larger one is carried too, but its rest is read when it is met.
const CARRY_BYTES: usize = 1024 * 1024 + BLOCK_SIZE;

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
    /// The chunk's whole allocation, to be used again for the chunk after the next.
    backing: Bytes,
    /// Runs once the file turns out to be read in sequence.
    ahead: Option<ReadAhead>,
}

impl EntryReader {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> io::Result<EntryReader> {
        // Files are made in whole blocks; a crash may leave a length that is not, and the rest holds no whole group.
        let size = align_down(file.size()?);
        Ok(EntryReader { file, size, chunk: Bytes::new(), chunk_position: 0, backing: Bytes::new(), ahead: None })
    }

    /// The readable length, whole blocks.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The plausible header at `position`, if there is one whose entry fits the file. The CRC is not checked.
    pub(super) fn header_at(&mut self, position: u64) -> io::Result<Option<EntryHeader>> {
        let Some(bytes) = self.header_bytes(position)? else {
            return Ok(None);
        };
        Ok(EntryHeader::parse(&bytes).filter(|header| position + header.total_size() <= self.size))
    }

    /// The end mark at `position`, if there is one.
    pub(super) fn end_mark_at(&mut self, position: u64) -> io::Result<Option<EndMark>> {
        Ok(self.header_bytes(position)?.and_then(|bytes| EndMark::parse(&bytes)))
    }

    fn header_bytes(&mut self, position: u64) -> io::Result<Option<[u8; HEADER_SIZE]>> {
        if position + 64 > self.size {
            return Ok(None);
        }
        self.load(position, HEADER_SIZE)?;
        let at = self.offset(position);
        let mut bytes = [0; HEADER_SIZE];
        bytes.copy_from_slice(&self.chunk[at..at + HEADER_SIZE]);
        Ok(Some(bytes))
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
        let mut next = self.read_from(read_from, end, carried.len())?;
        let start = next.at - carried.len();
        next.buffer[start..next.at].copy_from_slice(&carried);
        let read_to = next.position + len_u64(next.len);
        self.chunk_position = read_from - len_u64(carried.len());
        let backing = next.buffer.freeze();
        self.chunk = backing.slice(start..next.at + next.len);
        drop(carried);
        let old = std::mem::replace(&mut self.backing, backing);
        if overlaps {
            self.begin_next(read_to, old)?;
        }
        Ok(())
    }

    /// The chunk that starts at `from` and holds what is up to `to`, with room for `carried` bytes in front: the one that was
    /// read ahead if it will do, else one read now.
    fn read_from(&mut self, from: u64, to: u64, carried: usize) -> io::Result<Chunk> {
        if let Some(ahead) = self.ahead.as_mut() {
            let fits = |chunk: &Chunk| chunk.position == from && from + len_u64(chunk.len) >= to && chunk.at >= carried;
            if let Some(chunk) = ahead.take()?.filter(fits) {
                return Ok(chunk);
            }
        }
        let mut chunk = self.chunk_at(from, to, carried, Bytes::new());
        chunk.read(&*self.file)?;
        Ok(chunk)
    }

    /// Begins to read the chunk at `from`, into `old` if nobody kept a slice of it.
    fn begin_next(&mut self, from: u64, old: Bytes) -> io::Result<()> {
        if from >= self.size {
            return Ok(());
        }
        let chunk = self.chunk_at(from, from, CARRY_BYTES, old);
        if self.ahead.is_none() {
            self.ahead = Some(ReadAhead::start(self.file.clone())?);
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.request(chunk);
        }
        Ok(())
    }

    /// A chunk to be read: from a block boundary in the file to one in memory.
    fn chunk_at(&self, from: u64, to: u64, carried: usize, old: Bytes) -> Chunk {
        let read_to = align_up(to).max(from + len_u64(CHUNK_BYTES)).min(self.size);
        let len = usize::try_from(read_to - from).expect("a chunk fits the address space");
        let room = carried + BLOCK_SIZE + len;
        let buffer = match old.try_into_mut() {
            Ok(unique) if unique.len() >= room => unique,
            _ => BytesMut::zeroed(room),
        };
        let at = carried + aligned_start(&buffer[carried..]);
        Chunk { buffer, at, position: from, len }
    }
}

fn len_u64(len: usize) -> u64 {
    u64::try_from(len).expect("a length fits 64 bits")
}
