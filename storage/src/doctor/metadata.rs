//! The metadata: every key read, every value decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use bytes::Bytes;
use weir_model::config::BrokerConfig;
use weir_model::{Offset, PartitionId, TopicId};

use super::{Examination, Finding, KeyCheck};
use crate::manifest::{self, PartitionRecord, SegmentRecord};
use crate::meta::{MetaError, RocksMetaStore};
use crate::partition::topic_directory_name;
use crate::producers::ProducerTable;
use crate::topics::{TopicInfo, TopicRecord};

/// What the metadata says, as far as it decodes.
#[derive(Default)]
pub(super) struct Metadata {
    /// Every topic that has a key; `None` where its value does not decode.
    pub(super) topics: BTreeMap<TopicId, Option<TopicRecord>>,
    pub(super) partitions: BTreeMap<PartitionId, PartitionKeys>,
}

/// What the keys of one partition say.
#[derive(Default)]
pub(super) struct PartitionKeys {
    pub(super) record: Stored<PartitionRecord>,
    /// By the base offset in the key.
    pub(super) segments: BTreeMap<Offset, Result<SegmentRecord, String>>,
}

/// A value that may be missing or damaged.
#[derive(Clone, Copy, Default)]
pub(super) enum Stored<T> {
    #[default]
    Absent,
    Damaged,
    Good(T),
}

impl PartitionKeys {
    /// First offset in no segment, as far as anything says; `None` when nothing does.
    pub(super) fn sealed_end(&self) -> Option<Offset> {
        match &self.record {
            Stored::Good(record) => Some(record.sealed_end),
            Stored::Absent => Some(Offset::ZERO),
            Stored::Damaged => {
                self.segments.values().next_back().and_then(|last| last.as_ref().ok()).map(|last| last.meta.range.end)
            }
        }
    }
}

impl Metadata {
    /// Reads the store; `None` when so much of it is damaged that the rest cannot be judged by it.
    pub(super) fn read(examination: &mut Examination<'_>, other_keys: KeyCheck<'_>) -> Option<Self> {
        let path = examination.directory.join("meta");
        if !path.is_dir() {
            examination
                .report(Finding::damage(&path, "missing: it names every topic and segment; restore it from a copy"));
            return None;
        }
        let inspected = match RocksMetaStore::inspect(&path) {
            Ok(inspected) => inspected,
            Err(error) => {
                examination.report(Finding::damage(&path, format!("the metadata does not open: {}", reason(&error))));
                return None;
            }
        };
        if let Some(error) = &inspected.log_damage {
            let text = format!(
                "the newest changes of the metadata do not read: {}; what follows is judged by the last state before them",
                reason(error)
            );
            examination.report(Finding::damage(&path, text));
        }
        let damages = examination.summary.damages;
        let mut metadata = Self::default();
        let keys = inspected.entries.len();
        for (key, value) in inspected.entries {
            metadata.take(examination, &path, &key, &value, other_keys);
        }
        if let Some(error) = &inspected.table_damage {
            let text = format!("the metadata does not read beyond {keys} keys: {}", reason(error));
            examination.report(Finding::damage(&path, text));
            return None;
        }
        if examination.summary.damages == damages {
            examination.report(Finding::ok(&path, format!("{keys} keys, every value decodes")));
        }
        metadata.name_partitions(examination, &path);
        Some(metadata)
    }

    fn take(
        &mut self,
        examination: &mut Examination<'_>,
        path: &std::path::Path,
        key: &Bytes,
        value: &Bytes,
        other_keys: KeyCheck<'_>,
    ) {
        let Ok(key) = std::str::from_utf8(key) else {
            examination.report(Finding::note(path, format!("key {key:?} is of no kind that this build knows")));
            return;
        };
        let kind = key.split('/').next().unwrap_or_default();
        let decoded = match kind {
            manifest::CLUSTER => text(value).map(|_| ()),
            manifest::PRODUCER_IDS => {
                text(value).and_then(|text| text.parse::<i64>().map(|_| ()).map_err(|error| error.to_string()))
            }
            manifest::BROKER_CONFIGS => decode::<BTreeMap<String, String>>(key, value).map(|_| ()),
            "topic" => self.take_topic(key, value),
            "partition" | "segment" | "producers" => match manifest::partition_of(key) {
                Some(id) => self.take_partition(kind, id, key, value),
                None => Err("the key names no partition".to_owned()),
            },
            _ => match other_keys(key, value) {
                Some(decoded) => decoded,
                None => {
                    examination.report(Finding::note(path, format!("key '{key}' is of no kind that this build knows")));
                    Ok(())
                }
            },
        };
        if let Err(reason) = decoded {
            let partition = manifest::partition_of(key).map(|id| self.name(id));
            let finding = Finding::damage(path, format!("the value of key '{key}' does not decode: {reason}"));
            examination.report(partition.map_or(finding.clone(), |partition| finding.of(&partition)));
        }
    }

