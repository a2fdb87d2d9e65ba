//! The hash of a group's subscribed topics (KIP-1101): another value means that the target must be computed anew.
//!
//! The recipe is Kafka's (`Utils.computeTopicHash`, `Utils.computeGroupHash` of 4.2), so that a log that Kafka wrote does not
//! make every group rebalance: XXH3-64 over little-endian integers and UTF-16 texts followed by their length.

use twox_hash::XxHash3_64;
use uuid::Uuid;

use super::assignment::{TopicCatalog, TopicFacts};

/// The hash of `topics`; those that do not exist do not count. 0 when none does.
pub(super) fn metadata_hash<'a>(topics: impl IntoIterator<Item = &'a str>, catalog: &dyn TopicCatalog) -> i64 {
    let mut known: Vec<(&str, TopicFacts)> =
        topics.into_iter().filter_map(|name| catalog.by_name(name).map(|facts| (name, facts))).collect();
    // By UTF-16 units, as Java compares strings; topic names are ASCII, where that is the order of bytes.
    known.sort_unstable_by_key(|(name, _)| *name);
    known.dedup_by_key(|(name, _)| *name);
    if known.is_empty() {
        return 0;
    }
    let mut bytes = Vec::with_capacity(known.len() * 8);
    for (name, facts) in known {
        bytes.extend_from_slice(&topic_hash(name, facts).to_le_bytes());
    }
    xxh3(&bytes)
}

fn topic_hash(name: &str, facts: TopicFacts) -> i64 {
    let (high, low) = halves(facts.id);
    let mut bytes = Vec::with_capacity(64 + name.len() * 2);
    // The version of the recipe.
    bytes.push(0);
    bytes.extend_from_slice(&high.to_le_bytes());
    bytes.extend_from_slice(&low.to_le_bytes());
    let mut units: i32 = 0;
    for unit in name.encode_utf16() {
        bytes.extend_from_slice(&unit.to_le_bytes());
        units += 1;
    }
    bytes.extend_from_slice(&units.to_le_bytes());
    bytes.extend_from_slice(&facts.partitions.to_le_bytes());
    for partition in 0..facts.partitions {
        // After each partition come the racks of its replicas; there is one broker, and its rack does not differ.
        bytes.extend_from_slice(&partition.to_le_bytes());
    }
    xxh3(&bytes)
}

fn halves(id: Uuid) -> (u64, u64) {
    id.as_u64_pair()
}

fn xxh3(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(XxHash3_64::oneshot(bytes).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Two;

    impl TopicCatalog for Two {
        fn version(&self) -> u64 {
            0
        }

        fn by_name(&self, name: &str) -> Option<TopicFacts> {
            let (high, low, partitions) = match name {
                "foo" => (1, 2, 3),
                "bar-é" => (5_u64.wrapping_neg(), 77, 1),
                _ => return None,
            };
            Some(TopicFacts { id: Uuid::from_u64_pair(high, low), partitions })
        }

        fn name_of(&self, _: Uuid) -> Option<Arc<str>> {
            None
        }

        fn names(&self) -> Vec<Arc<str>> {
            Vec::new()
        }
    }

    /// The values are those of hash4j 0.22.0, which Kafka 4.2 uses.
    #[test]
    fn hashes_are_kafkas() {
        let hash = |name: &str| topic_hash(name, Two.by_name(name).expect("known"));
        assert_eq!(hash("foo"), 8_773_618_633_639_361_573);
        assert_eq!(hash("bar-é"), -8_789_465_975_867_636_105);
        assert_eq!(metadata_hash(["foo", "bar-é", "foo", "gone"], &Two), 7_231_196_185_082_412_936);
        assert_eq!(metadata_hash(["foo"], &Two), 2_633_128_836_192_030_139);
        assert_eq!(metadata_hash(["gone"], &Two), 0);
    }
}
