//! The partitions: whether their segments join, read, and go on in the WAL; and which files nobody names.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use weir_model::{Offset, OffsetRange, PartitionId, TopicId};

use super::metadata::{Metadata, PartitionKeys, Stored};
use super::wal::Joined;
use super::{Examination, Fate, Finding};
use crate::manifest::{PartitionRecord, SegmentRecord};
use crate::segment::{ArrowSegment, LogSegment, SegmentError, SegmentKind, SegmentMeta, segment_files};

/// Checks every partition, then looks for files that no partition names.
pub(super) fn check(examination: &mut Examination<'_>, metadata: &Metadata, joined: &BTreeMap<PartitionId, Joined>) {
    let root = examination.directory.join("segments");
    let on_disk = match topic_directories(&root) {
        Ok(on_disk) => on_disk,
        Err(error) => {
            examination.report(Finding::damage(&root, format!("cannot be listed: {error}")));
            return;
        }
    };
    let mut named = BTreeSet::new();
    for (id, keys) in &metadata.partitions {
        let directory = metadata.directory(&root, id.topic).or_else(|| on_disk.get(&id.topic).cloned());
        let directory =
            directory.unwrap_or_else(|| root.join(id.topic.as_uuid().simple().to_string())).join(id.index.to_string());
        let name = metadata.name(*id);
        let mut partition = Checked {
            examination,
            name: &name,
            directory: &directory,
            keys,
            named: &mut named,
            local: 0,
            undecided: 0,
            tiered: 0,
        };
        partition.check(joined.get(id));
    }
    if let Err((path, error)) = leftovers(examination, &root, &named) {
        examination.report(Finding::damage(&path, format!("cannot be listed: {error}")));
    }
}

/// One partition under examination.
struct Checked<'a, 'e> {
    examination: &'a mut Examination<'e>,
    name: &'a str,
    directory: &'a Path,
    keys: &'a PartitionKeys,
    named: &'a mut BTreeSet<PathBuf>,
    local: usize,
    undecided: usize,
    tiered: usize,
}

impl Checked<'_, '_> {
    fn check(&mut self, joined: Option<&Joined>) {
        let damages = self.examination.summary.damages;
        let record = match self.keys.record {
            Stored::Good(record) => Some(record),
            Stored::Absent => Some(PartitionRecord::NEW),
            Stored::Damaged => None,
        };
        self.check_joins(record);
        for (base, stored) in &self.keys.segments {
            match stored {
                Ok(segment) => self.check_segment(segment, record),
                Err(reason) => self.undecodable(*base, reason),
            }
        }
        self.check_wal(joined);
        if damages == self.examination.summary.damages {
            self.say_ok(record, joined);
        }
    }

    fn damage(&mut self, path: &Path, text: impl Into<String>, offsets: &[(OffsetRange, Fate)]) {
        let finding = Finding::damage(path, text).of(self.name);
        let finding = offsets.iter().fold(finding, |finding, (range, fate)| finding.with(*range, *fate));
        self.examination.report(finding);
    }

    /// Segments follow each other from the log start to the sealed end. Next to one that does not decode nothing is known.
    fn check_joins(&mut self, record: Option<PartitionRecord>) {
        let mut next = record.map(|record| record.log_start);
        let mut is_first = true;
        for (base, stored) in &self.keys.segments {
            // The first may begin below the log start: DeleteRecords moves it into the middle of a segment.
            let joins = next.is_none_or(|next| if is_first { *base <= next } else { *base == next });
            if let Some(next) = next.filter(|_| !joins) {
                self.hole(next, *base);
            }
            next = stored.as_ref().ok().map(|segment| segment.meta.range.end);
            is_first = false;
        }
        let (Some(record), Some(next)) = (record, next) else { return };
        let ends = if is_first { record.sealed_end <= next } else { record.sealed_end == next };
        if !ends {
            self.hole(next, record.sealed_end);
        }
    }

