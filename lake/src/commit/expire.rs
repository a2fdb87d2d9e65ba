//! Old snapshots leave with a commit, so that metadata does not grow for ever.
//!
//! Every commit rewrites the metadata file, and the file names every snapshot: without this a table poured once a second
//! would write a gigabyte of metadata a day.

use std::collections::BTreeSet;

use iceberg::spec::{MAIN_BRANCH, ManifestList, SnapshotRef, TableMetadata};

use crate::{LakeError, LakeStorage};

/// Snapshots are looked at once there are this many,
const LOOK_AT: usize = 200;
/// and then the newest this many stay,
const KEEP: usize = 100;
/// and all that are younger than this,
const KEEP_MS: i64 = 3_600_000;
/// unless there are this many.
const KEEP_MAX: usize = 1000;

/// Snapshots that the next commit removes, oldest first. None while the table has tags or branches: whoever made them
/// decides what stays.
pub(super) fn due(metadata: &TableMetadata, now_ms: i64) -> Vec<SnapshotRef> {
    let count = metadata.snapshots().len();
    if count < LOOK_AT || has_other_refs(metadata) {
        return Vec::new();
    }
    let mut snapshots: Vec<SnapshotRef> = metadata.snapshots().cloned().collect();
    snapshots.sort_by_key(|snapshot| snapshot.sequence_number());
    snapshots.truncate(count - KEEP);
    let over = count.saturating_sub(KEEP_MAX);
    let mut index = 0;
    snapshots.retain(|snapshot| {
        index += 1;
        index <= over || now_ms - snapshot.timestamp_ms() > KEEP_MS
    });
    snapshots
}

fn has_other_refs(metadata: &TableMetadata) -> bool {
    let mut line = BTreeSet::new();
    let mut next = metadata.snapshot_for_ref(MAIN_BRANCH).cloned();
    while let Some(snapshot) = next {
        line.insert(snapshot.snapshot_id());
        next = snapshot.parent_snapshot_id().and_then(|parent| metadata.snapshot_by_id(parent)).cloned();
    }
    let strays = metadata.snapshots().any(|snapshot| !line.contains(&snapshot.snapshot_id()));
    // The crate lets nobody list the refs of a table; their JSON does. What cannot be read counts as a tag.
    let refs = serde_json::to_value(metadata).ok().and_then(|json| Some(json.get("refs")?.as_object()?.len()));
    strays || refs != Some(1)
}

/// Deletes the manifest lists of snapshots that `metadata` no longer has, and the manifests that only they named. Data files
/// stay: in a table that is only appended to, later snapshots name them all. What cannot be deleted is left behind, and said.
pub(super) async fn remove_files(storage: &LakeStorage, metadata: &TableMetadata, expired: &[SnapshotRef]) {
    if expired.is_empty() || expired.iter().any(|snapshot| metadata.snapshot_by_id(snapshot.snapshot_id()).is_some()) {
        return;
    }
    if let Err(error) = try_remove(storage, metadata, expired).await {
        tracing::warn!(table = metadata.location(), %error, "manifests of expired snapshots were left behind");
    }
}

async fn try_remove(storage: &LakeStorage, metadata: &TableMetadata, expired: &[SnapshotRef]) -> Result<(), LakeError> {
    // A manifest is in an unbroken run of snapshots. So what the oldest one that stays does not have, no later one has.
    let oldest = metadata.snapshots().min_by_key(|snapshot| snapshot.sequence_number());
    let Some(oldest) = oldest else { return Ok(()) };
    let kept = manifests(storage, metadata, oldest).await?;
    let mut gone = BTreeSet::new();
    for snapshot in expired {
        gone.extend(manifests(storage, metadata, snapshot).await?.difference(&kept).cloned());
    }
    let lists = expired.iter().map(|snapshot| snapshot.manifest_list().to_owned());
    for location in gone.into_iter().chain(lists) {
        storage.delete(&location).await?;
    }
    Ok(())
}

async fn manifests(
    storage: &LakeStorage,
    metadata: &TableMetadata,
    snapshot: &SnapshotRef,
) -> Result<BTreeSet<String>, LakeError> {
    let bytes = storage.read(snapshot.manifest_list()).await?;
    let list = ManifestList::parse_with_version(&bytes, metadata.format_version())?;
    Ok(list.entries().iter().map(|manifest| manifest.manifest_path.clone()).collect())
}
