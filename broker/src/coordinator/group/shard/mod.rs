//! A shard: the task that owns the groups of one partition of `__consumer_offsets`.
//!
//! ```text
//!   requests --> mailbox --> ShardState --> backlog --> append (one batch at a time) --> in flight --> written
//!                              ^  ^                                                                      |
//!                 timers ------+  +----------------------------------------------------------------------+
//! ```
//!
//! Writes that wait while a batch is being ordered go into the next batch together, so a thousand commits cost a handful of
//! appends. The mailbox is not read while too much waits to be written: pressure reaches the connections.

mod consumer;
mod kind;
mod request;
mod state;
mod transactional;
mod writes;

#[cfg(test)]
mod consumer_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, FuturesUnordered};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use weir_model::Clock;
use weir_storage::AppendError;
use weir_storage::producers::SequenceError;

use crate::coordinator::group::consumer::assignment::TopicSource;
use crate::coordinator::group::consumer::regex;
use crate::coordinator::group::event::GroupError;
use crate::coordinator::group::event::Now;
use crate::coordinator::group::log::{GroupBatch, GroupEntry, GroupLog};
use crate::coordinator::group::machine::GroupSettings;
use crate::coordinator::group_configs::GroupConfigs;
use crate::coordinator::log::{Durability, LogError};

pub use request::{Commit, FetchedTopic, GroupDescription, GroupListing, NotFound, OffsetToCommit};
pub(in crate::coordinator) use request::{OffsetsDeleted, Request};
pub(in crate::coordinator) use state::ShardState;
use state::{ResolveJob, Scope, Write};

/// Requests that may wait for a shard before connections are held up.
const MAILBOX: usize = 1_024;
/// Records that may wait to be appended before the mailbox is left alone.
const MAX_BACKLOG_RECORDS: usize = 20_000;
/// Records of one batch, unless one write alone has more.
const MAX_BATCH_RECORDS: usize = 2_000;
/// Batches whose durability is awaited at once.
const MAX_IN_FLIGHT: usize = 16;
/// How often the log is read again because a transaction in it has lost its end.
const MAX_LOADS_AGAIN: usize = 3;
/// Pause after the log could not be read.
const LOAD_RETRY: Duration = Duration::from_secs(5);

/// What a shard needs to run.
pub(in crate::coordinator) struct ShardOptions {
    pub(in crate::coordinator) partition: i32,
    pub(in crate::coordinator) log: Arc<dyn GroupLog>,
    pub(in crate::coordinator) clock: Arc<dyn Clock>,
    pub(in crate::coordinator) settings: GroupSettings,
    pub(in crate::coordinator) topics: Arc<dyn TopicSource>,
    pub(in crate::coordinator) configs: Arc<GroupConfigs>,
    pub(in crate::coordinator) offsets_retention_ms: i64,
    pub(in crate::coordinator) expiry_interval: Duration,
    pub(in crate::coordinator) stop: CancellationToken,
}

/// Starts a shard: it loads its partition, then serves what has gathered in its mailbox. Ends with `stop`; requests that
/// are parked then are dropped, which tells their handlers.
pub(in crate::coordinator) fn spawn(options: ShardOptions) -> (mpsc::Sender<Request>, tokio::task::JoinHandle<()>) {
    let (sender, mailbox) = mpsc::channel(MAILBOX);
    let task = tokio::spawn(async move {
        let stop = options.stop.clone();
        let shard = Shard::new(options, mailbox);
        tokio::select! {
            () = stop.cancelled() => {}
            () = shard.run() => {}
        }
    });
    (sender, task)
}

struct Shard {
    options: ShardOptions,
    started: Instant,
    mailbox: mpsc::Receiver<Request>,
    state: ShardState,
    backlog: VecDeque<Write>,
    backlog_records: usize,
}

/// A batch that is being ordered, with the writes in it.
type Appending = BoxFuture<'static, (Vec<Write>, Result<Durability, LogError>)>;
/// A batch that is ordered and not durable yet.
type InFlight = BoxFuture<'static, (Vec<Write>, Result<(), LogError>)>;

