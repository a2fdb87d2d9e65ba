//! The log: WAL, tail, segments, and the metadata that names them.
//!
//! Knows offsets, batches and rows. Knows no API key, error code or session.

pub mod disk;
pub mod meta;
pub mod segment;
pub mod wal;
