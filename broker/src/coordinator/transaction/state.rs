//! Where a transactional id stands, and what it can be refused for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_model::producer::{ProducerEpoch, ProducerId, TxnOutcome};

/// The epoch of a transactional id whose first InitProducerId is not durable yet: Kafka's `RecordBatch.NO_PRODUCER_EPOCH`.
pub(super) const NO_PRODUCER_EPOCH: ProducerEpoch = -1;

/// Where a transactional id stands (Kafka's `TransactionState`). The numbers are those of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionState {
    /// Initialized, and nothing begun.
    Empty,
    /// Partitions were added.
    Ongoing,
    /// Decided to commit; markers are being written.
    PrepareCommit,
    /// Decided to abort; markers are being written.
    PrepareAbort,
    /// Committed in every partition.
    CompleteCommit,
    /// Aborted in every partition.
    CompleteAbort,
    /// Being removed, after it was idle too long.
    Dead,
    /// An older instance is being fenced. Ours goes from Ongoing to PrepareAbort in one step, so none is ever seen here; the name is known to filters.
    PrepareEpochFence,
}

impl TransactionState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::Ongoing,
        Self::PrepareCommit,
        Self::PrepareAbort,
        Self::CompleteCommit,
        Self::CompleteAbort,
        Self::Dead,
        Self::PrepareEpochFence,
    ];

    /// Its number in records.
    pub(super) fn id(self) -> i8 {
        match self {
            Self::Empty => 0,
            Self::Ongoing => 1,
            Self::PrepareCommit => 2,
            Self::PrepareAbort => 3,
            Self::CompleteCommit => 4,
            Self::CompleteAbort => 5,
            Self::Dead => 6,
            Self::PrepareEpochFence => 7,
        }
    }

    /// The state of a number.
    pub(super) fn from_id(id: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.id() == id)
    }

    /// Its name on the wire; matched with its case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
            Self::Dead => "Dead",
            Self::PrepareEpochFence => "PrepareEpochFence",
        }
    }

    /// The state of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The outcome whose markers are being written.
    pub(super) fn prepared(self) -> Option<TxnOutcome> {
        match self {
            Self::PrepareCommit => Some(TxnOutcome::Commit),
            Self::PrepareAbort => Some(TxnOutcome::Abort),
            Self::Empty
            | Self::Ongoing
            | Self::CompleteCommit
            | Self::CompleteAbort
            | Self::Dead
            | Self::PrepareEpochFence => None,
        }
    }

    /// Whether an id may be forgotten in it.
    pub(super) fn is_expiration_allowed(self) -> bool {
        matches!(self, Self::Empty | Self::CompleteCommit | Self::CompleteAbort)
    }
}

/// A producer: the id and the epoch it writes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Producer {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
}

/// Which version of transactions a client speaks (the feature `transaction.version`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientVersion {
    /// Before KIP-890: partitions are added by requests of their own, and an epoch lasts for many transactions.
    V0,
    /// KIP-915: as before, with flexible records.
    V1,
    /// KIP-890's second part: partitions are added by writing to them, and every transaction ends its epoch.
    V2,
}

impl ClientVersion {
    /// Its number in records.
    pub(super) fn level(self) -> i16 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// The version of a number; a later one is taken for the newest known.
    pub(super) fn from_level(level: i16) -> Self {
        match level {
            ..=0 => Self::V0,
            1 => Self::V1,
            2.. => Self::V2,
        }
    }

    pub(super) fn bumps_epochs(self) -> bool {
        self >= Self::V2
    }
}

/// Partitions by topic name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partitions(BTreeMap<Arc<str>, BTreeSet<i32>>);

impl Partitions {
    /// One partition.
    pub fn one(topic: &str, partition: i32) -> Self {
        [(Arc::from(topic), partition)].into_iter().collect()
    }

    /// Adds a partition.
    pub fn insert(&mut self, topic: Arc<str>, partition: i32) {
        self.0.entry(topic).or_default().insert(partition);
    }

    /// Whether a partition is among them.
    pub fn contains(&self, topic: &str, partition: i32) -> bool {
        self.0.get(topic).is_some_and(|partitions| partitions.contains(&partition))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The topics, by name, with their partitions.
    pub fn topics(&self) -> impl Iterator<Item = (&Arc<str>, &BTreeSet<i32>)> {
        self.0.iter()
    }

    /// Every partition, by topic name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i32)> {
        self.0.iter().flat_map(|(topic, partitions)| partitions.iter().map(move |partition| (topic, *partition)))
    }

    pub(super) fn includes(&self, others: &Self) -> bool {
        others.iter().all(|(topic, partition)| self.contains(topic, partition))
    }

    pub(super) fn add_all(&mut self, others: &Self) {
        for (topic, partition) in others.iter() {
            self.insert(topic.clone(), partition);
        }
    }
}

impl FromIterator<(Arc<str>, i32)> for Partitions {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, i32)>>(partitions: I) -> Self {
        let mut all = Self::default();
        for (topic, partition) in partitions {
            all.insert(topic, partition);
        }
        all
    }
}

/// Why a request of a transaction is refused; each is one error of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// The transactional id is empty, or the producer's id and epoch are not both given.
    #[error("the transactional id is empty, or a producer id comes without its epoch")]
    InvalidRequest,
    /// The time limit is outside what the broker allows.
    #[error("the transaction timeout is not positive, or above transaction.max.timeout.ms")]
    InvalidTimeout,
    /// The transactional id is not known, or belongs to another producer id.
    #[error("the transactional id does not belong to this producer id: initialize the producer again")]
    InvalidProducerIdMapping,
    /// A newer instance has taken over, or the transaction timed out.
    #[error("a newer producer with this transactional id has taken over, or the transaction timed out")]
    ProducerFenced,
    /// A transaction of this id is being ended.
    #[error("the transactional id has a transaction that is being ended: try again")]
    ConcurrentTransactions,
    /// The transaction is not in a state for that.
    #[error("the transaction is not in a state for that")]
    InvalidTxnState,
    /// The partition does not belong to the transaction: it has to be aborted (KIP-890).
    #[error("the partition was not added to the transaction: abort it")]
    Abortable,
    /// No transaction was ever begun under this id, or it expired.
    #[error("there is no such transactional id")]
    TransactionalIdNotFound,
    /// The broker keeps no more ids.
    #[error("the broker has as many transactional ids as weir.transactional.ids.max allows")]
    TooManyIds,
    /// The ids of this part of the log are being read.
    #[error("the transaction coordinator is loading: try again")]
    LoadInProgress,
    /// The log cannot be written now.
    #[error("the transaction coordinator cannot write its log now: try again")]
    NotAvailable,
    /// The coordinator has stopped.
    #[error("this broker does not coordinate the transaction now: look for its coordinator again")]
    NotCoordinator,
}