/// Regular expressions that have been resolved: of which group, in which version of the topics, with what matches.
type Resolved = (Arc<str>, u64, Option<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>);

impl Shard {
    fn new(options: ShardOptions, mailbox: mpsc::Receiver<Request>) -> Self {
        let started = options.clock.monotonic();
        let state = empty_state(&options);
        Self { options, started, mailbox, state, backlog: VecDeque::new(), backlog_records: 0 }
    }

    fn now(&self) -> Now {
        let elapsed = self.options.clock.monotonic().saturating_duration_since(self.started);
        Now { elapsed_ms: i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX), wall_ms: self.options.clock.now_ms() }
    }

    async fn run(mut self) {
        self.load().await;
        let mut appending: Option<Appending> = None;
        let mut in_flight: FuturesOrdered<InFlight> = FuturesOrdered::new();
        // At most one per group, which asks for no second before it has the first.
        let mut resolving: FuturesUnordered<BoxFuture<'static, Resolved>> = FuturesUnordered::new();
        let mut expiry = tokio::time::interval(self.options.expiry_interval);
        expiry.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.collect_writes();
            resolving.extend(self.state.take_resolving().into_iter().map(resolve));
            if appending.is_none() && in_flight.len() < MAX_IN_FLIGHT {
                appending = self.next_batch();
            }
            let deadline = self.until_deadline();
            tokio::select! {
                Some((writes, outcome)) = in_flight.next(), if !in_flight.is_empty() => self.finish(writes, outcome),
                (writes, ordered) = async { appending.as_mut().expect("guarded").await }, if appending.is_some() => {
                    appending = None;
                    match ordered {
                        Ok(durability) => in_flight.push_back(Box::pin(async move { (writes, durability.await) })),
                        Err(cause) => self.finish(writes, Err(cause)),
                    }
                }
                Some((group, version, matches)) = resolving.next(), if !resolving.is_empty() => {
                    let now = self.now();
                    self.state.resolved(now, &group, version, matches);
                }
                request = self.mailbox.recv(), if self.backlog_records < MAX_BACKLOG_RECORDS => match request {
                    Some(request) => {
                        let now = self.now();
                        self.state.handle(now, request);
                    }
                    // The coordinator is gone; nobody can ask any more.
                    None => return,
                },
                () = tokio::time::sleep(deadline.unwrap_or_default()), if deadline.is_some() => {
                    let now = self.now();
                    self.state.tick(now);
                }
                _ = expiry.tick() => {
                    let now = self.now();
                    self.state.expire(now);
                }
            }
        }
    }

    fn until_deadline(&self) -> Option<Duration> {
        let deadline = self.state.deadline()?;
        Some(Duration::from_millis(u64::try_from(deadline - self.now().elapsed_ms).unwrap_or(0)))
    }

    fn collect_writes(&mut self) {
        for write in self.state.take_writes() {
            self.backlog_records += write.records.len();
            self.backlog.push_back(write);
        }
    }

    /// Everything that waits, up to the size of a batch. What belongs to a transaction goes alone.
    fn next_batch(&mut self) -> Option<Appending> {
        let mut writes = vec![self.backlog.pop_front()?];
        let mut count = writes[0].records.len();
        let is_plain = |write: &Write| matches!(write.scope, Scope::Plain);
        while is_plain(&writes[0])
            && let Some(next) = self.backlog.front()
            && is_plain(next)
            && count + next.records.len() <= MAX_BATCH_RECORDS
        {
            count += next.records.len();
            writes.extend(self.backlog.pop_front());
        }
        self.backlog_records -= count;
        let records: Vec<_> = writes.iter().flat_map(|write| &write.records).cloned().collect();
        let (log, partition) = (Arc::clone(&self.options.log), self.options.partition);
        let batch = match &writes[0].scope {
            Scope::Plain => GroupBatch::Records(records),
            Scope::Transactional { producer, guard } => {
                GroupBatch::Transactional { producer: *producer, guard: Some(*guard), records }
            }
            Scope::Marker(marker) => GroupBatch::Marker(*marker),
        };
        Some(Box::pin(async move {
            let ordered = log.append(partition, batch).await;
            (writes, ordered)
        }))
    }

    fn finish(&mut self, writes: Vec<Write>, outcome: Result<(), LogError>) {
        if let Err(cause) = &outcome {
            warn!(partition = self.options.partition, %cause, "group records were not written; clients will try again");
        }
        let now = self.now();
        let refusal = outcome.as_ref().err().and_then(refusal_of);
        for mut write in writes {
            write.refusal = refusal;
            self.state.written(now, write, outcome.is_ok());
        }
    }

    /// Replays the partition. Requests gather meanwhile; when the log cannot be read they are dropped, which sends their
    /// clients looking for the coordinator again, and the load is tried anew.
    async fn load(&mut self) {
        let partition = self.options.partition;
        let begun = Instant::now();
        let mut again = 0;
        loop {
            match self.try_load().await {
                // A transaction was sealed between two reads, and its marker with it: now it is decided, and reads so.
                Ok(_) if again < MAX_LOADS_AGAIN && self.has_lost_markers() => {
                    again += 1;
                    self.state = empty_state(&self.options);
                }
                Ok(0) => return,
                Ok(records) => {
                    let now = self.now();
                    self.state.loaded(now);
                    if self.has_lost_markers() {
                        error!(
                            partition,
                            "the log of groups holds transactions without an end; their offsets are kept back. Run weir doctor"
                        );
                    }
                    info!(partition, records, elapsed_ms = begun.elapsed().as_millis(), "groups loaded");
                    return;
                }
                Err(cause) => {
                    error!(partition, %cause, "groups cannot be loaded; trying again");
                    self.state = empty_state(&self.options);
                    tokio::time::sleep(LOAD_RETRY).await;
                    while self.mailbox.try_recv().is_ok() {}
                }
            }
        }
    }

    async fn try_load(&mut self) -> Result<usize, LogError> {
        let mut from = None;
        let mut count = 0;
        while let Some(read) = self.options.log.read(self.options.partition, from).await? {
            let now = self.now();
            count += read.entries.len();
            for entry in read.entries {
                match entry {
                    GroupEntry::Record(record) => self.state.replay(now, record),
                    GroupEntry::Transactional { producer_id, record } => {
                        self.state.replay_transactional(producer_id, record);
                    }
                    GroupEntry::Marker(marker) => self.state.take_marker(&marker),
                }
            }
            from = Some(read.next);
        }
        Ok(count)
    }

    fn has_lost_markers(&self) -> bool {
        let (log, partition) = (&self.options.log, self.options.partition);
        self.state.open_producers().into_iter().any(|id| !log.has_open_transaction(partition, id))
    }
}

