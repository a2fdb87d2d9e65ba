//! How far a topic was poured, as the table itself says.

use std::collections::BTreeMap;

use iceberg::TableIdent;
use iceberg::spec::TableMetadata;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_model::TopicId;

use crate::LakeError;
use crate::catalog::ownership::MARKER;

/// End offsets of what the table holds, with enough to tell whose commit it was. The same text stands in the summary of
/// every snapshot of ours and in the table property `weir.marker`; the property survives snapshot expiry and foreign
/// commits, the summary survives a lost property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The incarnation of the topic.
    pub topic_id: TopicId,
    /// Counts our commits to the table; 0 before the first.
    pub sequence: u64,
    /// Epoch of the committer.
    pub epoch: u64,
    /// The plan that made this commit.
    pub plan: Uuid,
    /// By partition: every row below this offset is in the table.
    pub ends: BTreeMap<i32, i64>,
}

impl Marker {
    /// The marker of a table without rows.
    pub fn new(topic_id: TopicId) -> Self {
        Self { topic_id, sequence: 0, epoch: 0, plan: Uuid::nil(), ends: BTreeMap::new() }
    }

    /// Its text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("ids and integers always serialise")
    }

    /// The newest marker in a table's metadata: of the property and the nearest summary, the one with the higher sequence.
    ///
    /// # Errors
    /// [`LakeError::MarkerLost`] when there is none that can be read.
    pub fn read(table: &TableIdent, metadata: &TableMetadata) -> Result<Self, LakeError> {
        let lost = |reason: String| LakeError::MarkerLost { table: table.clone(), reason, property: MARKER };
        let property = metadata.properties().get(MARKER).map(|text| parse(text)).transpose().map_err(lost)?;
        let summary = nearest_summary(metadata).map(|text| parse(&text)).transpose().map_err(lost)?;
        match (property, summary) {
            (Some(property), Some(summary)) if summary.sequence > property.sequence => Ok(summary),
            (Some(property), _) => Ok(property),
            (None, Some(summary)) => Ok(summary),
            (None, None) => Err(lost("neither the property nor any snapshot has one".to_owned())),
        }
    }

    /// Fails loudly when the rows are another topic's.
    ///
    /// # Errors
    /// [`LakeError::OtherTopic`].
    pub fn expect_topic(&self, table: &TableIdent, topic_id: TopicId) -> Result<(), LakeError> {
        if self.topic_id == topic_id {
            return Ok(());
        }
        Err(LakeError::OtherTopic { table: table.clone(), found: self.topic_id, expected: topic_id })
    }

    /// The marker after a commit that ends partitions at `ends`; an end never goes back.
    #[must_use]
    pub fn after(&self, plan: Uuid, epoch: u64, ends: impl Iterator<Item = (i32, i64)>) -> Self {
        let mut next = self.clone();
        next.sequence += 1;
        next.epoch = epoch;
        next.plan = plan;
        for (partition, end) in ends {
            let known = next.ends.entry(partition).or_insert(end);
            *known = (*known).max(end);
        }
        next
    }
}

fn parse(text: &str) -> Result<Marker, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn nearest_summary(metadata: &TableMetadata) -> Option<String> {
    let mut snapshot = metadata.current_snapshot()?;
    // A chain of parents cannot be longer than the snapshots there are.
    for _ in 0..metadata.snapshots().len() {
        if let Some(text) = snapshot.summary().additional_properties.get(MARKER) {
            return Some(text.clone());
        }
        snapshot = metadata.snapshot_by_id(snapshot.parent_snapshot_id()?)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_never_goes_back_and_the_sequence_counts() {
        let marker = Marker::new(TopicId::random());
        let first = marker.after(Uuid::new_v4(), 1, [(0, 10), (1, 5)].into_iter());
        let second = first.after(Uuid::new_v4(), 2, [(0, 7), (1, 9)].into_iter());
        assert_eq!((second.sequence, second.epoch), (2, 2));
        assert_eq!(second.ends, BTreeMap::from([(0, 10), (1, 9)]));
        assert_eq!(serde_json::from_str::<Marker>(&second.to_text()).expect("its own text"), second);
    }
}
