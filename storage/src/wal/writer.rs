//! The one thread that writes: drains the queue, writes a group, syncs it, tells who waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::entry::{EndMark, EntryHeader, HEADER_SIZE};
use super::queue::{Queued, Wake};
use super::staging::Staging;
use super::{Shared, SyncPolicy, WalError, entry_size};
use crate::disk::{AlignedBuffer, BLOCK_SIZE, DiskFile, align_up};

/// At most this much goes out under one sync: what is behind it waits no longer than that takes.
const GROUP_BYTES: u64 = 16 * 1024 * 1024;

/// Between two looks for room on a full disk.
const DISK_FULL_PAUSE: Duration = Duration::from_millis(50);

/// State of the writer thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    staging: Staging,
    batch: VecDeque<Queued>,
    log_id: u64,
    current: Option<Current>,
    written_through: u64,
    synced_through: u64,
    /// When the oldest unsynced group was written; only under an interval.
    unsynced_since: Option<Instant>,
}

/// The file being written.
struct Current {
    file: Arc<dyn DiskFile>,
    size: u64,
    position: u64,
}

/// Fails the WAL if the writer thread panics: a writer that is gone must not look like one that is slow.
struct PanicGuard(Arc<Shared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(WalError::Failed { cause: "the WAL writer panicked".into() });
        }
    }
}

impl Writer {
    /// A writer that continues after `last_seq`, which is synced.
    pub(super) fn new(shared: Arc<Shared>, log_id: u64, last_seq: u64) -> Writer {
        Writer {
            shared,
            staging: Staging::new(),
            batch: VecDeque::new(),
            log_id,
            current: None,
            written_through: last_seq,
            synced_through: last_seq,
            unsynced_since: None,
        }
    }

    /// Runs until the queue is closed and drained, or the first failure.
    pub(super) fn run(mut self) {
        let guard = PanicGuard(self.shared.clone());
        loop {
            let deadline = self.sync_deadline();
            let done = match self.shared.queue.take(&mut self.batch, deadline) {
                Wake::Entries => self.write_batch(),
                Wake::Deadline => self.sync(),
                Wake::Closed => {
                    match self.finish() {
                        Ok(()) => guard.0.end(),
                        Err(error) => guard.0.fail(error),
                    }
                    return;
                }
            };
            match done {
                Ok(()) => {}
                // Closed while it waited for room: what it could not write was acknowledged to nobody.
                Err(WalError::DiskFull { .. }) => self.batch.clear(),
                Err(error) => {
                    self.batch.clear();
                    guard.0.fail(error);
                    return;
                }
            }
        }
    }

    fn sync_deadline(&self) -> Option<Instant> {
        match self.shared.sync {
            SyncPolicy::Interval(milliseconds) => {
                self.unsynced_since.map(|since| since + Duration::from_millis(milliseconds))
            }
            SyncPolicy::Group | SyncPolicy::None => None,
        }
    }

    fn write_batch(&mut self) -> Result<(), WalError> {
        while !self.batch.is_empty() {
            let count = self.write_group()?;
            match self.shared.sync {
                SyncPolicy::Group => self.sync()?,
                SyncPolicy::Interval(_) => {
                    self.unsynced_since.get_or_insert_with(Instant::now);
                    if self.sync_deadline().is_some_and(|deadline| deadline <= Instant::now()) {
                        self.sync()?;
                    }
                }
                SyncPolicy::None => {}
            }
            self.complete(count);
        }
        Ok(())
    }

