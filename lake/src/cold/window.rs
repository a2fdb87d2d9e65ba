//! The next stretch of offsets to decode, cut where pages end.

use std::sync::Arc;

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, RowSelection, RowSelector};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::types::SchemaDescriptor;

use super::index::FileRef;
use crate::LakeError;
use crate::schema::KAFKA_COLUMN;

/// Which rows are looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) partition: i32,
    pub(super) from: i64,
    pub(super) to: i64,
    /// Row groups without a row this late are skipped.
    pub(super) min_timestamp_ms: i64,
}

/// A file whose rows may lie in the window, with its footer.
pub(super) struct OpenedFile {
    pub(super) file: Arc<FileRef>,
    pub(super) footer: ArrowReaderMetadata,
    leaves: KafkaLeaves,
    mask: ProjectionMask,
    selected: Vec<usize>,
}

/// What to read of one file for a window.
pub(super) struct FileRead {
    pub(super) row_groups: Vec<usize>,
    pub(super) selection: RowSelection,
    pub(super) mask: ProjectionMask,
}

#[derive(Clone, Copy)]
struct KafkaLeaves {
    partition: Option<usize>,
    offset: usize,
    timestamp: Option<usize>,
    timestamp_raw: Option<usize>,
}

/// A run of rows of one row group with the bounds of their offsets, inclusive.
#[derive(Clone, Copy, Debug)]
struct Page {
    file: usize,
    row_group: usize,
    first_row: usize,
    rows: usize,
    low: i64,
    high: i64,
    bytes: usize,
}

impl OpenedFile {
    /// `leaves` are the paths of the wanted columns, as prefixes.
    pub(super) fn new(
        file: Arc<FileRef>,
        footer: ArrowReaderMetadata,
        leaves: &[Vec<String>],
    ) -> Result<Self, LakeError> {
        let schema = footer.metadata().file_metadata().schema_descr();
        let find = |name: &str| {
            (0..schema.num_columns()).find(|&index| schema.column(index).path().parts() == [KAFKA_COLUMN, name])
        };
        let offset = find("offset").ok_or_else(|| LakeError::DataFile {
            file: file.location.clone(),
            reason: "it has no column '_kafka.offset'".to_owned(),
        })?;
        let kafka = KafkaLeaves {
            partition: find("partition"),
            offset,
            timestamp: find("timestamp"),
            timestamp_raw: find("timestamp_raw"),
        };
        let selected = leaves_below(schema, leaves);
        let mask = ProjectionMask::leaves(schema, selected.iter().copied());
        Ok(Self { file, footer, leaves: kafka, mask, selected })
    }

    fn pages(&self, index: usize, wanted: &Wanted, pages: &mut Vec<Page>) {
        let metadata = self.footer.metadata();
        for (row_group, group) in metadata.row_groups().iter().enumerate() {
            if !self.may_match(group, wanted) {
                continue;
            }
            let rows = usize::try_from(group.num_rows()).unwrap_or(0);
            let bytes: i64 = self.selected.iter().map(|&leaf| group.column(leaf).uncompressed_size()).sum();
            let per_row = usize::try_from(bytes).unwrap_or(0) / rows.max(1) + 1;
            let before = pages.len();
            self.indexed_pages(index, row_group, metadata, rows, per_row, pages);
            if pages.len() == before && rows > 0 {
                let (low, high) = bounds(group, self.leaves.offset).unwrap_or((i64::MIN, i64::MAX));
                pages.push(Page { file: index, row_group, first_row: 0, rows, low, high, bytes: rows * per_row });
            }
            let kept: Vec<Page> =
                pages.drain(before..).filter(|page| page.high >= wanted.from && page.low < wanted.to).collect();
            pages.extend(kept);
        }
    }

    fn may_match(&self, group: &RowGroupMetaData, wanted: &Wanted) -> bool {
        let within = |leaf: Option<usize>, low: i64, high: i64| {
            let Some((min, max)) = leaf.and_then(|leaf| bounds(group, leaf)) else { return true };
            min <= high && max >= low
        };
        let partition = i64::from(wanted.partition);
        let raw_timestamps = self.leaves.timestamp_raw.is_some_and(|leaf| {
            let nulls = group.column(leaf).statistics().and_then(Statistics::null_count_opt);
            nulls.and_then(|nulls| i64::try_from(nulls).ok()) != Some(group.num_rows())
        });
        let late_enough = raw_timestamps
            || wanted.min_timestamp_ms == i64::MIN
            || within(self.leaves.timestamp, wanted.min_timestamp_ms.saturating_mul(1000), i64::MAX);
        late_enough
            && within(self.leaves.partition, partition, partition)
            && within(Some(self.leaves.offset), wanted.from, wanted.to.saturating_sub(1))
    }

