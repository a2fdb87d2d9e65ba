//! What others may do to a table that is a topic.
//!
//! The rows of such a table are the topic's rows, each exactly once (LAKE-1), and the log reads its old offsets from them.
//! So others may maintain it (compact files, expire snapshots, write statistics, tag, set properties), and may not change
//! what it says: no appends, overwrites or deletes, no schema changes, no rollback, no touching Weir's own properties.

use iceberg::io::FileIO;
use iceberg::spec::{MAIN_BRANCH, ManifestContentType, ManifestList, Operation, Snapshot, TableMetadata};
use iceberg::{TableIdent, TableUpdate};
use uuid::Uuid;
use weir_model::TopicId;

use super::CatalogError;
use crate::LakeError;

/// Table property: the id of the topic whose rows the table holds.
pub const TOPIC_ID: &str = "weir.topic.id";
/// Table property and summary key: how far each partition was poured.
pub const MARKER: &str = "weir.marker";
/// Table property: `raw` or `columns`.
pub const KIND: &str = "weir.table.kind";
/// Every property below this prefix is Weir's.
const OURS: &str = "weir.";

/// The topic that owns a table; `None` when the table is nobody's.
pub fn owner(metadata: &TableMetadata) -> Option<TopicId> {
    let text = metadata.properties().get(TOPIC_ID)?;
    Uuid::parse_str(text).ok().map(TopicId::from_uuid)
}

/// Decides on a commit by somebody else. Tables without an owner are free.
///
/// # Errors
/// [`CatalogError::Refused`] with the reason and the way to do it instead.
pub async fn check_foreign(
    table: &TableIdent,
    base: &TableMetadata,
    updates: &[TableUpdate],
    io: &FileIO,
) -> Result<(), CatalogError> {
    if !base.properties().contains_key(TOPIC_ID) {
        return Ok(());
    }
    let refuse = |what: &str, instead: &str| {
        Err(CatalogError::Refused(format!("table '{table}' holds the rows of a topic: {what}; {instead}")))
    };
    for update in updates {
        match update {
            TableUpdate::AddSnapshot { snapshot } => check_snapshot(table, base, snapshot, io).await?,
            TableUpdate::SetSnapshotRef { ref_name, reference } if ref_name == MAIN_BRANCH => {
                let added = updates.iter().any(|update| {
                    matches!(update, TableUpdate::AddSnapshot { snapshot } if snapshot.snapshot_id() == reference.snapshot_id)
                });
                if !added && base.current_snapshot_id() != Some(reference.snapshot_id) {
                    return refuse(
                        "its main branch cannot be rolled back",
                        "read an older snapshot by its id, or tag it, instead",
                    );
                }
            }
            TableUpdate::RemoveSnapshotRef { ref_name } if ref_name == MAIN_BRANCH => {
                return refuse("its main branch cannot be removed", "delete the topic instead");
            }
            TableUpdate::RemoveSnapshots { snapshot_ids } => {
                if base.current_snapshot_id().is_some_and(|current| snapshot_ids.contains(&current)) {
                    return refuse("its current snapshot cannot be expired", "keep at least the last one");
                }
            }
            TableUpdate::SetProperties { updates } => {
                if let Some(name) = updates.keys().find(|name| name.starts_with(OURS)) {
                    return refuse(&format!("its property '{name}' is kept by Weir"), "leave it as it is");
                }
            }
            TableUpdate::RemoveProperties { removals } => {
                if let Some(name) = removals.iter().find(|name| name.starts_with(OURS)) {
                    return refuse(&format!("its property '{name}' is kept by Weir"), "leave it as it is");
                }
            }
            TableUpdate::SetSnapshotRef { .. }
            | TableUpdate::RemoveSnapshotRef { .. }
            | TableUpdate::SetStatistics { .. }
            | TableUpdate::RemoveStatistics { .. }
            | TableUpdate::SetPartitionStatistics { .. }
            | TableUpdate::RemovePartitionStatistics { .. } => {}
            TableUpdate::AddSchema { .. }
            | TableUpdate::SetCurrentSchema { .. }
            | TableUpdate::RemoveSchemas { .. } => {
                return refuse("its columns are the topic's", "alter the topic's 'weir.schema' instead");
            }
            TableUpdate::AssignUuid { .. }
            | TableUpdate::UpgradeFormatVersion { .. }
            | TableUpdate::AddSpec { .. }
            | TableUpdate::SetDefaultSpec { .. }
            | TableUpdate::RemovePartitionSpecs { .. }
            | TableUpdate::AddSortOrder { .. }
            | TableUpdate::SetDefaultSortOrder { .. }
            | TableUpdate::SetLocation { .. }
            | TableUpdate::AddEncryptionKey { .. }
            | TableUpdate::RemoveEncryptionKey { .. } => {
                return refuse(
                    "its format, layout and place are the topic's",
                    "copy the rows into a table of another namespace to lay them out otherwise",
                );
            }
        }
    }
    Ok(())
}

/// A foreign snapshot must rearrange the same rows: a replacement of the current one, with as many rows and no deletes.
async fn check_snapshot(
    table: &TableIdent,
    base: &TableMetadata,
    snapshot: &Snapshot,
    io: &FileIO,
) -> Result<(), CatalogError> {
    let refuse = |what: String| {
        Err(CatalogError::Refused(format!(
            "table '{table}' holds the rows of a topic: {what}; produce to the topic instead, or write to a table of another namespace"
        )))
    };
    let operation = &snapshot.summary().operation;
    if *operation != Operation::Replace {
        return refuse(format!("others cannot {} it", operation.as_str()));
    }
    if snapshot.parent_snapshot_id() != base.current_snapshot_id() {
        return refuse("a rewrite must start from its current snapshot".to_owned());
    }
    let before = match base.current_snapshot() {
        Some(current) => count_rows(base, current, io).await?,
        None => RowCount::default(),
    };
    let after = count_rows(base, snapshot, io).await?;
    if after.deletes > before.deletes || after.rows != before.rows {
        return refuse(format!(
            "a rewrite must keep its {} rows, and this one has {} rows and {} deletes",
            before.rows, after.rows, after.deletes
        ));
    }
    Ok(())
}

#[derive(Default)]
struct RowCount {
    rows: u64,
    deletes: u64,
}

async fn count_rows(base: &TableMetadata, snapshot: &Snapshot, io: &FileIO) -> Result<RowCount, LakeError> {
    let bytes = io.new_input(snapshot.manifest_list())?.read().await?;
    let list = ManifestList::parse_with_version(&bytes, base.format_version())?;
    let mut count = RowCount::default();
    for manifest in list.entries() {
        let live = manifest.added_rows_count.unwrap_or(0) + manifest.existing_rows_count.unwrap_or(0);
        match manifest.content {
            ManifestContentType::Data => count.rows += live,
            ManifestContentType::Deletes => count.deletes += live,
        }
    }
    Ok(count)
}