    fn hole(&mut self, expected: Offset, found: Offset) {
        let directory = self.directory.to_owned();
        if expected < found {
            let text = "segments do not join: no segment is named between two that are";
            self.damage(&directory, text, &[(OffsetRange::new(expected, found), Fate::Lost)]);
        } else {
            let text = format!(
                "segments do not join: one ends at offset {expected}, the next begins, or all should end, at {found}"
            );
            self.damage(&directory, text, &[]);
        }
    }

    fn undecodable(&mut self, base: Offset, reason: &str) {
        for extension in ["log", "index", "timeindex", "arrow"] {
            self.named.insert(self.directory.join(format!("{base:020}.{extension}")));
        }
        let after = self.keys.segments.range(base.next()..).next().map(|(next, _)| *next);
        let end = after.or(self.keys.sealed_end()).unwrap_or(base).max(base);
        let meta = self.examination.directory.join("meta");
        let text = format!(
            "the value of the segment's key at offset {base} does not decode: {reason}; its file was not checked"
        );
        self.damage(&meta, text, &[(OffsetRange::new(base, end), Fate::InDoubt)]);
    }

    fn check_segment(&mut self, segment: &SegmentRecord, record: Option<PartitionRecord>) {
        let meta = &segment.meta;
        let path = self.directory.join(&meta.file);
        let in_lake = record.and_then(|record| record.lake_end).is_some_and(|end| meta.range.end <= end);
        if !segment.local {
            self.tiered += 1;
            if let Some(record) = record.filter(|_| !in_lake) {
                let end = record
                    .lake_end
                    .map_or_else(|| "has nothing of the partition".to_owned(), |end| format!("ends at offset {end}"));
                let text = format!("the local copy was dropped (LAKE-2), but the lake {end}");
                let covered = record.lake_end.unwrap_or(Offset::ZERO).clamp(meta.range.start, meta.range.end);
                self.damage(&path, text, &[(OffsetRange::new(covered, meta.range.end), Fate::Lost)]);
            }
            return;
        }
        self.local += 1;
        self.undecided += usize::from(meta.kind == SegmentKind::Undecided);
        self.named.extend(segment_files(self.directory, meta));
        self.examination.summary.segments += 1;
        self.examination.summary.segment_bytes += meta.size_bytes;
        let gone = if in_lake { Fate::InLake } else { Fate::Lost };
        match verify(self.directory, meta) {
            Ok(()) => {}
            Err(SegmentError::Io { action, source, .. })
                if source.kind() == io::ErrorKind::NotFound && action == "open" =>
            {
                self.damage(&path, "segment file is missing", &[(meta.range, gone)]);
            }
            // Indexes are not synced when a segment is sealed, so a crash may leave them behind.
            Err(SegmentError::Corrupt { file, what, .. }) if file != path => {
                let text = format!("index does not read ({what}); the broker reads the batch headers instead");
                self.examination.report(Finding::note(&file, text).of(self.name).with(meta.range, Fate::Intact));
            }
            Err(error @ SegmentError::UnsupportedVersion { .. }) => {
                self.examination.report(Finding::note(&path, format!("not checked: {error}")).of(self.name));
            }
            Err(error) => {
                let offsets = fates(self.directory, meta, gone);
                self.damage(&path, reason(&error), &offsets);
            }
        }
    }

    fn check_wal(&mut self, joined: Option<&Joined>) {
        let Some(joined) = joined else { return };
        let wal = self.examination.directory.join("wal");
        for range in &joined.missing {
            self.damage(&wal, "in no segment, and not in the WAL", &[(*range, Fate::Lost)]);
        }
        for (text, range) in &joined.wrong {
            let offsets: Vec<_> = range.iter().map(|range| (*range, Fate::Lost)).collect();
            self.damage(&wal, text.clone(), &offsets);
        }
    }

