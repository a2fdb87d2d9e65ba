//! Reads a WAL back: every entry checked, a torn tail cut off, a damaged middle refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use weir_model::PartitionId;

use super::entry::EntryHeader;
use super::reader::EntryReader;
use super::space::LogFile;
use super::{WalError, WalSeq};
use crate::disk::{Caching, Disk, DiskFile, align_up};

/// What opening a WAL found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Entries handed to the replay callback.
    pub entries: u64,
    /// Their payload in bytes.
    pub payload_bytes: u64,
    /// Files read.
    pub files: usize,
    /// What a crash left half written, if anything.
    pub torn: Option<TornTail>,
}

/// Entries that were written but never synced, and are not whole. They were acknowledged to nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file that was cut.
    pub file: PathBuf,
    /// Where in it the first incomplete entry started.
    pub position: u64,
    /// Bytes of entries that were cut off, as far as their headers tell.
    pub bytes: u64,
    /// The seq of the first incomplete entry; the next entry pushed gets it.
    pub seq: WalSeq,
}

pub(super) struct Recovered {
    pub(super) log: Vec<LogFile>,
    pub(super) next_seq: u64,
    pub(super) log_id: Option<u64>,
    pub(super) report: Recovery,
}

/// One pass over a log's files, in order. Reads only; what it opens, the caller may go on to change.
pub(super) struct Scan<'a> {
    disk: &'a dyn Disk,
    access: Access,
    pub(super) expected: u64,
    log_id: Option<u64>,
    /// The highest seq that some entry proves to have been synced.
    synced_through: u64,
    pub(super) report: Recovery,
}

/// What a scan opens files for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// To read them, then to cut and sync them.
    Recover,
    /// To read them, and to change nothing.
    Inspect,
}

/// What the entries behind an unreadable one say.
#[derive(Default)]
struct Beyond {
    /// How far the log was synced, if that is past the unreadable one.
    synced_through: Option<u64>,
    torn_bytes: u64,
}

/// Replays `log`, which is in order of first seq, and leaves on the disk exactly what was replayed, synced.
pub(super) fn recover(
    disk: &dyn Disk,
    directory: &Path,
    log: Vec<LogFile>,
    replay: &mut dyn FnMut(WalSeq, PartitionId, Bytes),
) -> Result<Recovered, WalError> {
    let mut scan = Scan::new(disk, Access::Recover, &log);
    let mut unsynced: Vec<(u64, Arc<dyn DiskFile>)> = Vec::new();
    let mut kept = Vec::new();
    for (index, file) in log.iter().enumerate() {
        let following = &log[index + 1..];
        let (handle, mut reader) = scan.open(file)?;
        let end = scan.replay_file(file, &mut reader, 0, following.first(), replay)?;
        unsynced.retain(|(last_seq, _)| *last_seq > scan.synced_through);
        if following.first().is_some_and(|next| next.first_seq == scan.expected) {
            unsynced.push((scan.expected - 1, handle));
            kept.push(file.clone());
            continue;
        }
        let size = scan.end_log(file, &mut reader, end, following)?;
        cut(&*handle, file, size)?;
        kept.push(LogFile { size, ..file.clone() });
        for stale in following {
            disk.remove(&stale.path).map_err(|error| WalError::io("remove", &stale.path, error))?;
        }
        break;
    }
    for (_, handle) in unsynced {
        handle.sync_data().map_err(|error| WalError::io("sync", handle.path(), error))?;
    }
    disk.sync_dir(directory).map_err(|error| WalError::io("sync", directory, error))?;
    scan.report.files = kept.len();
    Ok(Recovered { log: kept, next_seq: scan.expected, log_id: scan.log_id, report: scan.report })
}

