//! Which files of a snapshot may hold which offsets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use iceberg::spec::{DataFile, Datum, ManifestContentType, ManifestFile, PrimitiveLiteral, TableMetadata, Type};

use crate::cache::BoundedCache;
use crate::commit::snapshot::current_manifests;
use crate::schema::KAFKA_COLUMN;
use crate::{LakeError, LakeStorage};

/// A data file, as its manifest describes it. Bounds are inclusive.
#[derive(Debug)]
pub(super) struct FileRef {
    pub(super) location: String,
    pub(super) size: u64,
    partitions: (i32, i32),
    pub(super) offsets: (i64, i64),
    /// No row has a later timestamp.
    pub(super) max_timestamp_ms: i64,
}

/// Approximate memory of a [`FileRef`].
const FILE_REF_BYTES: usize = 256;

/// The files of one snapshot, by partition.
#[derive(Debug, Default)]
pub(super) struct SnapshotIndex {
    partitions: BTreeMap<i32, Run>,
    /// Files of rows of several partitions: only others write such.
    mixed: Run,
    files: usize,
}

/// Files in order of their first offset.
#[derive(Debug, Default)]
struct Run {
    files: Vec<Arc<FileRef>>,
    /// For each file, the highest last offset of it and all before: rises, so it can be searched.
    reach: Vec<i64>,
}

impl Run {
    fn sort(&mut self) {
        self.files.sort_by(|a, b| (a.offsets, &a.location).cmp(&(b.offsets, &b.location)));
        let mut reach = i64::MIN;
        self.reach = self
            .files
            .iter()
            .map(|file| {
                reach = reach.max(file.offsets.1);
                reach
            })
            .collect();
    }

    fn overlapping(&self, from: i64, to: i64) -> impl Iterator<Item = &Arc<FileRef>> {
        let first = self.reach.partition_point(|&reach| reach < from);
        self.files[first..]
            .iter()
            .take_while(move |file| file.offsets.0 < to)
            .filter(move |file| file.offsets.1 >= from)
    }
}

impl SnapshotIndex {
    /// Files that may hold rows `from..to` of a partition, in order of their first offset.
    pub(super) fn files(&self, partition: i32, from: i64, to: i64) -> Vec<Arc<FileRef>> {
        let own = self.partitions.get(&partition).into_iter().flat_map(|run| run.overlapping(from, to));
        let mixed = self
            .mixed
            .overlapping(from, to)
            .filter(|file| file.partitions.0 <= partition && partition <= file.partitions.1);
        let mut found: Vec<Arc<FileRef>> = own.chain(mixed).cloned().collect();
        found.sort_by(|a, b| (a.offsets, &a.location).cmp(&(b.offsets, &b.location)));
        found
    }

    fn add(&mut self, file: &Arc<FileRef>) {
        self.files += 1;
        let (low, high) = file.partitions;
        let run = if low == high { self.partitions.entry(low).or_default() } else { &mut self.mixed };
        run.files.push(Arc::clone(file));
    }
}

/// Indexes of snapshots and the manifests they are made from; both never change under their keys.
#[derive(Debug)]
pub(super) struct IndexCache {
    snapshots: BoundedCache<i64, Arc<SnapshotIndex>>,
    manifests: BoundedCache<String, Arc<Vec<Arc<FileRef>>>>,
}

impl IndexCache {
    pub(super) fn new(bytes: usize) -> Self {
        Self { snapshots: BoundedCache::new(bytes / 2), manifests: BoundedCache::new(bytes / 2) }
    }

    /// The index of a table's current snapshot.
    pub(super) async fn current(
        &self,
        storage: &LakeStorage,
        metadata: &TableMetadata,
    ) -> Result<Arc<SnapshotIndex>, LakeError> {
        let Some(snapshot_id) = metadata.current_snapshot_id() else { return Ok(Arc::default()) };
        if let Some(index) = self.snapshots.get(&snapshot_id) {
            return Ok(index);
        }
        let mut index = SnapshotIndex::default();
        for manifest in current_manifests(&storage.file_io(), metadata).await? {
            for file in self.files_of(storage, metadata, &manifest).await?.iter() {
                index.add(file);
            }
        }
        index.partitions.values_mut().for_each(Run::sort);
        index.mixed.sort();
        let index = Arc::new(index);
        self.snapshots.put(snapshot_id, Arc::clone(&index), index.files * FILE_REF_BYTES);
        Ok(index)
    }

