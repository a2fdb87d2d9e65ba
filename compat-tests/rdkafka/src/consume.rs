//! Consuming: one partition from an offset, or as a member of a group.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use crate::record::WireRecord;

const TEN_SECONDS: Duration = Duration::from_secs(10);

/// Where a fetch begins.
pub struct From<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub start: i64,
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
        .set("fetch.message.max.bytes", "4000000")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "500");
    settings
}

/// The first `count` records at or above `from.start`.
pub fn fetch(bootstrap: &str, from: From<'_>, count: usize, client_id: Option<&str>, timeout: f64) -> Result<Vec<WireRecord>> {
    let mut settings = settings(bootstrap, "unused");
    settings.set("auto.offset.reset", "error");
    if let Some(client_id) = client_id {
        settings.set("client.id", client_id);
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

/// A member of a consumer group.
pub struct Member(BaseConsumer);

impl Member {
    pub fn join(bootstrap: &str, group: &str, topic: &str) -> Result<Self> {
        let consumer: BaseConsumer = settings(bootstrap, group).create()?;
        consumer.subscribe(&[topic])?;
        Ok(Self(consumer))
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

    pub fn commit(&self) -> Result<()> {
        Ok(self.0.commit_consumer_state(CommitMode::Sync)?)
    }
}
