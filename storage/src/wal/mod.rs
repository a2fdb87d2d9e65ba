//! The write-ahead log: one per broker, shared by all partitions, so that a thousand partitions cost one sync.
//!
//! A request is *admitted* (in-flight bytes and disk space, the only step that waits or is refused), then its batches are
//! *pushed* under their partition's lock (no I/O; this is what orders them), then somebody awaits [`Wal::durable`]. One
//! thread writes what was pushed in groups: one write, one sync, then the sinks in order, then the waiters. While a group
//! syncs, the next one collects. An idle log delays nothing.
//!
//! Files are allocated before they are needed, named by the seq of their first entry, and recycled when trimmed. The bytes
//! of an entry are drawn in `entry.rs`. Reading them back: a tail that a crash tore is cut off and reported; an
//! unreadable entry that a later one proves to have been synced is an error, and nothing is touched.

mod entry;
mod error;
mod inspect;
mod queue;
mod read_ahead;
mod reader;
mod recovery;
mod space;
mod staging;
mod writer;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, TryAcquireError};
use uuid::Uuid;
use weir_model::PartitionId;

use crate::disk::{Disk, align_up};
use entry::HEADER_SIZE;
pub use error::WalError;
pub use inspect::{Following, Report, WalDamage, inspect};
pub use queue::Durable;
use queue::{Progress, Queue};
pub use recovery::{Recovery, TornTail};
use space::{Promise, Space};
use writer::Writer;

/// In-flight bytes are counted in units of this, so that any limit fits a semaphore.
const PERMIT_BYTES: usize = 64;

/// The place of an entry in the log: 1, 2, 3... across files and restarts, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalSeq(u64);

impl WalSeq {
    /// Before every entry.
    pub const ZERO: WalSeq = WalSeq(0);

    /// The seq with this number.
    pub fn new(seq: u64) -> WalSeq {
        WalSeq(seq)
    }

    /// Its number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The seq after it.
    pub fn next(self) -> WalSeq {
        WalSeq(self.0 + 1)
    }
}

impl fmt::Display for WalSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When the log is synced, and with that when an entry counts as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// After every group; an entry is complete when it is synced.
    Group,
    /// This many milliseconds after the first unsynced write; an entry is complete when it is written. Losing power
    /// loses up to that much.
    Interval(u64),
    /// Never, but for a clean close; the operating system decides. An entry is complete when it is written.
    None,
}

/// What is done once when the log fails (LOG-5). Called on the writer thread.
pub type OnFatal = Arc<dyn Fn(WalError) + Send + Sync>;

/// How a WAL behaves.
#[derive(Clone)]
pub struct WalConfig {
    /// Size of one file in bytes; rounded up to whole blocks, at least 16 KiB. An entry that is larger gets a file of its own size.
    pub segment_bytes: u64,
    /// When to sync.
    pub sync: SyncPolicy,
    /// Limit of bytes admitted and not yet complete. One request above it is admitted alone.
    pub max_in_flight_bytes: usize,
    /// How many trimmed files are kept for use again.
    pub spare_files: usize,
    /// What to do when a write or sync failed. The process must not go on: by default it aborts.
    pub on_fatal: OnFatal,
}

impl Default for WalConfig {
    fn default() -> Self {
        WalConfig {
            segment_bytes: 64 * 1024 * 1024,
            sync: SyncPolicy::Group,
            max_in_flight_bytes: 64 * 1024 * 1024,
            spare_files: 2,
            on_fatal: Arc::new(|error| {
                tracing::error!(%error, "the WAL failed: stopping, so that nothing is acknowledged that may be lost");
                std::process::abort();
            }),
        }
    }
}

/// One record batch to be logged.
pub struct WalEntry {
    /// Whose batch it is.
    pub partition: PartitionId,
    /// The first 16 bytes of the batch: base offset, length and leader epoch, as assigned.
    pub prefix: [u8; 16],
    /// The rest of it, as the client sent it.
    pub body: Bytes,
    /// CRC-32C of `body` where it is known already; `None` has the writer compute it. A wrong one makes the entry unreadable.
    pub body_crc32c: Option<u32>,
    /// Who is told when it is complete.
    pub sink: Arc<dyn DurableSink>,
    /// What the sink is told.
    pub token: u64,
}

/// Told about complete entries.
pub trait DurableSink: Send + Sync {
    /// The entry pushed with `token` is complete, and so is every entry before it. Called on the writer thread, in order,
    /// before anybody who awaits the entry wakes: must be quick and must not push.
    fn durable(&self, token: u64);
}

/// Permission to push entries of a number of bytes. What is not used is given back when it is dropped.
pub struct Admission {
    shared: Arc<Shared>,
    permits: usize,
    promise: Promise,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.shared.permits.add_permits(self.permits);
        self.shared.space.release(&self.promise);
    }
}