    fn say_ok(&mut self, record: Option<PartitionRecord>, joined: Option<&Joined>) {
        let Some(record) = record else { return };
        let end = joined.and_then(|joined| joined.end).unwrap_or(record.sealed_end).max(record.sealed_end);
        if end == Offset::ZERO {
            return;
        }
        let undecided = match self.undecided {
            0 => String::new(),
            count => format!(", {count} of them held up by a transaction"),
        };
        let text = format!(
            "{} local segments{undecided}, {} in the lake only; sealed to offset {}, in the WAL to {end}",
            self.local, self.tiered, record.sealed_end
        );
        let readable = OffsetRange::new(record.log_start.min(end), end);
        self.examination.report(Finding::ok(self.directory, text).of(self.name).with(readable, Fate::Intact));
    }
}

fn verify(directory: &Path, meta: &SegmentMeta) -> Result<(), SegmentError> {
    match meta.kind {
        SegmentKind::Log | SegmentKind::Undecided => LogSegment::open(directory, meta)?.verify(),
        SegmentKind::Arrow => ArrowSegment::open(directory, meta)?.verify(),
    }
}

/// What of a damaged segment reads, and what does not.
fn fates(directory: &Path, meta: &SegmentMeta, gone: Fate) -> Vec<(OffsetRange, Fate)> {
    let unreadable = match meta.kind {
        SegmentKind::Log | SegmentKind::Undecided => {
            LogSegment::open(directory, meta).and_then(|segment| segment.unreadable())
        }
        SegmentKind::Arrow => ArrowSegment::open(directory, meta).and_then(|segment| segment.unreadable()),
    };
    // A file that does not even open is lost whole.
    let Ok(unreadable) = unreadable else { return vec![(meta.range, gone)] };
    if unreadable.is_empty() {
        // Offsets and epochs of a .log lie outside the batches' CRCs; an .arrow file's blocks hold theirs.
        let fate = if meta.kind == SegmentKind::Arrow { Fate::Intact } else { Fate::InDoubt };
        return vec![(meta.range, fate)];
    }
    let mut fates = Vec::new();
    let mut next = meta.range.start;
    for range in unreadable {
        if next < range.start {
            fates.push((OffsetRange::new(next, range.start), Fate::Intact));
        }
        fates.push((range, gone));
        next = range.end;
    }
    if next < meta.range.end {
        fates.push((OffsetRange::new(next, meta.range.end), Fate::Intact));
    }
    fates
}

/// Without the advice to run what is running.
fn reason(error: &SegmentError) -> String {
    match error {
        SegmentError::Corrupt { block, column, what, .. } => {
            let block = block.map_or_else(String::new, |block| format!(" block {block}"));
            let column = column.as_ref().map_or_else(String::new, |column| format!(" column {column}"));
            format!("damaged{block}{column}: {what}")
        }
        other => other.to_string(),
    }
}

/// The topics' directories, by the id in their names.
fn topic_directories(root: &Path) -> io::Result<BTreeMap<TopicId, PathBuf>> {
    let mut found = BTreeMap::new();
    for path in list(root)? {
        let id = path.file_name().and_then(|name| name.to_str()?.rsplit('.').next()?.parse().ok());
        if let Some(id) = id {
            found.insert(TopicId::from_uuid(id), path);
        }
    }
    Ok(found)
}

/// Names every file that no partition does. A crash between a commit and the removal of files leaves such.
fn leftovers(
    examination: &mut Examination<'_>,
    root: &Path,
    named: &BTreeSet<PathBuf>,
) -> Result<(), (PathBuf, io::Error)> {
    let damaged = examination.summary.damages > 0;
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in list(&directory).map_err(|error| (directory.clone(), error))? {
            let metadata = path.symlink_metadata().map_err(|error| (path.clone(), error))?;
            if metadata.is_dir() {
                directories.push(path);
            } else if !named.contains(&path) {
                let advice =
                    if damaged { "keep it until the damage is settled" } else { "it does no harm and may be removed" };
                let text = format!("left over: no segment has this file of {} bytes; {advice}", metadata.len());
                examination.report(Finding::note(&path, text));
            }
        }
    }
    Ok(())
}

/// What is in a directory, by name; nothing when it is not there, as before the first seal.
fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}
