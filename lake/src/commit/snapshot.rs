//! Producing a snapshot: the manifest of new files, the list of all manifests, and the summary.

use std::collections::HashMap;

use iceberg::io::FileIO;
use iceberg::spec::{
    DataFile, FormatVersion, ManifestContentType, ManifestFile, ManifestList, ManifestListWriter, ManifestWriter,
    ManifestWriterBuilder, Operation, Snapshot, SnapshotSummaryCollector, Summary, TableMetadata,
};
use uuid::Uuid;

use super::Marker;
use crate::LakeError;
use crate::catalog::ownership::MARKER;

/// A list longer than this has its small manifests merged into one, so that opening a table stays cheap.
const MANIFESTS_MAX: usize = 32;
/// A manifest of this size is not merged again: rewriting it would cost more than the request it saves.
const MANIFEST_FULL_BYTES: i64 = 8 << 20;
/// Lets the manifest list assign the sequence number.
const INHERIT_SEQUENCE: i64 = -1;

/// What a snapshot is made of.
pub(super) struct Production<'a> {
    pub(super) io: &'a FileIO,
    pub(super) base: &'a TableMetadata,
    pub(super) snapshot_id: i64,
    /// Names the files of this attempt.
    pub(super) attempt: Uuid,
    pub(super) now_ms: i64,
}

impl Production<'_> {
    /// Writes manifests and list, and returns the snapshot that appends `files`.
    pub(super) async fn append(&self, files: Vec<DataFile>, marker: &Marker) -> Result<Snapshot, LakeError> {
        if self.base.format_version() != FormatVersion::V2 {
            return Err(iceberg::Error::new(
                iceberg::ErrorKind::FeatureUnsupported,
                format!("tables of topics have format version 2, this one has {}", self.base.format_version()),
            )
            .into());
        }
        let summary = self.summary(&files, marker);
        // Only the marker moves when a stretch of the log has no rows.
        let mut manifests = if files.is_empty() { Vec::new() } else { vec![self.new_manifest(files).await?] };
        manifests.extend(self.merged(current_manifests(self.io, self.base).await?).await?);
        let sequence_number = self.base.next_sequence_number();
        let parent = self.base.current_snapshot_id();
        let location = list_location(self.base.location(), self.snapshot_id, self.attempt);
        let writer = self.io.new_output(&location)?.writer().await?;
        let mut list = ManifestListWriter::v2(writer, self.snapshot_id, parent, sequence_number);
        list.add_manifests(manifests.into_iter())?;
        list.close().await?;
        Ok(Snapshot::builder()
            .with_snapshot_id(self.snapshot_id)
            .with_parent_snapshot_id(parent)
            .with_sequence_number(sequence_number)
            // Metadata refuses a clock that ran backwards by more than a minute.
            .with_timestamp_ms(self.now_ms.max(self.base.last_updated_ms()))
            .with_manifest_list(location)
            .with_summary(summary)
            .with_schema_id(self.base.current_schema_id())
            .build())
    }

    fn writer(&self, location: &str) -> Result<ManifestWriter, LakeError> {
        let output = self.io.new_output(location)?;
        let spec = self.base.default_partition_spec().as_ref().clone();
        let schema = self.base.current_schema().clone();
        Ok(ManifestWriterBuilder::new(output, Some(self.snapshot_id), schema, spec).build_v2_data())
    }

    async fn new_manifest(&self, files: Vec<DataFile>) -> Result<ManifestFile, LakeError> {
        let mut writer = self.writer(&manifest_location(self.base.location(), self.attempt, 0))?;
        for file in files {
            writer.add_file(file, INHERIT_SEQUENCE)?;
        }
        Ok(writer.write_manifest_file().await?)
    }

    async fn merged(&self, manifests: Vec<ManifestFile>) -> Result<Vec<ManifestFile>, LakeError> {
        if manifests.len() < MANIFESTS_MAX {
            return Ok(manifests);
        }
        let spec_id = self.base.default_partition_spec_id();
        let (small, mut kept): (Vec<_>, Vec<_>) = manifests.into_iter().partition(|manifest| {
            manifest.content == ManifestContentType::Data
                && manifest.partition_spec_id == spec_id
                && manifest.manifest_length < MANIFEST_FULL_BYTES
        });
        if small.len() < 2 {
            kept.extend(small);
            return Ok(kept);
        }
        let mut writer = self.writer(&manifest_location(self.base.location(), self.attempt, 1))?;
        let mut entries = 0usize;
        for manifest in &small {
            for entry in manifest.load_manifest(self.io).await?.entries() {
                if !entry.is_alive() {
                    continue;
                }
                let (Some(snapshot_id), Some(sequence)) = (entry.snapshot_id(), entry.sequence_number()) else {
                    return Err(LakeError::DataFile {
                        file: entry.file_path().to_owned(),
                        reason: format!("manifest {} does not say which snapshot added it", manifest.manifest_path),
                    });
                };
                writer.add_existing_file(
                    entry.data_file().clone(),
                    snapshot_id,
                    sequence,
                    entry.file_sequence_number,
                )?;
                entries += 1;
            }
        }
        if entries > 0 {
            kept.insert(0, writer.write_manifest_file().await?);
        }
        Ok(kept)
    }

    fn summary(&self, files: &[DataFile], marker: &Marker) -> Summary {
        let mut collector = SnapshotSummaryCollector::default();
        for file in files {
            collector.add_file(file, self.base.current_schema().clone(), self.base.default_partition_spec().clone());
        }
        let mut properties = collector.build();
        let before = self.base.current_snapshot().map(|snapshot| &snapshot.summary().additional_properties);
        for (total, added, removed) in TOTALS {
            let old = match before {
                // A parent without totals leaves them unknown for ever; guessing would be worse.
                Some(before) => match number(before, total) {
                    Some(old) => old,
                    None => continue,
                },
                None => 0,
            };
            let new = (old + number(&properties, added).unwrap_or(0))
                .saturating_sub(number(&properties, removed).unwrap_or(0));
            properties.insert(total.to_owned(), new.to_string());
        }
        properties.insert(MARKER.to_owned(), marker.to_text());
        properties.insert("engine-name".to_owned(), "weir".to_owned());
        Summary { operation: Operation::Append, additional_properties: properties }
    }
}

