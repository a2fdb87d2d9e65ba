//! Names and ids of topics and partitions.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Identity of one incarnation of a topic (KIP-516). A topic made again under the same name has another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TopicId(Uuid);

impl TopicId {
    /// A new random id, never the zero or the one id that Kafka reserves.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The id that these bits name.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The bits.
    pub fn as_uuid(self) -> Uuid {
        self.0
    }
}

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for TopicId {
    /// Kafka's form of a uuid: 22 characters of unpadded base64url (`org.apache.kafka.common.Uuid`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(22);
        for chunk in self.0.as_bytes().chunks(3) {
            let mut group = [0u8; 3];
            group[..chunk.len()].copy_from_slice(chunk);
            let bits = (usize::from(group[0]) << 16) | (usize::from(group[1]) << 8) | usize::from(group[2]);
            for position in 0..=chunk.len() {
                text.push(char::from(BASE64_URL[(bits >> (18 - 6 * position)) & 63]));
            }
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A topic name that Kafka would accept: 1 to 249 of `[a-zA-Z0-9._-]`, and neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Why a topic name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameError {
    /// Nothing to name.
    #[error("topic name is empty; use 1 to 249 of the characters a-z A-Z 0-9 . _ -")]
    Empty,
    /// `.` and `..` are path components.
    #[error("topic name cannot be '.' or '..'")]
    Dots,
    /// Over 249 characters.
    #[error("topic name has {length} characters; 249 is the most")]
    TooLong {
        /// How long it was.
        length: usize,
    },
    /// A character outside the allowed set.
    #[error("topic name '{name}' has a character outside a-z A-Z 0-9 . _ -")]
    Character {
        /// The name as it was given.
        name: String,
    },
}

impl TopicName {
    /// Checks a name by Kafka's rules (`org.apache.kafka.common.internals.Topic.validate`).
    ///
    /// # Errors
    /// One variant of [`TopicNameError`] per rule.
    pub fn new(name: &str) -> Result<Self, TopicNameError> {
        if name.is_empty() {
            return Err(TopicNameError::Empty);
        }
        if name == "." || name == ".." {
            return Err(TopicNameError::Dots);
        }
        if name.len() > 249 {
            return Err(TopicNameError::TooLong { length: name.len() });
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
            return Err(TopicNameError::Character { name: name.to_owned() });
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The form under which `.` and `_` collide, as they do in Kafka's metric names.
    pub fn collision_key(&self) -> String {
        self.0.replace('.', "_")
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl AsRef<str> for TopicName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for TopicName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TopicName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::new(&name).map_err(serde::de::Error::custom)
    }
}

/// One partition of one incarnation of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// The partition's number, from 0.
    pub index: i32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_ids_print_as_kafka_prints_them() {
        // org.apache.kafka.common.Uuid(0, 1) prints as AAAAAAAAAAAAAAAAAAAAAQ
        assert_eq!(TopicId::from_uuid(Uuid::from_u128(1)).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(TopicId::from_uuid(Uuid::from_u128(u128::MAX)).to_string(), "_____________________w");
    }

    #[test]
    fn bad_topic_names_are_refused() {
        assert_eq!(TopicName::new(""), Err(TopicNameError::Empty));
        assert_eq!(TopicName::new(".."), Err(TopicNameError::Dots));
        assert!(matches!(TopicName::new("a b"), Err(TopicNameError::Character { .. })));
        assert!(matches!(TopicName::new(&"x".repeat(250)), Err(TopicNameError::TooLong { length: 250 })));
        assert_eq!(TopicName::new("a.b_c-1").expect("legal").as_str(), "a.b_c-1");
    }
}
