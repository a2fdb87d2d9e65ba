//! Files that an interrupted writer or merge left in the partition's directory.
//!
//! Missing or damaged metadata never gives leave to delete data. So besides `.tmp` files only such files go whose rows were
//! just found whole in a segment that the manifest does name: merged files of a higher generation, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::Offset;

use super::{Partition, Segment};
use crate::segment::{SegmentError, SegmentKind, UnnamedFile, remove_temporary_files, unnamed_files};

impl Partition {
    /// Removes what is certainly left over, and says in the log what else is not named. Only while nothing writes here, at
    /// start. Blocks.
    ///
    /// # Errors
    /// [`SegmentError::Io`]; what was not removed does no harm.
    pub(crate) fn remove_leftovers(&self) -> Result<(), SegmentError> {
        let directory = &self.inner.directory;
        if !directory.is_dir() {
            return Ok(());
        }
        remove_temporary_files(directory)?;
        let segments: Vec<Segment> =
            self.inner.state.lock().segments.values().filter(|segment| segment.is_local()).cloned().collect();
        let named: BTreeSet<&str> = segments.iter().map(|segment| segment.meta().file.as_str()).collect();
        let mut whole = BTreeMap::new();
        for file in unnamed_files(directory, &named)? {
            let covering = segments.iter().find(|segment| is_covered(&file, segment));
            let merged = covering.is_some_and(|segment| {
                let start: Offset = segment.meta().range.start;
                *whole.entry(start).or_insert_with(|| segment.verify().is_ok())
            });
            if merged {
                file.remove()?;
                tracing::info!(partition = %self.id(), file = %file.path.display(), "removed an input of a finished merge");
            } else {
                tracing::warn!(
                    partition = %self.id(), file = %file.path.display(),
                    "no manifest names this file and no merged segment holds its rows; it is left as it is"
                );
            }
        }
        Ok(())
    }
}

/// Whether a named segment of a higher generation stands for everything in the file, by what both say of themselves.
fn is_covered(file: &UnnamedFile, segment: &Segment) -> bool {
    let meta = segment.meta();
    // The batches of a table are in a .log only as long as they are undecided; what they became has the next generation.
    let successor = meta.kind == file.kind || file.kind == SegmentKind::Log;
    let below = successor && meta.generation > file.name.generation;
    below
        && meta.range.contains(file.name.base_offset)
        && file.range().is_ok_and(|range| meta.range.start <= range.start && range.end <= meta.range.end)
}