    fn take_topic(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let id = key.strip_prefix(manifest::TOPICS).and_then(|id| id.parse().ok()).map(TopicId::from_uuid);
        let id = id.ok_or_else(|| "the key names no topic".to_owned())?;
        let record = decode::<TopicRecord>(key, value);
        self.topics.insert(id, record.as_ref().ok().cloned());
        let record = record?;
        if record.id != id {
            return Err(format!("it holds the topic of id {}", record.id));
        }
        // The broker's own settings are defaults for the topic's, and no topic is refused on their account.
        TopicInfo::resolve(record, &BrokerConfig::default()).map(|_| ()).map_err(|error| error.to_string())
    }

    /// Segments that do not decode are reported with their partition, where the offsets around them are known.
    fn take_partition(&mut self, kind: &str, id: PartitionId, key: &str, value: &[u8]) -> Result<(), String> {
        match kind {
            "partition" => {
                let record = decode::<PartitionRecord>(key, value);
                let keys = self.partitions.entry(id).or_default();
                keys.record = record.as_ref().map_or(Stored::Damaged, |record| Stored::Good(*record));
                record.map(|_| ())
            }
            "producers" => decode::<ProducerTable>(key, value).map(|_| ()),
            _ => {
                let base = key.rsplit('/').next().and_then(|base| base.parse().ok()).and_then(Offset::new);
                let base = base.ok_or_else(|| "the key names no offset".to_owned())?;
                let record = decode::<SegmentRecord>(key, value).and_then(|record| match record.meta.range {
                    range if range.start != base => Err(format!("it holds the segment at offset {}", range.start)),
                    range if range.end < range.start => {
                        Err(format!("its offsets run backwards: {}..{}", range.start, range.end))
                    }
                    _ => Ok(record),
                });
                self.partitions.entry(id).or_default().segments.insert(base, record);
                Ok(())
            }
        }
    }

    /// Gives every partition of a topic an entry, and names those that belong to none.
    fn name_partitions(&mut self, examination: &mut Examination<'_>, path: &std::path::Path) {
        for record in self.topics.values().flatten() {
            for index in 0..record.partitions {
                self.partitions.entry(PartitionId { topic: record.id, index }).or_default();
            }
        }
        let known = |id: &PartitionId| match self.topics.get(&id.topic) {
            Some(Some(record)) => id.index < record.partitions,
            Some(None) => true,
            None => false,
        };
        let strangers: BTreeSet<PartitionId> = self.partitions.keys().filter(|id| !known(id)).copied().collect();
        for id in strangers {
            examination.report(
                Finding::note(path, "its topic is gone or has fewer partitions; its keys are left over")
                    .of(&id.to_string()),
            );
            self.partitions.remove(&id);
        }
        examination.summary.topics = self.topics.len();
        examination.summary.partitions = self.partitions.len();
    }

    /// What people call a partition.
    pub(super) fn name(&self, id: PartitionId) -> String {
        match self.topics.get(&id.topic) {
            Some(Some(record)) => format!("{}-{}", record.name, id.index),
            Some(None) | None => id.to_string(),
        }
    }

    /// Where a topic's segments are; `None` when its name does not read.
    pub(super) fn directory(&self, segments: &std::path::Path, topic: TopicId) -> Option<PathBuf> {
        let record = self.topics.get(&topic)?.as_ref()?;
        Some(segments.join(topic_directory_name(record.name.as_str(), topic)))
    }
}

fn decode<T: serde::de::DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, String> {
    manifest::decode(key, value).map_err(|error| error.reason)
}

fn text(value: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(value).map_err(|error| error.to_string())
}

/// Without the advice to run what is running.
fn reason(error: &MetaError) -> String {
    match error {
        MetaError::Open { source, .. } | MetaError::Storage { source, .. } => source.to_string(),
        MetaError::Conflict { .. } => error.to_string(),
    }
}