/// What whoever waits for a write is told, where it is more than that the log cannot be written now.
fn refusal_of(cause: &LogError) -> Option<GroupError> {
    let LogError::Append(cause) = cause else { return None };
    match cause {
        AppendError::Closed => None,
        AppendError::Marker(_)
        | AppendError::Sequence(SequenceError::StaleEpoch { .. } | SequenceError::OutOfOrder { .. }) => {
            Some(GroupError::InvalidProducerEpoch)
        }
        AppendError::Sequence(SequenceError::OutsideTransaction { .. } | SequenceError::TransactionEnded { .. }) => {
            Some(GroupError::InvalidTxnState)
        }
    }
}

fn empty_state(options: &ShardOptions) -> ShardState {
    let (configs, topics) = (Arc::clone(&options.configs), Arc::clone(&options.topics));
    ShardState::new(options.settings, configs, topics, options.offsets_retention_ms)
}

/// Resolves regular expressions where it may take long.
fn resolve(job: ResolveJob) -> BoxFuture<'static, Resolved> {
    Box::pin(async move {
        let version = job.topics.version();
        let work = tokio::task::spawn_blocking(move || regex::resolve(&job.patterns, &*job.topics));
        match work.await {
            Ok(matches) => (job.group, version, Some(matches)),
            Err(cause) => {
                error!(group = %job.group, %cause, "regular expressions of a group were not resolved; trying again");
                (job.group, version, None)
            }
        }
    })
}
