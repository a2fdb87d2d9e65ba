//! Which rows of the tail count, and which never did.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use weir_model::producer::ProducerId;
use weir_model::record_batch::BatchHeader;
use weir_model::{Isolation, Offset};

/// An aborted transaction (Kafka's `AbortedTxn` of the transaction index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortedTxn {
    /// Whose.
    pub producer_id: ProducerId,
    /// Its first offset in the partition.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// The last stable offset once it had ended, durability aside: transactions that ended later begin there or above.
    pub last_stable: Offset,
}

/// What became of the transactions that have rows in some stretch: asked batch by batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decided {
    /// By producer and first offset.
    aborted: BTreeMap<(ProducerId, Offset), AbortedTxn>,
    /// First offset by producer.
    open: BTreeMap<ProducerId, Offset>,
}

impl Decided {
    pub(super) fn new(aborted: Vec<AbortedTxn>, open: BTreeMap<ProducerId, Offset>) -> Self {
        let aborted = aborted.into_iter().map(|txn| ((txn.producer_id, txn.first_offset), txn));
        Self { aborted: aborted.collect(), open }
    }

    /// The aborted transactions.
    pub(crate) fn aborted(&self) -> impl Iterator<Item = AbortedTxn> {
        self.aborted.values().copied()
    }

    /// Whether the batch belongs to an aborted transaction.
    fn is_aborted(&self, header: &BatchHeader) -> bool {
        let offset = offset_of(header);
        header.attributes.is_transactional()
            && self
                .aborted
                .range(..=(header.producer_id, offset))
                .next_back()
                .is_some_and(|(_, txn)| txn.producer_id == header.producer_id && offset <= txn.last_offset)
    }

    /// Whether the batch belongs to a transaction without a marker.
    fn is_open(&self, header: &BatchHeader) -> bool {
        header.attributes.is_transactional()
            && self.open.get(&header.producer_id).is_some_and(|first| *first <= offset_of(header))
    }

    /// Whether a reader of columns gets the rows of the batch: never those of a control batch, and committed ones only when it
    /// reads committed. Who reads uncommitted gets what has not been sealed yet, decided or not, as it gets it in rows.
    pub(crate) fn shows(&self, header: &BatchHeader, isolation: Isolation) -> bool {
        !header.attributes.is_control()
            && match isolation {
                Isolation::ReadUncommitted => true,
                Isolation::ReadCommitted => !self.is_aborted(header) && !self.is_open(header),
            }
    }
}

fn offset_of(header: &BatchHeader) -> Offset {
    Offset::new(header.base_offset).expect("assigned offsets are not negative")
}

/// Transactions whose marker has its place and is not known to be durable: until it is, they count as open (LOG-2), as
/// Kafka's `unreplicatedTxns` do until the high watermark passes their marker.
#[derive(Debug, Default)]
pub(crate) struct Deciding {
    /// Marker and first offset, by marker.
    txns: VecDeque<(Offset, Offset)>,
}

impl Deciding {
    /// Takes note of a marker that was just ordered, and forgets those that became durable.
    pub(crate) fn push(&mut self, marker: Offset, first: Offset, high_watermark: Offset) {
        while self.txns.front().is_some_and(|(marker, _)| *marker < high_watermark) {
            self.txns.pop_front();
        }
        self.txns.push_back((marker, first));
    }

    /// The next marker that will be durable.
    pub(crate) fn next(&self, high_watermark: Offset) -> Option<Offset> {
        self.txns.iter().map(|(marker, _)| *marker).find(|marker| *marker >= high_watermark)
    }

    /// First offset of the oldest transaction whose marker is not durable.
    pub(crate) fn first(&self, high_watermark: Offset) -> Option<Offset> {
        let durable = self.txns.partition_point(|(marker, _)| *marker < high_watermark);
        self.txns.range(durable..).map(|(_, first)| *first).min()
    }
}
