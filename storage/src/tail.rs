//! The tail of a partition: batches that are durable in the WAL (or about to be) and still in memory.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use weir_model::Offset;
use weir_model::record_batch::AssignedBatch;

use crate::wal::WalSeq;

/// One batch of the tail.
#[derive(Clone, Debug)]
pub struct TailEntry {
    /// The batch at its place.
    pub batch: AssignedBatch,
    /// Its entry in the WAL.
    pub seq: WalSeq,
    /// The decoded user columns, one row per record; `None` for a topic without schema, and for batches replayed from the
    /// WAL, which are decoded again when someone asks.
    pub columns: Option<RecordBatch>,
    /// What it costs in memory, in bytes.
    pub size: usize,
}

impl TailEntry {
    /// A batch with its columns.
    pub fn new(batch: AssignedBatch, seq: WalSeq, columns: Option<RecordBatch>) -> Self {
        let columns_size = columns.as_ref().map_or(0, RecordBatch::get_array_memory_size);
        let size = batch.size() + columns_size + size_of::<Self>();
        Self { batch, seq, columns, size }
    }

    /// Its first offset.
    pub fn start(&self) -> Offset {
        Offset::new(self.batch.header().base_offset).expect("assigned offsets are not negative")
    }

    /// Whether it is a transaction's marker rather than data.
    pub fn is_control(&self) -> bool {
        self.batch.header().attributes.is_control()
    }

    /// The offset after its last.
    pub fn end(&self) -> Offset {
        Offset::new(self.batch.header().last_offset()).expect("assigned offsets are not negative").next()
    }
}

/// The batches in offset order, without overlap.
#[derive(Debug, Default)]
pub struct Tail {
    entries: VecDeque<TailEntry>,
    size: usize,
    batch_bytes: usize,
}

impl Tail {
    /// Appends a batch.
    ///
    /// # Panics
    /// When it does not lie after the last one (LOG-4).
    pub fn push(&mut self, entry: TailEntry) {
        if let Some(last) = self.entries.back() {
            assert!(
                last.end() <= entry.start(),
                "LOG-4: batch at {} follows one that ends at {}",
                entry.start(),
                last.end()
            );
        }
        self.size += entry.size;
        self.batch_bytes += entry.batch.size();
        self.entries.push_back(entry);
    }

    /// Drops every batch that ends at or below `end`, and says how many bytes of memory that gave back.
    pub fn drop_below(&mut self, end: Offset) -> usize {
        let before = self.size;
        while let Some(entry) = self.entries.front()
            && entry.end() <= end
        {
            self.size -= entry.size;
            self.batch_bytes -= entry.batch.size();
            self.entries.pop_front();
        }
        // A partition that was busy once does not keep room for it for ever.
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
        before - self.size
    }

    /// The batches from the one that holds `offset`, or the next one after a gap.
    pub fn from(&self, offset: Offset) -> impl Iterator<Item = &TailEntry> {
        let first = self.entries.partition_point(|entry| entry.end() <= offset);
        self.entries.range(first..)
    }

    /// All batches.
    pub fn iter(&self) -> impl Iterator<Item = &TailEntry> {
        self.entries.iter()
    }

    /// The oldest batch.
    pub fn front(&self) -> Option<&TailEntry> {
        self.entries.front()
    }

    /// Memory that the batches and their columns take, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of the batches themselves.
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }
}
