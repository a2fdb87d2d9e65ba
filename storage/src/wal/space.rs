//! The WAL's files: which exist, which are spare, and how much of them is promised.
//!
//! A spare file is allocated before anybody needs it, so that a full disk is met when a request is admitted and can still
//! be refused, never when it is ordered and cannot.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::WalError;
use crate::disk::{Caching, Disk, DiskFile, align_up, is_disk_full};

const LOG_SUFFIX: &str = ".wal";
const SPARE_SUFFIX: &str = ".spare";

/// Charged to each admission on top of its bytes: the padding of a group.
const PADDING: u64 = 4096;

/// A file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogFile {
    /// The seq of its first entry, which is its name.
    pub(super) first_seq: u64,
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

/// What a listing of the directory found.
pub(super) struct Found {
    /// By first seq.
    pub(super) log: Vec<LogFile>,
    pub(super) spares: Vec<Spare>,
}

#[derive(Clone, Debug)]
pub(super) struct Spare {
    path: PathBuf,
    size: u64,
}

/// All files of one WAL.
pub(super) struct Space {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    segment_bytes: u64,
    kept_spares: usize,
    /// Bytes admitted and not yet durable, with what surrounds them on the disk.
    promised: AtomicU64,
    /// Free bytes in the file being written.
    room: AtomicU64,
    spare_count: AtomicUsize,
    files: Mutex<Files>,
}

struct Files {
    log: VecDeque<LogFile>,
    spares: Vec<Spare>,
    next_spare: u64,
    /// Admitted requests that may need a file larger than `segment_bytes`.
    large_promised: usize,
}

/// A part of the space, promised to one admission. Must be given back with [`Space::release`].
#[derive(Debug, Default)]
pub(super) struct Promise {
    pub(super) bytes: u64,
    pub(super) large: bool,
}

/// Lists the directory's files; anything else in it is left alone.
pub(super) fn find(disk: &dyn Disk, directory: &Path) -> Result<Found, WalError> {
    let entries = disk.list(directory).map_err(|error| WalError::io("list", directory, error))?;
    let mut found = Found { log: Vec::new(), spares: Vec::new() };
    for entry in entries {
        let path = directory.join(&entry.name);
        let size = entry.size_bytes;
        if let Some(first_seq) = entry.name.strip_suffix(LOG_SUFFIX).and_then(|name| name.parse().ok()) {
            found.log.push(LogFile { first_seq, path, size });
        } else if entry.name.ends_with(SPARE_SUFFIX) {
            found.spares.push(Spare { path, size });
        }
    }
    found.log.sort_by_key(|file| file.first_seq);
    Ok(found)
}

