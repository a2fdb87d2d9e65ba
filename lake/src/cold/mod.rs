//! Old offsets, read back from the lake.
//!
//! A read finds its files through the manifests, by the bounds of `_kafka.partition` and `_kafka.offset`, so it does not
//! care who wrote them: after a foreign compaction the same offsets are found in the new files. Of a file it fetches only
//! the pages of the wanted columns in which the offsets lie. Footers, manifests and the rows decoded beyond what was asked
//! are kept in bounded caches, so a consumer that reads on decodes no page twice.

mod footer;
mod index;
mod reader;
mod window;

pub use reader::{ColdOptions, ColdReader, TableNames};
