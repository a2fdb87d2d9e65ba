//! Topics and their configs, through the crate's AdminClient.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn admin(bootstrap: &str) -> Result<AdminClient<DefaultClientContext>> {
    Ok(ClientConfig::new().set("bootstrap.servers", bootstrap).create()?)
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(TEN_SECONDS)).request_timeout(Some(TEN_SECONDS))
}

pub fn create_topic(bootstrap: &str, topic: &str, partitions: i32, config: &HashMap<String, String>) -> Result<()> {
    let mut wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (name, value) in config {
        wanted = wanted.set(name, value);
    }
    let mut results = block_on(admin(bootstrap)?.create_topics([&wanted], &options()))?;
    match results.pop() {
        Some(Ok(_)) => Ok(()),
        Some(Err((_, code))) => bail!("{code}"),
        None => bail!("no result for topic {topic}"),
    }
}

pub fn delete_topic(bootstrap: &str, topic: &str) -> Result<()> {
    let mut results = block_on(admin(bootstrap)?.delete_topics(&[topic], &options()))?;
    match results.pop() {
        Some(Ok(_)) => Ok(()),
        Some(Err((_, code))) => bail!("{code}"),
        None => bail!("no result for topic {topic}"),
    }
}

pub fn topic_config(bootstrap: &str, topic: &str) -> Result<BTreeMap<String, Option<String>>> {
    let results = block_on(admin(bootstrap)?.describe_configs([&ResourceSpecifier::Topic(topic)], &options()))?;
    let resource = results.into_iter().next().ok_or_else(|| anyhow!("no result for topic {topic}"))?;
    let resource = resource.map_err(|code| anyhow!("{code}"))?;
    Ok(resource.entries.into_iter().map(|entry| (entry.name, entry.value)).collect())
}

pub fn replace_topic_config(bootstrap: &str, topic: &str, config: &HashMap<String, String>) -> Result<()> {
    let mut change = AlterConfig::new(ResourceSpecifier::Topic(topic));
    for (name, value) in config {
        change = change.set(name, value);
    }
    let mut results = block_on(admin(bootstrap)?.alter_configs([&change], &options()))?;
    match results.pop() {
        Some(Ok(_)) => Ok(()),
        Some(Err((_, code))) => bail!("{code}"),
        None => bail!("no result for topic {topic}"),
    }
}

pub fn topics(bootstrap: &str) -> Result<BTreeMap<String, usize>> {
    let consumer: BaseConsumer = ClientConfig::new().set("bootstrap.servers", bootstrap).create()?;
    let metadata = consumer.fetch_metadata(None, TEN_SECONDS)?;
    Ok(metadata.topics().iter().map(|topic| (topic.name().to_owned(), topic.partitions().len())).collect())
}
