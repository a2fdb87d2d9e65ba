//! Transactions: records alone, and records with the offsets of what they were made from.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde::Deserialize;

use crate::consume::{Member, Membership};
use crate::record::{WireRecord, bytes};

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
pub struct Transaction {
    records: Vec<WireRecord>,
    commit: bool,
}

/// Reads `count` records of `topic` as a member of `group` and produces them to `to`.
pub struct Copy<'a> {
    pub topic: &'a str,
    pub to: &'a str,
    pub group: &'a str,
    pub count: usize,
    pub commit: bool,
}

fn transactional(bootstrap: &str, id: &str) -> Result<BaseProducer> {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", bootstrap).set("transactional.id", id).create()?;
    producer.init_transactions(LIMIT)?;
    Ok(producer)
}

/// Sends one record: to its own partition, or to one of the producer's choice.
fn send(producer: &BaseProducer, topic: &str, record: &WireRecord, partition: Option<i32>) -> Result<()> {
    let (key, value) = (bytes(record.key.as_ref())?, bytes(record.value.as_ref())?);
    let mut message = BaseRecord::<[u8], [u8]>::to(topic);
    if let Some(partition) = partition {
        message = message.partition(partition);
    }
    if let Some(key) = &key {
        message = message.key(key);
    }
    if let Some(value) = &value {
        message = message.payload(value);
    }
    producer.send(message).map_err(|(error, _)| error)?;
    Ok(())
}

fn end(producer: &BaseProducer, commit: bool) -> Result<()> {
    Ok(if commit { producer.commit_transaction(LIMIT) } else { producer.abort_transaction(LIMIT) }?)
}

/// Runs transactions one after the other with one producer.
pub fn transact(bootstrap: &str, topic: &str, id: &str, transactions: &[Transaction]) -> Result<()> {
    let producer = transactional(bootstrap, id)?;
    for transaction in transactions {
        producer.begin_transaction()?;
        for record in &transaction.records {
            send(&producer, topic, record, Some(record.partition))?;
        }
        producer.flush(LIMIT)?; // so that what is aborted was in the log
        end(&producer, transaction.commit)?;
    }
    Ok(())
}

/// Copies records, and the offsets of those read, in one transaction.
pub fn copy(bootstrap: &str, id: &str, job: &Copy<'_>) -> Result<()> {
    let producer = transactional(bootstrap, id)?;
    let member = Member::join(bootstrap, job.group, job.topic, Membership::CLASSIC)?;
    producer.begin_transaction()?;
    let deadline = Instant::now() + LIMIT;
    let mut copied = 0;
    while copied < job.count {
        if Instant::now() > deadline {
            bail!("read {copied} of {} records in {LIMIT:?}", job.count);
        }
        for record in member.poll(0.2)? {
            send(&producer, job.to, &record, None)?;
            copied += 1;
        }
    }
    producer.flush(LIMIT)?;
    let metadata = member.consumer().group_metadata().context("a consumer with a group has group metadata")?;
    producer.send_offsets_to_transaction(&member.consumer().position()?, &metadata, LIMIT)?;
    end(&producer, job.commit)
}