    fn indexed_pages(
        &self,
        file: usize,
        row_group: usize,
        metadata: &ParquetMetaData,
        rows: usize,
        per_row: usize,
        pages: &mut Vec<Page>,
    ) {
        let leaf = self.leaves.offset;
        let column = metadata.column_index().and_then(|index| index.get(row_group)?.get(leaf));
        let locations = metadata.offset_index().and_then(|index| index.get(row_group)?.get(leaf));
        let (Some(ColumnIndexMetaData::INT64(column)), Some(locations)) = (column, locations) else { return };
        let locations = locations.page_locations();
        let first = |page: usize| {
            locations.get(page).map_or(rows, |location| usize::try_from(location.first_row_index).unwrap_or(rows))
        };
        for page in 0..locations.len() {
            let (first_row, end_row) = (first(page), first(page + 1));
            let low = column.min_value(page).copied().unwrap_or(i64::MIN);
            let high = column.max_value(page).copied().unwrap_or(i64::MAX);
            let rows = end_row.saturating_sub(first_row);
            pages.push(Page { file, row_group, first_row, rows, low, high, bytes: rows * per_row });
        }
    }
}

/// A window: its end, and what to read of each file, by position in the list of opened files.
pub(super) struct Window {
    pub(super) end: i64,
    pub(super) reads: Vec<(usize, FileRead)>,
}

/// Cuts the window that begins at `wanted.from`: about `target_bytes` of decoded rows, ending where a page ends, and before
/// `barrier`, the first offset of the files that are not opened.
pub(super) fn cut(files: &[OpenedFile], wanted: &Wanted, barrier: i64, target_bytes: usize) -> Window {
    let mut pages = Vec::new();
    for (index, file) in files.iter().enumerate() {
        file.pages(index, wanted, &mut pages);
    }
    let limit = wanted.to.min(barrier);
    let mut by_end: Vec<&Page> = pages.iter().collect();
    by_end.sort_by_key(|page| page.high);
    let (mut bytes, mut end) = (0usize, limit);
    for page in by_end {
        bytes += page.bytes;
        if bytes >= target_bytes {
            // The last page to count is in the window whole, so a window never stands still.
            end = page.high.saturating_add(1).clamp(wanted.from + 1, limit);
            break;
        }
    }
    let taken: Vec<Page> = pages.into_iter().filter(|page| page.low < end).collect();
    let reads = files
        .iter()
        .enumerate()
        .filter_map(|(index, file)| {
            let own: Vec<&Page> = taken.iter().filter(|page| page.file == index).collect();
            (!own.is_empty()).then(|| (index, file_read(file, &own)))
        })
        .collect();
    Window { end, reads }
}

fn file_read(file: &OpenedFile, pages: &[&Page]) -> FileRead {
    let mut row_groups: Vec<usize> = pages.iter().map(|page| page.row_group).collect();
    row_groups.dedup();
    let mut selectors = Vec::new();
    for &row_group in &row_groups {
        let rows = usize::try_from(file.footer.metadata().row_group(row_group).num_rows()).unwrap_or(0);
        let mut at = 0;
        for page in pages.iter().filter(|page| page.row_group == row_group) {
            selectors.push(RowSelector::skip(page.first_row - at));
            selectors.push(RowSelector::select(page.rows));
            at = page.first_row + page.rows;
        }
        selectors.push(RowSelector::skip(rows - at));
    }
    FileRead { row_groups, selection: RowSelection::from(selectors), mask: file.mask.clone() }
}

fn bounds(group: &RowGroupMetaData, leaf: usize) -> Option<(i64, i64)> {
    match group.column(leaf).statistics()? {
        Statistics::Int32(values) => Some((i64::from(*values.min_opt()?), i64::from(*values.max_opt()?))),
        Statistics::Int64(values) => Some((*values.min_opt()?, *values.max_opt()?)),
        _ => None,
    }
}

fn leaves_below(schema: &SchemaDescriptor, prefixes: &[Vec<String>]) -> Vec<usize> {
    (0..schema.num_columns())
        .filter(|&index| {
            let column = schema.column(index);
            prefixes.iter().any(|prefix| column.path().parts().starts_with(prefix))
        })
        .collect()
}