impl Space {
    /// Takes over what recovery left. Spares of another size, or too many of them, are removed.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        directory: PathBuf,
        segment_bytes: u64,
        kept_spares: usize,
        log: Vec<LogFile>,
        spares: Vec<Spare>,
    ) -> Result<Space, WalError> {
        let next_spare =
            spares.iter().filter_map(|spare| spare_number(&spare.path)).max().map_or(0, |number| number + 1);
        let (kept, surplus): (Vec<_>, Vec<_>) = spares
            .into_iter()
            .enumerate()
            .partition(|(index, spare)| *index < kept_spares && spare.size == segment_bytes);
        for (_, spare) in surplus {
            disk.remove(&spare.path).map_err(|error| WalError::io("remove", &spare.path, error))?;
        }
        let spares: Vec<Spare> = kept.into_iter().map(|(_, spare)| spare).collect();
        Ok(Space {
            disk,
            directory,
            segment_bytes,
            kept_spares,
            promised: AtomicU64::new(0),
            room: AtomicU64::new(0),
            spare_count: AtomicUsize::new(spares.len()),
            files: Mutex::new(Files { log: log.into(), spares, next_spare, large_promised: 0 }),
        })
    }

    /// Promises room for entries of `bytes` in all, allocating files as needed.
    ///
    /// # Errors
    /// [`WalError::DiskFull`] when there is no room, [`WalError::Io`] when the file system refuses for another reason.
    pub(super) fn promise(&self, bytes: u64) -> Result<Promise, WalError> {
        let bytes = bytes.saturating_add(PADDING);
        let total = self.promised.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let large = bytes > self.segment_bytes;
        let ready = !large && self.spare_count.load(Ordering::Relaxed) >= self.spares_for(total).max(1);
        if !ready && let Err(error) = self.allocate_for(total, large.then_some(bytes)) {
            self.promised.fetch_sub(bytes, Ordering::Relaxed);
            return Err(error);
        }
        Ok(Promise { bytes, large })
    }

    /// Takes the share of an entry of `bytes` out of a promise. One that is too small is topped up rather than refused: it
    /// was the admission that could be refused.
    pub(super) fn split(&self, promise: &mut Promise, bytes: u64) -> Promise {
        let share = bytes.saturating_add(PADDING);
        let paid = share.min(promise.bytes);
        self.promised.fetch_add(share - paid, Ordering::Relaxed);
        promise.bytes -= paid;
        let large = promise.large && bytes > self.segment_bytes;
        if large {
            promise.large = false;
        }
        Promise { bytes: share, large }
    }

    /// Gives back a promise, or the part of one that is durable or was not used.
    pub(super) fn release(&self, promise: &Promise) {
        self.promised.fetch_sub(promise.bytes, Ordering::Relaxed);
        if promise.large {
            self.files.lock().large_promised -= 1;
        }
    }

    /// How many spares hold `total` bytes of entries in the worst packing: entries do not span files, so that of two
    /// neighbouring files at least one file's worth is filled. What fits the file being written needs none.
    fn spares_for(&self, total: u64) -> usize {
        if total <= self.room.load(Ordering::Relaxed) {
            return 0;
        }
        usize::try_from(total.saturating_mul(2).div_ceil(self.segment_bytes)).unwrap_or(usize::MAX)
    }

    fn allocate_for(&self, total: u64, large: Option<u64>) -> Result<(), WalError> {
        let mut files = self.files.lock();
        if let Some(bytes) = large {
            let size = align_up(bytes);
            let fitting = files.spares.iter().filter(|spare| spare.size >= size).count();
            if fitting <= files.large_promised {
                self.add_spare(&mut files, size)?;
            }
            files.large_promised += 1;
        }
        let needed = self.spares_for(total);
        while self.normal_spares(&files) < needed.max(1) {
            match self.add_spare(&mut files, self.segment_bytes) {
                Ok(()) => {}
                // One is kept ahead for speed; without it the promise still holds.
                Err(WalError::DiskFull { .. }) if self.normal_spares(&files) >= needed => break,
                Err(error) => {
                    if large.is_some() {
                        files.large_promised -= 1;
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn normal_spares(&self, files: &Files) -> usize {
        files.spares.iter().filter(|spare| spare.size == self.segment_bytes).count()
    }

    fn add_spare(&self, files: &mut Files, size: u64) -> Result<(), WalError> {
        let path = self.directory.join(format!("{:06}{SPARE_SUFFIX}", files.next_spare));
        files.next_spare += 1;
        let allocated = self.disk.create(&path, Caching::Direct).and_then(|file| file.preallocate(size));
        match allocated {
            Ok(()) => {
                files.spares.push(Spare { path, size });
                self.count_spares(files);
                Ok(())
            }
            Err(error) => {
                // The name may or may not have come to be; an empty leftover is removed at the next start.
                if let Err(error) = self.disk.remove(&path) {
                    tracing::debug!(path = %path.display(), %error, "no unfinished spare file to remove");
                }
                Err(if is_disk_full(&error) {
                    WalError::DiskFull { directory: self.directory.clone(), needed_bytes: size }
                } else {
                    WalError::io("allocate", path, error)
                })
            }
        }
    }

    fn count_spares(&self, files: &Files) {
        self.spare_count.store(self.normal_spares(files), Ordering::Relaxed);
    }

    /// Turns a spare of at least `need` bytes into the next file of the log, durably, and returns it with its size.
    ///
    /// Without a fitting spare (an admission was smaller than what was pushed) one is allocated now.
    pub(super) fn take(&self, first_seq: u64, need: u64) -> Result<(Arc<dyn DiskFile>, u64), WalError> {
        let spare = self.take_spare(align_up(need).max(self.segment_bytes))?;
        // No lock across the sync: an admission may be waiting to allocate the next spare.
        let path = self.directory.join(format!("{first_seq:020}{LOG_SUFFIX}"));
        self.disk.rename(&spare.path, &path).map_err(|error| WalError::io("rename", &spare.path, error))?;
        let file = self.disk.open(&path, Caching::Direct).map_err(|error| WalError::io("open", &path, error))?;
        // The name first: were a recycled file still known by its old name, its new entries would be lost with it.
        self.disk.sync_dir(&self.directory).map_err(|error| WalError::io("sync", &self.directory, error))?;
        let mut files = self.files.lock();
        files.log.retain(|file| file.first_seq != first_seq);
        files.log.push_back(LogFile { first_seq, path, size: spare.size });
        self.set_room(spare.size);
        Ok((file, spare.size))
    }

    /// The smallest spare of at least `size` bytes.
    fn take_spare(&self, size: u64) -> Result<Spare, WalError> {
        let mut files = self.files.lock();
        if !files.spares.iter().any(|spare| spare.size >= size) {
            self.add_spare(&mut files, size)?;
        }
        let smallest = files
            .spares
            .iter()
            .enumerate()
            .filter(|(_, spare)| spare.size >= size)
            .min_by_key(|(_, spare)| spare.size)
            .map(|(index, _)| index)
            .expect("one was found or added");
        let spare = files.spares.swap_remove(smallest);
        self.count_spares(&files);
        Ok(spare)
    }

    /// Tells how much of the file being written is left.
    pub(super) fn set_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::Relaxed);
    }

    /// Recycles or removes every file whose entries are all below `below`; never the newest file.
    pub(super) fn trim(&self, below: u64) -> Result<(), WalError> {
        let mut files = self.files.lock();
        while files.log.len() > 1 && files.log[1].first_seq <= below {
            let oldest = files.log[0].clone();
            if oldest.size == self.segment_bytes && self.normal_spares(&files) < self.wanted_spares() {
                let path = self.directory.join(format!("{:06}{SPARE_SUFFIX}", files.next_spare));
                files.next_spare += 1;
                self.disk.rename(&oldest.path, &path).map_err(|error| WalError::io("rename", &oldest.path, error))?;
                files.spares.push(Spare { path, size: oldest.size });
            } else {
                self.disk.remove(&oldest.path).map_err(|error| WalError::io("remove", &oldest.path, error))?;
            }
            files.log.pop_front();
            self.count_spares(&files);
        }
        self.drop_surplus(&mut files)
    }

    fn wanted_spares(&self) -> usize {
        self.kept_spares.max(self.spares_for(self.promised.load(Ordering::Relaxed)))
    }

    /// Removes spares that no promise can need.
    fn drop_surplus(&self, files: &mut Files) -> Result<(), WalError> {
        let large = |spare: &Spare| spare.size != self.segment_bytes;
        loop {
            let surplus = if files.spares.iter().filter(|spare| large(spare)).count() > files.large_promised {
                files.spares.iter().position(large)
            } else if self.normal_spares(files) > self.wanted_spares() {
                files.spares.iter().position(|spare| !large(spare))
            } else {
                None
            };
            let Some(index) = surplus else {
                return Ok(());
            };
            let spare = files.spares.swap_remove(index);
            self.count_spares(files);
            self.disk.remove(&spare.path).map_err(|error| WalError::io("remove", &spare.path, error))?;
        }
    }

    /// Bytes of all files of the log, spares not counted.
    pub(super) fn size_bytes(&self) -> u64 {
        self.files.lock().log.iter().map(|file| file.size).sum()
    }

    /// The first seq of the oldest file.
    pub(super) fn oldest_seq(&self) -> Option<u64> {
        self.files.lock().log.front().map(|file| file.first_seq)
    }

    #[cfg(test)]
    pub(super) fn file_counts(&self) -> (usize, usize) {
        let files = self.files.lock();
        (files.log.len(), files.spares.len())
    }
}

fn spare_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_suffix(SPARE_SUFFIX)?.parse().ok()
}
