//! Reads a WAL as recovery does, but changes nothing, and goes on behind damage.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_model::PartitionId;

use super::reader::EntryReader;
use super::recovery::{Access, Scan, TornTail};
use super::space::{self, LogFile};
use super::{WalError, WalSeq};
use crate::disk::{Disk, align_up};

/// What a WAL holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files of the log, spare ones not counted.
    pub files: usize,
    /// Their bytes, unused room included.
    pub size_bytes: u64,
    /// Entries whose CRC holds.
    pub entries: u64,
    /// Their payload in bytes.
    pub payload_bytes: u64,
    /// What a crash left half written. Normal: the next start cuts it off.
    pub torn: Option<TornTail>,
    /// What was synced and does not read, in log order. The broker does not start on it.
    pub damage: Vec<WalDamage>,
}

/// A stretch of the log that was synced and does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalDamage {
    /// The file.
    pub file: PathBuf,
    /// Where in it the first unreadable entry starts, or should: at the next block, if that is where its group began.
    pub position: u64,
    /// The seq of that entry.
    pub seq: WalSeq,
    /// Whose entry it is, as its own unproven header says; `None` when the header does not read either.
    pub claimed: Option<PartitionId>,
    /// How far the log was synced, as what follows says; `None` for a file whose name does not fit, which is not read.
    pub synced_through: Option<WalSeq>,
    /// The readable entries that follow.
    pub following: Option<Following>,
}

/// Readable entries behind damage, up to the next damage or the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// The file of the first of them.
    pub file: PathBuf,
    /// Where in it that one starts.
    pub position: u64,
    /// Its seq.
    pub first: WalSeq,
    /// The seq of the last of them.
    pub last: WalSeq,
}

/// Reads the log in `directory` and hands every entry that is whole to `visit`, in order, those behind damage too. Opens files for
/// reading only. Blocks.
///
/// # Errors
/// [`WalError::Io`] when the file system refuses. Damage is no error: it is what the report is for.
pub fn inspect(
    disk: &dyn Disk,
    directory: &Path,
    visit: &mut dyn FnMut(WalSeq, PartitionId, Bytes),
) -> Result<Report, WalError> {
    let log = space::find(disk, directory)?.log;
    let mut scan = Scan::new(disk, Access::Inspect, &log);
    let mut damage: Vec<WalDamage> = Vec::new();
    let (mut index, mut position) = (0, 0);
    while let Some(file) = log.get(index) {
        let following = &log[index + 1..];
        let (_, mut reader) = scan.open(file)?;
        let read = scan.replay_file(file, &mut reader, position, following.first(), visit);
        if let Some(following) = damage.last_mut().and_then(|damage| damage.following.as_mut()) {
            following.last = WalSeq::new(scan.expected - 1);
        }
        let end = match read {
            Ok(end) => end,
            Err(WalError::Overlap { file, expected, .. }) => {
                damage.push(WalDamage {
                    file,
                    position: 0,
                    seq: expected,
                    claimed: None,
                    synced_through: None,
                    following: None,
                });
                break;
            }
            Err(error) => return Err(error),
        };
        if following.first().is_some_and(|next| next.first_seq == scan.expected) {
            (index, position) = (index + 1, 0);
            continue;
        }
        match scan.end_log(file, &mut reader, end, following) {
            Ok(_size) => break,
            Err(WalError::Corrupt { file: path, position: at, seq, synced_through }) => {
                let claim = claim(&scan, file, &mut reader, end)?;
                let (at, claimed) = claim.map_or((at, None), |(at, partition)| (at, Some(partition)));
                let found = find_readable(&scan, &log[index..], end)?;
                let following = found.as_ref().map(|found| Following {
                    file: log[index + found.files_on].path.clone(),
                    position: found.position,
                    first: WalSeq::new(found.seq),
                    last: WalSeq::new(found.seq),
                });
                let synced_through = Some(synced_through);
                damage.push(WalDamage { file: path, position: at, seq, claimed, synced_through, following });
                let Some(found) = found else { break };
                (index, position) = (index + found.files_on, found.position);
                scan.expected = found.seq;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Report {
        files: log.len(),
        size_bytes: log.iter().map(|file| file.size).sum(),
        entries: scan.report.entries,
        payload_bytes: scan.report.payload_bytes,
        torn: scan.report.torn,
        damage,
    })
}

/// Where the unreadable entry starts, at `position` or at the block after it, and whose it says it is.
fn claim(
    scan: &Scan<'_>,
    file: &LogFile,
    reader: &mut EntryReader,
    position: u64,
) -> Result<Option<(u64, PartitionId)>, WalError> {
    for at in [position, align_up(position)] {
        let header = reader.header_at(at).map_err(|error| WalError::io("read", &file.path, error))?;
        if let Some(header) = header.filter(|header| header.seq == scan.expected && scan.fits(header)) {
            return Ok(Some((at, header.partition)));
        }
    }
    Ok(None)
}

struct Readable {
    /// How many files after the one searched first.
    files_on: usize,
    position: u64,
    seq: u64,
}

/// The first whole entry behind the unreadable one at `position` of the first of `files`: right behind it, if its header still
/// says where that is, or at the start of a group.
fn find_readable(scan: &Scan<'_>, files: &[LogFile], position: u64) -> Result<Option<Readable>, WalError> {
    for (files_on, file) in files.iter().enumerate() {
        let unreadable = |error| WalError::io("read", &file.path, error);
        let (_, mut reader) = scan.open(file)?;
        let mut at = if files_on == 0 { position } else { 0 };
        while at < reader.size() {
            let later = |header: &super::entry::EntryHeader| header.seq > scan.expected && scan.fits(header);
            if let Some(entry) = reader.entry_at(at, later).map_err(unreadable)? {
                return Ok(Some(Readable { files_on, position: at, seq: entry.header.seq }));
            }
            let header = reader.header_at(at).map_err(unreadable)?;
            let ours = header.filter(|header| header.seq >= scan.expected && scan.fits(header));
            if let Some(header) = ours {
                let behind = at + header.total_size();
                if let Some(entry) = reader.entry_at(behind, later).map_err(unreadable)? {
                    return Ok(Some(Readable { files_on, position: behind, seq: entry.header.seq }));
                }
            }
            at = align_up(at + 1);
        }
    }
    Ok(None)
}