/// Counters since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Entries written.
    pub entries: u64,
    /// Bytes written, headers and padding included.
    pub bytes: u64,
    /// Groups written.
    pub groups: u64,
    /// Syncs done.
    pub syncs: u64,
}

#[derive(Default)]
struct Counters {
    entries: AtomicU64,
    bytes: AtomicU64,
    groups: AtomicU64,
    syncs: AtomicU64,
}

/// What handles and writer share.
struct Shared {
    queue: Queue,
    progress: Arc<Progress>,
    space: Space,
    permits: Semaphore,
    permit_limit: usize,
    sync: SyncPolicy,
    on_fatal: OnFatal,
    stats: Counters,
}

impl Shared {
    /// Nothing completes any more. The process is told first, those who wait afterwards.
    fn fail(&self, error: WalError) {
        let cause = match &error {
            WalError::Failed { cause } => cause.clone(),
            other => other.to_string().into(),
        };
        self.progress.set_end(WalError::Failed { cause });
        self.permits.close();
        drop(self.queue.abandon());
        (self.on_fatal)(error);
        self.progress.wake_all();
    }

    /// A clean end.
    fn end(&self) {
        self.progress.set_end(WalError::Closed);
        self.permits.close();
        self.progress.wake_all();
    }

    fn why_ended(&self) -> WalError {
        self.progress.end().unwrap_or(WalError::Closed)
    }
}

/// Handle of the log. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Wal {
    shared: Arc<Shared>,
    thread: Arc<WriterThread>,
    recovery: Arc<Recovery>,
}

