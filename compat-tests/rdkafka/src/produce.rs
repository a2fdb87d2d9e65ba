//! Producing with acks=all, every record's fate known before the answer.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, bail};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::util::Timeout;

use crate::record::{WireRecord, bytes};

const FLUSH: Duration = Duration::from_secs(60);

/// Collects delivery reports: the index of the record, and its offset or the error's text.
#[derive(Default)]
struct Reports(Mutex<Vec<(usize, Result<i64, String>)>>);

impl ClientContext for Reports {}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, index: Self::DeliveryOpaque) {
        let fate = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.to_string()),
        };
        self.0.lock().expect("no delivery callback panics").push((*index, fate));
    }
}

/// The offsets of `records`, in the order given.
pub fn produce(
    bootstrap: &str,
    topic: &str,
    records: &[WireRecord],
    codec: &str,
    idempotent: bool,
) -> Result<Vec<i64>> {
    let producer: BaseProducer<Reports> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("acks", "all")
        .set("compression.type", codec)
        .set("enable.idempotence", idempotent.to_string())
        .set("message.max.bytes", "2000000")
        .set("message.timeout.ms", "30000")
        .set("linger.ms", "5")
        .create_with_context(Reports::default())?;
    for (index, record) in records.iter().enumerate() {
        send(&producer, topic, record, index)?;
        producer.poll(Timeout::After(Duration::ZERO));
    }
    producer.flush(FLUSH)?;

    let reports = std::mem::take(&mut *producer.context().0.lock().expect("no delivery callback panics"));
    let mut offsets = vec![-1; records.len()];
    for (index, fate) in reports {
        match fate {
            Ok(offset) => offsets[index] = offset,
            Err(text) => bail!(text),
        }
    }
    Ok(offsets)
}

fn send(producer: &BaseProducer<Reports>, topic: &str, record: &WireRecord, index: usize) -> Result<()> {
    let (key, value) = (bytes(record.key.as_ref())?, bytes(record.value.as_ref())?);
    let mut message =
        BaseRecord::<[u8], [u8], Box<usize>>::with_opaque_to(topic, Box::new(index)).partition(record.partition);
    if let Some(key) = &key {
        message = message.key(key);
    }
    if let Some(value) = &value {
        message = message.payload(value);
    }
    if let Some(timestamp) = record.timestamp {
        message = message.timestamp(timestamp);
    }
    if !record.headers.is_empty() {
        let mut headers = OwnedHeaders::new();
        for (name, value) in &record.headers {
            headers = headers.insert(Header { key: name, value: bytes(value.as_ref())?.as_ref() });
        }
        message = message.headers(headers);
    }
    producer.send(message).map_err(|(error, _)| error)?;
    Ok(())
}
