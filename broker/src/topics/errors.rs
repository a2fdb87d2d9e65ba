//! Why a topic could not be made, changed or removed, and Kafka's code for it.

use kafka_protocol::ResponseError;
use weir_model::config::ConfigError;
use weir_model::{TopicId, TopicNameError};

/// Why a topic could not be made, changed or removed. Every message says what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// The name breaks Kafka's rules.
    #[error(transparent)]
    Name(#[from] TopicNameError),
    /// A topic exists whose name differs only in `.` and `_`.
    #[error("topic '{name}' collides with topic '{existing}': '.' and '_' count as the same; choose another name")]
    Collision {
        /// The new name.
        name: String,
        /// The one there is.
        existing: String,
    },
    /// No topic has this name.
    #[error("there is no topic '{0}'")]
    UnknownName(String),
    /// No topic has this id.
    #[error("there is no topic with id {0}")]
    UnknownId(TopicId),
    /// A count of partitions that is none.
    #[error("the number of partitions is {0}: write 1 or more, or -1 for the broker's default")]
    Partitions(i32),
    /// A new count of partitions that is not larger.
    #[error("topic '{name}' has {now} partitions and {asked} are asked for: the number can only grow")]
    PartitionsMustGrow {
        /// The topic.
        name: String,
        /// Its partitions.
        now: i32,
        /// What was asked for.
        asked: i32,
    },
    /// A count of replicas that is none, or more than there are brokers.
    #[error("the replication factor is {0}: this broker keeps one copy; write 1, or -1 for the broker's default")]
    ReplicationFactor(i16),
    /// Counts beside an assignment.
    #[error("both a replica assignment and a number of partitions or replicas are given: give one of them")]
    AssignmentAndCounts,
    /// An assignment that does not fit.
    #[error("the replica assignment does not fit: {0}")]
    Assignment(&'static str),
    /// Deleting topics is off.
    #[error("deleting topics is disabled: set delete.topic.enable=true")]
    DeletionDisabled,
    /// The broker's own topics are not changed by clients.
    #[error("topic '{0}' belongs to the broker and cannot be changed or deleted")]
    Internal(String),
    /// A name that the broker keeps for a topic of its own.
    #[error("topic '{0}' is made by the broker itself when it is needed; choose another name")]
    Reserved(String),
    /// A config that is fixed when the topic is made.
    #[error("config `{name}` is fixed when a topic is created: make a new topic with the new value")]
    Fixed {
        /// The config.
        name: &'static str,
    },
    /// Broker configs that are read at the start. In Kafka's words, which tools look for.
    #[error("Cannot update these configs dynamically: Set({0}): set them at the broker's start, and restart it")]
    FixedWhileRunning(String),
    /// A count of threads that changes too much at once.
    #[error(
        "config `{name}` is {current} and {asked} is asked for: a count of threads at most doubles or halves in one step"
    )]
    ThreadStep {
        /// The config.
        name: String,
        /// What was asked for.
        asked: i64,
        /// What it is.
        current: i64,
    },
    /// A broker that is not this one.
    #[error("Unexpected broker id, expected {expected} or empty string, but received {name}")]
    OtherBroker {
        /// This broker's id.
        expected: i32,
        /// As named.
        name: String,
    },
    /// The same config twice in one request.
    #[error("config `{0}` is named twice in one request")]
    DuplicateConfig(String),
    /// Appending to, or subtracting from, what is no list.
    #[error("config `{0}` is not a list: append and subtract work on lists only, set it instead")]
    NotAList(String),
    /// A config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Storage refused.
    #[error(transparent)]
    Storage(#[from] weir_storage::TopicError),
}

/// Kafka's code for `error`.
pub fn topic_error(error: &TopicError) -> ResponseError {
    match error {
        TopicError::Name(_) | TopicError::Collision { .. } | TopicError::Reserved(_) => {
            ResponseError::InvalidTopicException
        }
        TopicError::UnknownName(_) => ResponseError::UnknownTopicOrPartition,
        TopicError::UnknownId(_) => ResponseError::UnknownTopicId,
        TopicError::Partitions(_) | TopicError::PartitionsMustGrow { .. } => ResponseError::InvalidPartitions,
        TopicError::ReplicationFactor(_) => ResponseError::InvalidReplicationFactor,
        TopicError::Assignment(_) => ResponseError::InvalidReplicaAssignment,
        TopicError::DeletionDisabled => ResponseError::TopicDeletionDisabled,
        TopicError::AssignmentAndCounts
        | TopicError::Internal(_)
        | TopicError::DuplicateConfig(_)
        | TopicError::FixedWhileRunning(_)
        | TopicError::ThreadStep { .. }
        | TopicError::OtherBroker { .. } => ResponseError::InvalidRequest,
        TopicError::Fixed { .. } | TopicError::NotAList(_) | TopicError::Config(_) => ResponseError::InvalidConfig,
        TopicError::Storage(error) => storage_error(error),
    }
}

fn storage_error(error: &weir_storage::TopicError) -> ResponseError {
    use weir_storage::TopicError as Storage;
    match error {
        Storage::Exists(_) => ResponseError::TopicAlreadyExists,
        Storage::Unknown(_) => ResponseError::UnknownTopicId,
        Storage::Partitions { .. } => ResponseError::InvalidPartitions,
        Storage::Config(_) | Storage::Schema(_) | Storage::SchemaChange(_) => ResponseError::InvalidConfig,
        Storage::Store(_) | Storage::Io(_) => ResponseError::KafkaStorageError,
    }
}

/// The sentence for a client, bounded: some hold what the client sent.
pub fn message(error: &TopicError) -> String {
    const MAX: usize = 1_000;
    let mut text = error.to_string();
    if text.len() > MAX {
        let mut end = MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