struct WriterThread {
    shared: Arc<Shared>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl WriterThread {
    fn stop(&self) {
        self.shared.queue.close();
        let handle = self.handle.lock().take();
        // A sink may hold the last handle; the writer cannot wait for itself.
        if let Some(handle) = handle.filter(|handle| handle.thread().id() != std::thread::current().id())
            && handle.join().is_err()
        {
            tracing::error!("the WAL writer panicked");
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Wal {
    /// Opens the log in `directory`, handing every entry to `replay` in order: its seq, its partition, and its batch
    /// (prefix and body in one). The batches share the memory of the chunks they were read in; keep copies to keep little.
    /// What was replayed is synced when this returns.
    ///
    /// Blocks. The caller sees to it that no other process has the directory open.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] and [`WalError::Overlap`] when synced entries are unreadable; nothing was changed then, though
    /// `replay` has seen the entries before. [`WalError::Io`] when the file system refuses.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: impl Into<PathBuf>,
        config: WalConfig,
        replay: &mut dyn FnMut(WalSeq, PartitionId, Bytes),
    ) -> Result<Wal, WalError> {
        let directory = directory.into();
        disk.create_dir_all(&directory).map_err(|error| WalError::io("create", &directory, error))?;
        let found = space::find(&*disk, &directory)?;
        let recovered = recovery::recover(&*disk, &directory, found.log, replay)?;
        let segment_bytes = align_up(config.segment_bytes.max(16 * 1024));
        let space = Space::new(disk, directory, segment_bytes, config.spare_files, recovered.log, found.spares)?;
        let permit_limit = (config.max_in_flight_bytes / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(1 << 31));
        let last_seq = recovered.next_seq - 1;
        let shared = Arc::new(Shared {
            queue: Queue::new(recovered.next_seq),
            progress: Arc::new(Progress::new(last_seq)),
            space,
            permits: Semaphore::new(permit_limit),
            permit_limit,
            sync: config.sync,
            on_fatal: config.on_fatal,
            stats: Counters::default(),
        });
        let log_id = recovered.log_id.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
        let writer = Writer::new(shared.clone(), log_id, last_seq);
        let handle = std::thread::Builder::new()
            .name("weir-wal".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| WalError::io("start the writer thread of", "the WAL", error))?;
        Ok(Wal {
            thread: Arc::new(WriterThread { shared: shared.clone(), handle: Mutex::new(Some(handle)) }),
            shared,
            recovery: Arc::new(recovered.report),
        })
    }

    /// What an entry with a body of this many bytes takes of an admission.
    pub fn entry_bytes(body_len: usize) -> usize {
        HEADER_SIZE + 16 + body_len
    }

    /// Waits until `bytes` (the sum of [`Wal::entry_bytes`]) may be in flight, and reserves disk space for them. May allocate a file, which takes
    /// well under a millisecond. Cancel safe.
    ///
    /// # Errors
    /// [`WalError::DiskFull`]: refuse the request, try again later. [`WalError::Failed`], [`WalError::Closed`]: never again.
    pub async fn admit(&self, bytes: usize) -> Result<Admission, WalError> {
        let permits = self.permits_for(bytes);
        let count = u32::try_from(permits).expect("the limit fits 32 bits");
        match self.shared.permits.acquire_many(count).await {
            Ok(permit) => permit.forget(),
            Err(_closed) => return Err(self.shared.why_ended()),
        }
        self.admitted(bytes, permits)
    }

    /// As [`Wal::admit`], without waiting: `None` when too much is in flight.
    pub fn try_admit(&self, bytes: usize) -> Result<Option<Admission>, WalError> {
        let permits = self.permits_for(bytes);
        let count = u32::try_from(permits).expect("the limit fits 32 bits");
        match self.shared.permits.try_acquire_many(count) {
            Ok(permit) => permit.forget(),
            Err(TryAcquireError::NoPermits) => return Ok(None),
            Err(TryAcquireError::Closed) => return Err(self.shared.why_ended()),
        }
        self.admitted(bytes, permits).map(Some)
    }

    fn permits_for(&self, bytes: usize) -> usize {
        bytes.div_ceil(PERMIT_BYTES).clamp(1, self.shared.permit_limit)
    }

    fn admitted(&self, bytes: usize, permits: usize) -> Result<Admission, WalError> {
        match self.shared.space.promise(size_u64(bytes)) {
            Ok(promise) => Ok(Admission { shared: self.shared.clone(), permits, promise }),
            Err(error) => {
                self.shared.permits.add_permits(permits);
                Err(error)
            }
        }
    }

    /// Orders an entry. No I/O and no waiting: made to be called under a partition's lock. The seq says where it stands;
    /// whether it got there is for [`Wal::durable`] to tell.
    ///
    /// # Panics
    /// When the body has 4 GiB or more, which no request frame does.
    pub fn push(&self, admission: &mut Admission, entry: WalEntry) -> WalSeq {
        let bytes = Wal::entry_bytes(entry.body.len());
        assert!(u32::try_from(bytes).is_ok(), "an entry is below 4 GiB");
        let permits = bytes.div_ceil(PERMIT_BYTES).min(admission.permits);
        admission.permits -= permits;
        let promise = self.shared.space.split(&mut admission.promise, size_u64(bytes));
        let (seq, refused) = self.shared.queue.push(entry, permits, promise);
        if let Some(refused) = refused {
            self.shared.permits.add_permits(refused.permits);
            self.shared.space.release(&refused.promise);
        }
        WalSeq(seq)
    }

    /// Resolves when the entry is complete, which says it is synced under [`SyncPolicy::Group`]. Cheap when it already is. Cancel safe.
    ///
    /// # Errors
    /// [`WalError::Failed`] when it is unknown whether the entry will survive; [`WalError::Closed`] when it was pushed too late.
    pub fn durable(&self, seq: WalSeq) -> Durable {
        Durable::new(self.shared.progress.clone(), seq)
    }

    /// The last complete entry.
    pub fn durable_seq(&self) -> WalSeq {
        WalSeq(self.shared.progress.complete_through())
    }

    /// The seq that the next entry will get.
    pub fn next_seq(&self) -> WalSeq {
        WalSeq(self.shared.queue.next_seq())
    }

    /// Gives up every entry before `below`, because it is kept elsewhere. Whole files go, so that some come back at
    /// the next replay. Blocks for a rename or removal per file.
    ///
    /// # Errors
    /// [`WalError::Io`] when a file cannot be removed; the log goes on, and the next trim tries again.
    pub fn trim(&self, below: WalSeq) -> Result<(), WalError> {
        self.shared.space.trim(below.0)
    }

    /// Bytes of the log's files, unused room included, spare files not.
    pub fn size_bytes(&self) -> u64 {
        self.shared.space.size_bytes()
    }

    /// The oldest entry that a replay would see; [`Wal::next_seq`] when it would see none.
    pub fn oldest_seq(&self) -> WalSeq {
        self.shared.space.oldest_seq().map_or_else(|| self.next_seq(), WalSeq)
    }

    /// What opening found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Counters since opening.
    pub fn stats(&self) -> WalStats {
        let stats = &self.shared.stats;
        WalStats {
            entries: stats.entries.load(Ordering::Relaxed),
            bytes: stats.bytes.load(Ordering::Relaxed),
            groups: stats.groups.load(Ordering::Relaxed),
            syncs: stats.syncs.load(Ordering::Relaxed),
        }
    }

    /// Bytes that may still be admitted without waiting.
    pub fn available_bytes(&self) -> usize {
        self.shared.permits.available_permits() * PERMIT_BYTES
    }

    /// Writes and syncs what was pushed, gives back the unused end of the last file, and stops the writer. Blocks.
    ///
    /// # Errors
    /// [`WalError::Failed`] when the log failed, now or before.
    pub fn close(&self) -> Result<(), WalError> {
        self.thread.stop();
        match self.shared.progress.end() {
            Some(WalError::Closed) | None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

/// Header, prefix and body of an entry on the disk.
fn entry_size(body_len: usize) -> u64 {
    size_u64(Wal::entry_bytes(body_len))
}

fn size_u64(size: usize) -> u64 {
    u64::try_from(size).expect("a length fits 64 bits")
}

#[cfg(test)]
mod tests;
