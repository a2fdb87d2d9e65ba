//! The writer's one buffer: entries are copied here once, checksummed while warm, and written in large aligned pieces.

use std::io;

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

use weir_model::record_batch::combine_crc32c;

use super::entry::{CHECKED_FROM, EntryHeader, HEADER_SIZE};
use crate::disk::{AlignedBuffer, BLOCK_SIZE, DiskFile};

/// Grown to on first use; an idle broker holds no more.
const INITIAL_BYTES: usize = 128 * 1024;
/// Grown to under load. Larger writes save no CPU here, and a buffer that stays in the cache does.
const MAX_BYTES: usize = 1024 * 1024;
/// A body is checksummed and copied in steps of this size, so that the second pass finds it in the cache.
const STEP_BYTES: usize = 64 * 1024;

/// Collects a group and writes it to one file, from one position on.
pub(super) struct Staging {
    buffer: AlignedBuffer,
    filled: usize,
    /// Where in the file the buffer's first byte belongs.
    position: u64,
}

impl Staging {
    pub(super) fn new() -> Staging {
        Staging { buffer: AlignedBuffer::zeroed(INITIAL_BYTES), filled: 0, position: 0 }
    }

    /// Starts a group of about `expected` bytes at `position`, a block boundary.
    pub(super) fn begin(&mut self, position: u64, expected: usize) {
        assert_eq!(self.filled, 0, "the group before was flushed");
        let wanted = expected.clamp(INITIAL_BYTES, MAX_BYTES).next_power_of_two();
        if wanted > self.buffer.len() {
            self.buffer = AlignedBuffer::zeroed(wanted);
        }
        self.position = position;
    }

    /// Adds one entry whose payload is `prefix` then `body`. The header's `crc` is computed here.
    pub(super) fn push(
        &mut self,
        file: &dyn DiskFile,
        mut header: EntryHeader,
        prefix: &[u8; 16],
        body: &[u8],
        body_crc32c: Option<u32>,
    ) -> io::Result<()> {
        let total = HEADER_SIZE + prefix.len() + body.len();
        if self.buffer.len() - self.filled >= total {
            self.push_in_place(header, prefix, body, body_crc32c);
            return Ok(());
        }
        // The entry goes out in pieces and its CRC in the first of them: checksum before copying.
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&header.to_bytes()[CHECKED_FROM..]);
        digest.update(prefix);
        header.crc = match body_crc32c {
            Some(known) => combine_crc32c(crc_of(&digest), known, body.len()),
            None => {
                digest.update(body);
                crc_of(&digest)
            }
        };
        self.append(file, &header.to_bytes())?;
        self.append(file, prefix)?;
        self.append(file, body)
    }

    fn push_in_place(&mut self, header: EntryHeader, prefix: &[u8; 16], body: &[u8], body_crc32c: Option<u32>) {
        let body_at = HEADER_SIZE + prefix.len();
        let total = body_at + body.len();
        let out = &mut self.buffer.as_mut_slice()[self.filled..self.filled + total];
        out[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
        out[HEADER_SIZE..body_at].copy_from_slice(prefix);
        let crc = if let Some(known) = body_crc32c {
            out[body_at..].copy_from_slice(body);
            combine_crc32c(crc32_iscsi(&out[CHECKED_FROM..body_at]), known, body.len())
        } else if body.len() <= STEP_BYTES {
            out[body_at..].copy_from_slice(body);
            crc32_iscsi(&out[CHECKED_FROM..])
        } else {
            let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
            digest.update(&out[CHECKED_FROM..body_at]);
            for (to, from) in out[body_at..].chunks_mut(STEP_BYTES).zip(body.chunks(STEP_BYTES)) {
                to.copy_from_slice(from);
                digest.update(to);
            }
            crc_of(&digest)
        };
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        self.filled += total;
    }

    /// Copies bytes in, writing the buffer out each time it is full.
    fn append(&mut self, file: &dyn DiskFile, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.filled == self.buffer.len() {
                self.write_out(file)?;
            }
            let part = rest.len().min(self.buffer.len() - self.filled);
            self.buffer.as_mut_slice()[self.filled..self.filled + part].copy_from_slice(&rest[..part]);
            self.filled += part;
            rest = &rest[part..];
        }
        Ok(())
    }

    /// Pads the group to a block boundary, writes what is left of it, and returns the position after it.
    pub(super) fn flush(&mut self, file: &dyn DiskFile) -> io::Result<u64> {
        let padded = self.filled.next_multiple_of(BLOCK_SIZE);
        self.buffer.as_mut_slice()[self.filled..padded].fill(0);
        self.filled = padded;
        self.write_out(file)?;
        Ok(self.position)
    }

    fn write_out(&mut self, file: &dyn DiskFile) -> io::Result<()> {
        file.write_all_at(&self.buffer.as_slice()[..self.filled], self.position)?;
        self.position += u64::try_from(self.filled).expect("a buffer's length fits 64 bits");
        self.filled = 0;
        Ok(())
    }
}

fn crc_of(digest: &Digest) -> u32 {
    u32::try_from(digest.finalize()).expect("CRC-32C has 32 bits")
}
