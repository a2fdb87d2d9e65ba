//! CRC-32C, the one checksum of segment files.

/// CRC-32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes))
}

/// CRC-32C of bytes that come in pieces.
#[derive(Debug)]
pub(crate) struct Crc32c(crc_fast::Digest);

impl Crc32c {
    pub(crate) fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn value(&self) -> u32 {
        narrow(self.0.finalize())
    }
}

fn narrow(checksum: u64) -> u32 {
    u32::try_from(checksum).expect("CRC-32C is 32 bits wide; the crate widens every checksum to u64")
}