/// Running totals of a summary, with what raises and what lowers them.
const TOTALS: [(&str, &str, &str); 6] = [
    ("total-records", "added-records", "deleted-records"),
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
];

fn number(properties: &HashMap<String, String>, name: &str) -> Option<u64> {
    properties.get(name)?.parse().ok()
}

/// Manifests of the current snapshot.
pub(crate) async fn current_manifests(io: &FileIO, metadata: &TableMetadata) -> Result<Vec<ManifestFile>, LakeError> {
    let Some(snapshot) = metadata.current_snapshot() else { return Ok(Vec::new()) };
    let bytes = io.new_input(snapshot.manifest_list())?.read().await?;
    Ok(ManifestList::parse_with_version(&bytes, metadata.format_version())?.consume_entries().into_iter().collect())
}

fn manifest_location(table: &str, attempt: Uuid, index: usize) -> String {
    format!("{table}/metadata/{attempt}-m{index}.avro")
}

fn list_location(table: &str, snapshot_id: i64, attempt: Uuid) -> String {
    format!("{table}/metadata/snap-{snapshot_id}-{attempt}.avro")
}

/// Everything that an attempt may have written.
pub(super) fn files_of_attempt(table: &str, snapshot_id: i64, attempt: Uuid) -> [String; 3] {
    [
        manifest_location(table, attempt, 0),
        manifest_location(table, attempt, 1),
        list_location(table, snapshot_id, attempt),
    ]
}