impl<'a> Scan<'a> {
    pub(super) fn new(disk: &'a dyn Disk, access: Access, log: &[LogFile]) -> Scan<'a> {
        Scan {
            disk,
            access,
            expected: log.first().map_or(1, |file| file.first_seq),
            log_id: None,
            synced_through: 0,
            report: Recovery::default(),
        }
    }

    pub(super) fn open(&self, file: &LogFile) -> Result<(Arc<dyn DiskFile>, EntryReader), WalError> {
        let opened = match self.access {
            Access::Recover => self.disk.open(&file.path, Caching::Direct),
            Access::Inspect => self.disk.open_to_read(&file.path),
        };
        let handle = opened.map_err(|error| WalError::io("open", &file.path, error))?;
        let reader = EntryReader::new(handle.clone()).map_err(|error| WalError::io("read", &file.path, error))?;
        Ok((handle, reader))
    }

    pub(super) fn fits(&self, header: &EntryHeader) -> bool {
        self.log_id.is_none_or(|log_id| header.log_id == log_id)
    }

    /// Replays one file from `position` up to where the next one takes over or no entry follows; returns that position.
    pub(super) fn replay_file(
        &mut self,
        file: &LogFile,
        reader: &mut EntryReader,
        mut position: u64,
        next: Option<&LogFile>,
        replay: &mut dyn FnMut(WalSeq, PartitionId, Bytes),
    ) -> Result<u64, WalError> {
        loop {
            // The next file's name has the last word: what lies behind that seq in this one was cut off once.
            match next {
                Some(next) if next.first_seq == self.expected => return Ok(position),
                Some(next) if next.first_seq < self.expected => {
                    return Err(WalError::Overlap {
                        file: next.path.clone(),
                        first: WalSeq::new(next.first_seq),
                        expected: WalSeq::new(self.expected),
                    });
                }
                Some(_) | None => {}
            }
            let wanted = |header: &EntryHeader| header.seq == self.expected && self.fits(header);
            let unreadable = |error| WalError::io("read", &file.path, error);
            let mut start = position;
            let mut found = reader.entry_at(start, wanted).map_err(unreadable)?;
            if found.is_none() && align_up(position) != position {
                start = align_up(position);
                found = reader.entry_at(start, wanted).map_err(unreadable)?;
            }
            let Some(entry) = found else {
                return Ok(position);
            };
            position = start + entry.header.total_size();
            self.log_id = Some(entry.header.log_id);
            self.synced_through = self.synced_through.max(entry.header.synced_through);
            self.report.entries += 1;
            self.report.payload_bytes += u64::from(entry.header.payload_size);
            replay(WalSeq::new(self.expected), entry.header.partition, entry.payload);
            self.expected += 1;
        }
    }

    /// Nothing readable follows `position`: tells the end of the log from damage, and returns the size to cut to.
    pub(super) fn end_log(
        &mut self,
        file: &LogFile,
        reader: &mut EntryReader,
        position: u64,
        following: &[LogFile],
    ) -> Result<u64, WalError> {
        let mut torn_bytes = 0;
        let mut beyond = self.look_beyond(file, reader, position)?;
        torn_bytes += beyond.torn_bytes;
        for next in following {
            if beyond.synced_through.is_some() {
                break;
            }
            let (_, mut reader) = self.open(next)?;
            beyond = self.look_beyond(next, &mut reader, 0)?;
            torn_bytes += beyond.torn_bytes;
        }
        if let Some(synced_through) = beyond.synced_through {
            return Err(WalError::Corrupt {
                file: file.path.clone(),
                position,
                seq: WalSeq::new(self.expected),
                synced_through: WalSeq::new(synced_through),
            });
        }
        if torn_bytes > 0 {
            self.report.torn = Some(TornTail {
                file: file.path.clone(),
                position,
                bytes: torn_bytes,
                seq: WalSeq::new(self.expected),
            });
        }
        Ok(align_up(position).min(align_up(file.size)))
    }

    /// Looks at `position` and at every later block of the file, where groups start.
    fn look_beyond(&self, file: &LogFile, reader: &mut EntryReader, position: u64) -> Result<Beyond, WalError> {
        let unreadable = |error| WalError::io("read", &file.path, error);
        let mut beyond = Beyond::default();
        let mut torn_to = position;
        let mut at = position;
        while at < reader.size() {
            if let Some(mark) = reader.end_mark_at(at).map_err(unreadable)?
                && mark.synced_through >= self.expected
                && self.log_id.is_none_or(|log_id| mark.log_id == log_id)
            {
                beyond.synced_through = Some(mark.synced_through);
                break;
            }
            if let Some(header) = reader.header_at(at).map_err(unreadable)?
                && self.fits(&header)
                && header.seq >= self.expected
            {
                torn_to = torn_to.max(at + header.total_size());
                let proves = |header: &EntryHeader| {
                    header.seq > self.expected && header.synced_through >= self.expected && self.fits(header)
                };
                if let Some(entry) = reader.entry_at(at, proves).map_err(unreadable)? {
                    beyond.synced_through = Some(entry.header.synced_through);
                    break;
                }
            }
            at = align_up(at + 1);
        }
        beyond.torn_bytes = torn_to - position;
        Ok(beyond)
    }
}

/// Makes the file end where its last entry's block does, durably.
fn cut(handle: &dyn DiskFile, file: &LogFile, size: u64) -> Result<(), WalError> {
    if size != file.size {
        handle.set_size(size).map_err(|error| WalError::io("cut", &file.path, error))?;
    }
    handle.sync_data().map_err(|error| WalError::io("sync", &file.path, error))
}
