//! CRC-32C, the one checksum of segment files.

use weir_model::record_batch::combine_crc32c;

/// CRC-32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes))
}

/// CRC-32C of bytes that come in pieces, some of which bring their own.
#[derive(Debug)]
pub(crate) struct Crc32c {
    /// Of what was combined so far.
    combined: u32,
    /// Of what came after that.
    digest: crc_fast::Digest,
    digested: usize,
}

impl Crc32c {
    pub(crate) fn new() -> Self {
        Self { combined: 0, digest: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi), digested: 0 }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.digested += bytes.len();
    }

    /// Goes on with `len` bytes whose CRC is known.
    pub(crate) fn combine(&mut self, crc: u32, len: usize) {
        let combined = combine_crc32c(self.value(), crc, len);
        *self = Self { combined, ..Self::new() };
    }

    pub(crate) fn value(&self) -> u32 {
        combine_crc32c(self.combined, narrow(self.digest.finalize()), self.digested)
    }
}

fn narrow(checksum: u64) -> u32 {
    u32::try_from(checksum).expect("CRC-32C is 32 bits wide; the crate widens every checksum to u64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combined_pieces_give_the_crc_of_the_whole() {
        let bytes: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        let mut digest = Crc32c::new();
        digest.update(&bytes[..10]);
        digest.combine(crc32c(&bytes[10..70_000]), 69_990);
        digest.combine(crc32c(&[]), 0);
        digest.update(&bytes[70_000..]);
        assert_eq!(digest.value(), crc32c(&bytes));
    }
}
