//! Consuming: one partition from an offset, or as a member of a group.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::record::WireRecord;

const TEN_SECONDS: Duration = Duration::from_secs(10);

/// Where a fetch begins, and as whom.
pub struct From<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub start: i64,
    /// Empty for the library's own.
    pub client_id: &'a str,
    pub read_committed: bool,
}

/// How a member takes part in its group. An empty `instance` is a dynamic member, `server_side` asks for KIP-848.
pub struct Membership<'a> {
    pub cooperative: bool,
    pub instance: &'a str,
    pub server_side: bool,
}

impl Membership<'_> {
    pub const CLASSIC: Self = Self { cooperative: false, instance: "", server_side: false };

    fn configure(&self, settings: &mut ClientConfig) {
        if !self.instance.is_empty() {
            settings.set("group.instance.id", self.instance);
        }
        if self.server_side {
            settings.set("group.protocol", "consumer");
            return;
        }
        settings
            .set("session.timeout.ms", if self.instance.is_empty() { "6000" } else { "30000" })
            .set("heartbeat.interval.ms", "500")
            .set("partition.assignment.strategy", if self.cooperative { "cooperative-sticky" } else { "range" });
    }
}

fn settings(bootstrap: &str, group: &str) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("check.crcs", "true")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.message.max.bytes", "4000000");
    settings
}

/// The first `count` records at or above `from.start`.
pub fn fetch(bootstrap: &str, from: From<'_>, count: usize, timeout: f64) -> Result<Vec<WireRecord>> {
    let mut settings = settings(bootstrap, "unused");
    settings.set("auto.offset.reset", "error");
    settings.set("isolation.level", if from.read_committed { "read_committed" } else { "read_uncommitted" });
    if !from.client_id.is_empty() {
        settings.set("client.id", from.client_id);
    }
    let consumer: BaseConsumer = settings.create()?;
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(from.topic, from.partition, Offset::Offset(from.start))?;
    consumer.assign(&assignment)?;

    let deadline = Instant::now() + Duration::from_secs_f64(timeout);
    let mut records = Vec::with_capacity(count);
    while records.len() < count {
        match consumer.poll(Duration::from_millis(200)) {
            Some(message) => records.push(WireRecord::from(&message?)),
            None if Instant::now() > deadline => bail!("read {} of {count} records in {timeout} s", records.len()),
            None => {}
        }
    }
    Ok(records)
}

/// The first offset whose timestamp is at or after `timestamp` (ms).
pub fn offset_at(bootstrap: &str, topic: &str, partition: i32, timestamp: i64) -> Result<i64> {
    let consumer: BaseConsumer = settings(bootstrap, "unused").create()?;
    let mut wanted = TopicPartitionList::new();
    wanted.add_partition_offset(topic, partition, Offset::Offset(timestamp))?;
    let found = consumer.offsets_for_times(wanted, TEN_SECONDS)?;
    match found.elements().first().map(|element| element.offset()) {
        Some(Offset::Offset(offset)) => Ok(offset),
        other => bail!("no offset for timestamp {timestamp}: {other:?}"),
    }
}

/// Remembers which partitions were taken from a member.
#[derive(Default)]
pub struct Taken(Mutex<Vec<i32>>);

impl ClientContext for Taken {}

impl ConsumerContext for Taken {
    fn pre_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(partitions) = rebalance {
            let mut taken = self.0.lock().expect("no rebalance callback panics");
            taken.extend(partitions.elements().iter().map(|element| element.partition()));
        }
    }
}

/// A member of a consumer group.
pub struct Member(BaseConsumer<Taken>);

impl Member {
    pub fn join(bootstrap: &str, group: &str, topic: &str, how: Membership<'_>) -> Result<Self> {
        let mut settings = settings(bootstrap, group);
        how.configure(&mut settings);
        let consumer: BaseConsumer<Taken> = settings.create_with_context(Taken::default())?;
        consumer.subscribe(&[topic])?;
        Ok(Self(consumer))
    }

    pub fn consumer(&self) -> &BaseConsumer<Taken> {
        &self.0
    }

    /// Records until `seconds` are over; returns early when none came for a moment after some did.
    pub fn poll(&self, seconds: f64) -> Result<Vec<WireRecord>> {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds);
        let mut records = Vec::new();
        while Instant::now() < deadline && records.len() < 500 {
            match self.0.poll(Duration::from_millis(20)) {
                Some(message) => records.push(WireRecord::from(&message?)),
                None if !records.is_empty() => break,
                None => {}
            }
        }
        Ok(records)
    }

    pub fn assignment(&self) -> Result<Vec<i32>> {
        Ok(self.0.assignment()?.elements().iter().map(|element| element.partition()).collect())
    }

    /// The partitions taken from the member so far, one entry for each time.
    pub fn revoked(&self) -> Vec<i32> {
        self.0.context().0.lock().expect("no rebalance callback panics").clone()
    }

    pub fn commit(&self) -> Result<()> {
        Ok(self.0.commit_consumer_state(CommitMode::Sync)?)
    }
}