    /// Writes as many entries from the front of the batch as one group and one file take; returns how many.
    fn write_group(&mut self) -> Result<usize, WalError> {
        let first = self.batch.front().expect("a group has an entry");
        let (first_seq, first_size) = (first.seq, size_of(first));
        self.make_room(first_seq, first_size)?;
        let current = self.current.as_mut().expect("there is room in a file");
        let limit = (current.size - current.position).min(GROUP_BYTES.max(first_size));
        let mut bytes = 0;
        let mut count = 0;
        for queued in &self.batch {
            let size = size_of(queued);
            if bytes + size > limit {
                break;
            }
            bytes += size;
            count += 1;
        }
        let file = current.file.clone();
        let failed = |error| WalError::io("write", file.path(), error);
        self.staging.begin(current.position, usize::try_from(bytes).unwrap_or(usize::MAX));
        for queued in self.batch.iter().take(count) {
            let entry = &queued.entry;
            let header = EntryHeader {
                crc: 0,
                partition: entry.partition,
                seq: queued.seq,
                synced_through: self.synced_through,
                log_id: self.log_id,
                payload_size: u32::try_from(entry.prefix.len() + entry.body.len()).expect("checked when pushed"),
            };
            self.staging.push(&*file, header, &entry.prefix, &entry.body, entry.body_crc32c).map_err(failed)?;
        }
        current.position = self.staging.flush(&*file).map_err(failed)?;
        assert!(current.position <= current.size, "a group never outgrows its file");
        self.shared.space.set_room(current.size - current.position);
        self.written_through = self.batch[count - 1].seq;
        self.shared.stats.groups.fetch_add(1, Ordering::Relaxed);
        self.shared.stats.entries.fetch_add(u64::try_from(count).expect("a count fits 64 bits"), Ordering::Relaxed);
        self.shared.stats.bytes.fetch_add(align_up(bytes), Ordering::Relaxed);
        Ok(count)
    }

    /// Sees to it that an entry of `size` fits the current file, beginning the next file if it does not.
    fn make_room(&mut self, seq: u64, size: u64) -> Result<(), WalError> {
        if let Some(current) = &self.current {
            if align_up(size) <= current.size - current.position {
                return Ok(());
            }
            // The file is left for good: what an interval still owes it is paid now.
            match self.shared.sync {
                SyncPolicy::Interval(_) => self.sync()?,
                SyncPolicy::Group | SyncPolicy::None => {}
            }
        }
        let (file, size) = self.take_file(seq, size)?;
        self.current = Some(Current { file, size, position: 0 });
        Ok(())
    }

    /// The next file. Admission keeps one ready; should entries still have outgrown what was admitted (many small groups of one
    /// request, say) while the disk is full, they wait for room here: they are ordered but acknowledged to nobody.
    fn take_file(&self, seq: u64, size: u64) -> Result<(Arc<dyn DiskFile>, u64), WalError> {
        let mut warned = false;
        loop {
            match self.shared.space.take(seq, size) {
                Err(error @ WalError::DiskFull { .. }) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(%error, "the WAL waits for room");
                    }
                    if self.shared.queue.pause(Instant::now() + DISK_FULL_PAUSE) {
                        return Err(error);
                    }
                }
                taken => return taken,
            }
        }
    }

    fn sync(&mut self) -> Result<(), WalError> {
        if let Some(current) = &self.current {
            current.file.sync_data().map_err(|error| WalError::io("sync", current.file.path(), error))?;
            self.shared.stats.syncs.fetch_add(1, Ordering::Relaxed);
            self.synced_through = self.written_through;
        }
        self.unsynced_since = None;
        Ok(())
    }

    /// Tells sinks, then waiters, then those who wait to be admitted.
    fn complete(&mut self, count: usize) {
        let mut permits = 0;
        for queued in self.batch.drain(..count) {
            permits += queued.permits;
            queued.entry.sink.durable(queued.entry.token);
            self.shared.space.release(&queued.promise);
        }
        self.shared.progress.complete(self.written_through);
        self.shared.permits.add_permits(permits);
    }

    /// Leaves the last file synced, with an end mark and without its unused room.
    fn finish(&mut self) -> Result<(), WalError> {
        let Some(current) = &self.current else {
            return Ok(());
        };
        let failed = |error| WalError::io("close", current.file.path(), error);
        // Before the mark, which says so.
        current.file.sync_data().map_err(failed)?;
        let mut end = current.position;
        // A file without room for it goes unmarked: the mark is a help, not worth a new file.
        if end < current.size {
            let mark = EndMark { log_id: self.log_id, synced_through: self.written_through };
            let mut block = AlignedBuffer::zeroed(BLOCK_SIZE);
            block.as_mut_slice()[..HEADER_SIZE].copy_from_slice(&mark.to_bytes());
            current.file.write_all_at(block.as_slice(), end).map_err(failed)?;
            end = align_up(end + 1);
        }
        current.file.set_size(end).map_err(failed)?;
        current.file.sync_data().map_err(failed)
    }
}

fn size_of(queued: &Queued) -> u64 {
    entry_size(queued.entry.body.len())
}