    async fn files_of(
        &self,
        storage: &LakeStorage,
        metadata: &TableMetadata,
        manifest: &ManifestFile,
    ) -> Result<Arc<Vec<Arc<FileRef>>>, LakeError> {
        if let Some(files) = self.manifests.get(&manifest.manifest_path) {
            return Ok(files);
        }
        let loaded = manifest.load_manifest(&storage.file_io()).await?;
        let alive: Vec<_> = loaded.entries().iter().filter(|entry| entry.is_alive()).collect();
        if manifest.content == ManifestContentType::Deletes && !alive.is_empty() {
            // Serving rows that the table says are gone, or hiding rows that the log still has, would both be wrong.
            return Err(LakeError::DataFile {
                file: manifest.manifest_path.clone(),
                reason: "a topic's table has delete files, which its log cannot be read through".to_owned(),
            });
        }
        let ids = KafkaIds::of(metadata);
        let files: Vec<Arc<FileRef>> = alive.iter().map(|entry| Arc::new(ids.file_ref(entry.data_file()))).collect();
        let files = Arc::new(files);
        self.manifests.put(manifest.manifest_path.clone(), Arc::clone(&files), files.len() * FILE_REF_BYTES);
        Ok(files)
    }
}

/// Field ids inside `_kafka`; 0, which no field has, when one is missing.
struct KafkaIds {
    partition: i32,
    offset: i32,
    timestamp: i32,
    timestamp_raw: i32,
}

impl KafkaIds {
    fn of(metadata: &TableMetadata) -> Self {
        let kafka = metadata.current_schema().as_struct().field_by_name(KAFKA_COLUMN);
        let id = |name: &str| match kafka.map(|kafka| kafka.field_type.as_ref()) {
            Some(Type::Struct(fields)) => fields.field_by_name(name).map_or(0, |field| field.id),
            _ => 0,
        };
        Self {
            partition: id("partition"),
            offset: id("offset"),
            timestamp: id("timestamp"),
            timestamp_raw: id("timestamp_raw"),
        }
    }

    /// A file without bounds may hold anything, and is looked into.
    fn file_ref(&self, file: &DataFile) -> FileRef {
        let int = |bounds: &HashMap<i32, Datum>, id: i32| match bounds.get(&id).map(Datum::literal) {
            Some(PrimitiveLiteral::Int(value)) => Some(i64::from(*value)),
            Some(PrimitiveLiteral::Long(value)) => Some(*value),
            _ => None,
        };
        let partition = |bounds, otherwise| {
            int(bounds, self.partition).and_then(|value| i32::try_from(value).ok()).unwrap_or(otherwise)
        };
        let (lower, upper) = (file.lower_bounds(), file.upper_bounds());
        let no_raw = file.null_value_counts().get(&self.timestamp_raw) == Some(&file.record_count());
        let max_timestamp = int(upper, self.timestamp).filter(|_| no_raw);
        FileRef {
            location: file.file_path().to_owned(),
            size: file.file_size_in_bytes(),
            partitions: (partition(lower, i32::MIN), partition(upper, i32::MAX)),
            offsets: (int(lower, self.offset).unwrap_or(i64::MIN), int(upper, self.offset).unwrap_or(i64::MAX)),
            max_timestamp_ms: max_timestamp.map_or(i64::MAX, |micros| micros.div_euclid(1000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, partitions: (i32, i32), offsets: (i64, i64)) -> Arc<FileRef> {
        Arc::new(FileRef { location: name.to_owned(), size: 1, partitions, offsets, max_timestamp_ms: 0 })
    }

    #[test]
    fn files_are_found_by_partition_and_offset_whoever_wrote_them() {
        let mut index = SnapshotIndex::default();
        for file in [
            file("a", (0, 0), (0, 99)),
            file("b", (0, 0), (100, 199)),
            file("c", (1, 1), (0, 500)),
            file("mixed", (0, 2), (50, 150)),
        ] {
            index.add(&file);
        }
        index.partitions.values_mut().for_each(Run::sort);
        index.mixed.sort();
        let names = |partition, from, to| -> Vec<String> {
            index.files(partition, from, to).iter().map(|file| file.location.clone()).collect()
        };
        assert_eq!(names(0, 0, 50), ["a"]);
        assert_eq!(names(0, 99, 101), ["a", "mixed", "b"]);
        assert_eq!(names(0, 160, 1000), ["b"]);
        assert_eq!(names(2, 0, 1000), ["mixed"]);
        assert_eq!(names(1, 501, 1000), Vec::<String>::new());
    }
}
