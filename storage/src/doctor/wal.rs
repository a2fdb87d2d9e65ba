//! The WAL: whether it reads, and whether it joins what is sealed.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_model::record_batch::{AssignedBatch, BatchHeader, ControlBatch};
use weir_model::{Offset, OffsetRange, PartitionId};

use super::metadata::Metadata;
use super::{Examination, Finding};
use crate::disk::RealDisk;
use crate::wal::{self, Report, WalDamage, WalSeq};

/// What the WAL holds of one partition beyond its segments.
pub(super) struct Joined {
    /// First offset that the WAL should go on with; `None` when nothing says.
    pub(super) sealed_end: Option<Offset>,
    /// First offset beyond the last batch.
    pub(super) end: Option<Offset>,
    /// What is neither in a segment nor in the WAL, in order.
    pub(super) missing: Vec<OffsetRange>,
    /// Batches that are in the WAL and wrong, and their offsets where known.
    pub(super) wrong: Vec<(String, Option<OffsetRange>)>,
}

/// Reads the whole WAL.
pub(super) fn check(examination: &mut Examination<'_>, metadata: Option<&Metadata>) -> BTreeMap<PartitionId, Joined> {
    let mut joined: BTreeMap<PartitionId, Joined> = BTreeMap::new();
    let directory = examination.directory.join("wal");
    if !directory.is_dir() {
        examination.report(Finding::damage(
            &directory,
            "missing: rows that were in no segment are lost; restore it from a copy",
        ));
        return joined;
    }
    let mut deleted = 0_u64;
    let mut visit = |seq, partition: PartitionId, bytes| {
        if metadata.is_some_and(|metadata| !metadata.topics.contains_key(&partition.topic)) {
            deleted += 1;
            return;
        }
        let keys = metadata.and_then(|metadata| metadata.partitions.get(&partition));
        let entry = joined.entry(partition).or_insert_with(|| {
            let sealed_end = keys.and_then(super::metadata::PartitionKeys::sealed_end);
            Joined { sealed_end, end: sealed_end, missing: Vec::new(), wrong: Vec::new() }
        });
        entry.take(seq, bytes);
    };
    let report = match wal::inspect(&RealDisk::new(), &directory, &mut visit) {
        Ok(report) => report,
        Err(error) => {
            examination.report(Finding::damage(&directory, format!("the WAL cannot be read: {error}")));
            return joined;
        }
    };
    examination.summary.wal_files = report.files;
    examination.summary.wal_entries = report.entries;
    say(examination, &directory, &report, deleted, metadata);
    joined
}

impl Joined {
    fn take(&mut self, seq: WalSeq, bytes: Bytes) {
        let header = BatchHeader::parse(&bytes).ok();
        let range = header.and_then(|header| {
            let last = header.base_offset.checked_add(i64::from(header.last_offset_delta))?;
            let range = (Offset::new(header.base_offset)?, Offset::new(last)?.next());
            (range.0 < range.1).then(|| OffsetRange::new(range.0, range.1))
        });
        let read = AssignedBatch::from_stored(bytes, true);
        let Some(range) = range.filter(|_| header.is_some()) else {
            let reason = read.err().map_or_else(|| "its offsets run backwards".to_owned(), |error| error.to_string());
            self.wrong.push((format!("the batch of WAL entry {seq} does not read: {reason}"), None));
            return;
        };
        if self.sealed_end.is_some_and(|sealed| range.end <= sealed) {
            return;
        }
        let read = read.map_err(|error| error.to_string());
        let read = read.and_then(|batch| ControlBatch::parse(&batch).map_err(|error| error.to_string()));
        if let Err(reason) = read {
            self.wrong.push((format!("the batch of WAL entry {seq} does not read: {reason}"), Some(range)));
        }
        match self.end {
            Some(end) if end < range.start => self.missing.push(OffsetRange::new(end, range.start)),
            Some(end) if end > range.start => {
                let text = format!(
                    "LOG-4: WAL entry {seq} has offsets {}..{}, but the log had come to {end}",
                    range.start, range.end
                );
                self.wrong.push((text, Some(range)));
            }
            Some(_) | None => {}
        }
        self.end = self.end.max(Some(range.end));
    }
}

fn say(
    examination: &mut Examination<'_>,
    directory: &std::path::Path,
    report: &Report,
    deleted: u64,
    metadata: Option<&Metadata>,
) {
    let Report { files, size_bytes, entries, payload_bytes, torn, damage } = report;
    if damage.is_empty() {
        let of_deleted = if deleted > 0 { format!(", {deleted} of deleted topics") } else { String::new() };
        let text = format!(
            "{files} files of {size_bytes} bytes, {entries} entries with {payload_bytes} bytes of batches{of_deleted}"
        );
        examination.report(Finding::ok(directory, text));
    }
    for damage in damage {
        examination.report(Finding::damage(&damage.file, describe(damage, metadata)));
    }
    if let Some(torn) = torn {
        let text = format!(
            "torn tail at byte {}: {} bytes from entry {} on were never synced; normal after a crash, the next start cuts them off",
            torn.position, torn.bytes, torn.seq,
        );
        examination.report(Finding::note(&torn.file, text));
    }
}

fn describe(damage: &WalDamage, metadata: Option<&Metadata>) -> String {
    let WalDamage { position, seq, claimed, synced_through, following, .. } = damage;
    let Some(synced_through) = synced_through else {
        return format!("by its name it starts before entry {seq}, which is next; it was not read");
    };
    let whose = claimed.map_or_else(String::new, |id| {
        format!(
            " (of partition {}, as its header says)",
            metadata.map_or_else(|| id.to_string(), |metadata| metadata.name(id))
        )
    });
    let what = match following {
        Some(following) => format!(
            "entries {seq}..{}{whose} do not read; entries {}..{} follow from byte {} of {} and are whole",
            following.first,
            following.first,
            following.last.next(),
            following.position,
            following.file.file_name().unwrap_or_default().to_string_lossy(),
        ),
        None => format!(
            "entry {seq}{whose} and what follows do not read, though the log was synced through entry {synced_through}"
        ),
    };
    format!("damaged at byte {position}: {what}")
}
