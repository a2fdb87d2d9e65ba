//! `weir table`: make, list, describe, alter and drop tables of a running broker, as any Kafka admin client could.

mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest, MetadataRequest,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;
use serde_json::{Map, Value, json};
use weir_model::TopicId;

use crate::cli::{BrokerOptions, TableCommand};
pub use client::{Client, ClientError};

const SCHEMA: &str = "weir.schema";
const TOPIC_RESOURCE: i8 = 2;
/// `ConfigSource.DYNAMIC_TOPIC_CONFIG`: set on the topic itself.
const SET_ON_TOPIC: i8 = 1;
/// `ConfigSource.DEFAULT_CONFIG`.
const DEFAULT: i8 = 5;
const SET: i8 = 0;
const TIMEOUT_MS: i32 = 30_000;

/// Why a command did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The same config twice, or one that has an option of its own.
    #[error("config `{0}` is given twice: give it once{hint}", hint = if .0 == SCHEMA { ", as --schema" } else { "" })]
    Repeated(String),
    /// The broker could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No table has this name.
    #[error("there is no table '{0}'; `weir table list` shows those there are")]
    Unknown(String),
    /// The broker refused.
    #[error("table '{name}': {reason}")]
    Refused {
        /// Which table.
        name: String,
        /// What the broker said.
        reason: String,
    },
    /// The broker's answer speaks of other things than the request.
    #[error("the broker's answer does not speak of table '{0}'; use a broker that speaks Kafka's protocol")]
    NoAnswer(String),
    /// The output was closed.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

impl TableError {
    /// Whether the command line itself is wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Repeated(_))
    }
}

/// Does it, and prints what was done to `out`.
///
/// # Errors
/// [`TableError`].
pub fn run(command: TableCommand, out: &mut dyn Write) -> Result<(), TableError> {
    match command {
        TableCommand::Create { name, schema, partitions, configs, broker } => {
            let configs = [vec![(SCHEMA.to_owned(), schema)], configs].concat();
            check_repeats(&configs)?;
            create(&broker, &name, partitions, configs, out)
        }
        TableCommand::List { broker } => list(&broker, out),
        TableCommand::Describe { name, broker } => describe(&broker, &name, out),
        TableCommand::Alter { name, configs, broker } => {
            check_repeats(&configs)?;
            alter(&broker, &name, configs, out)
        }
        TableCommand::Drop { name, broker } => drop_table(&broker, &name, out),
    }
}

/// A broker would take the last one silently.
fn check_repeats(configs: &[(String, String)]) -> Result<(), TableError> {
    let mut seen = BTreeSet::new();
    match configs.iter().find(|(name, _)| !seen.insert(name)) {
        Some((name, _)) => Err(TableError::Repeated(name.clone())),
        None => Ok(()),
    }
}

fn create(
    broker: &BrokerOptions,
    name: &str,
    partitions: Option<i32>,
    configs: Vec<(String, String)>,
    out: &mut dyn Write,
) -> Result<(), TableError> {
    let configs = configs
        .into_iter()
        .map(|(name, value)| CreatableTopicConfig::default().with_name(text(&name)).with_value(Some(text(&value))));
    // -1 is the broker's default, for both counts (KIP-464).
    let topic = CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions.unwrap_or(-1))
        .with_replication_factor(-1)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(TIMEOUT_MS);
    let answer = Client::connect(&broker.kafka)?.call("CreateTopics", 5..=7, &request)?;
    let result = answer.topics.into_iter().next().ok_or_else(|| TableError::NoAnswer(name.to_owned()))?;
    accepted(name, result.error_code, result.error_message.as_ref())?;
    let id = TopicId::from_uuid(result.topic_id).to_string();
    if broker.json {
        return print(out, &json!({"name": name, "id": id, "partitions": result.num_partitions}));
    }
    Ok(writeln!(out, "created {name} with {} partitions", result.num_partitions)?)
}

fn list(broker: &BrokerOptions, out: &mut dyn Write) -> Result<(), TableError> {
    let mut client = Client::connect(&broker.kafka)?;
    let mut topics = metadata(&mut client, None)?;
    topics.retain(|topic| !topic.is_internal && topic.error_code == 0);
    let names: Vec<&str> = topics.iter().map(name_of).collect();
    let mut schemas = schemas(&mut client, &names)?;
    let mut rows: Vec<(&str, &MetadataResponseTopic, Option<String>)> =
        topics.iter().map(|topic| (name_of(topic), topic, schemas.remove(name_of(topic)))).collect();
    rows.sort_by_key(|(name, _, _)| *name);
    if broker.json {
        let tables = rows.iter().map(|(name, topic, schema)| {
            json!({"name": name, "id": TopicId::from_uuid(topic.topic_id).to_string(), "partitions": topic.partitions.len(), "schema": schema})
        });
        return print(out, &Value::Array(tables.collect()));
    }
    let width = rows.iter().map(|(name, _, _)| name.len()).max().unwrap_or(0).max("NAME".len());
    writeln!(out, "{:width$}  PARTITIONS  COLUMNS", "NAME")?;
    for (name, topic, schema) in rows {
        writeln!(out, "{name:width$}  {:>10}  {}", topic.partitions.len(), schema.as_deref().unwrap_or("-"))?;
    }
    Ok(())
}

fn describe(broker: &BrokerOptions, name: &str, out: &mut dyn Write) -> Result<(), TableError> {
    let mut client = Client::connect(&broker.kafka)?;
    let topic =
        metadata(&mut client, Some(name))?.into_iter().next().ok_or_else(|| TableError::NoAnswer(name.to_owned()))?;
    accepted(name, topic.error_code, None)?;
    let configs =
        configs(&mut client, &[name], None)?.remove(name).ok_or_else(|| TableError::NoAnswer(name.to_owned()))?;
    let schema = configs
        .iter()
        .find(|config| &*config.name == SCHEMA)
        .and_then(|config| config.value.as_deref())
        .filter(|schema| !schema.is_empty());
    let id = TopicId::from_uuid(topic.topic_id).to_string();
    let others = configs.iter().filter(|config| &*config.name != SCHEMA);
    if broker.json {
        let configs: Map<String, Value> = others
            .map(|config| {
                (
                    config.name.to_string(),
                    json!({"value": config.value.as_deref(), "set": source(config.config_source)}),
                )
            })
            .collect();
        return print(
            out,
            &json!({"name": name, "id": id, "partitions": topic.partitions.len(), "schema": schema, "configs": configs}),
        );
    }
    writeln!(out, "table       {name}")?;
    writeln!(out, "id          {id}")?;
    writeln!(out, "partitions  {}", topic.partitions.len())?;
    writeln!(out, "columns     {}", schema.unwrap_or("-"))?;
    for config in others.filter(|config| config.config_source == SET_ON_TOPIC) {
        writeln!(out, "config      {}={}", &*config.name, config.value.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

fn alter(
    broker: &BrokerOptions,
    name: &str,
    configs: Vec<(String, String)>,
    out: &mut dyn Write,
) -> Result<(), TableError> {
    let changes = configs
        .iter()
        .map(|(name, value)| {
            AlterableConfig::default().with_name(text(name)).with_config_operation(SET).with_value(Some(text(value)))
        })
        .collect();
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC_RESOURCE)
        .with_resource_name(text(name))
        .with_configs(changes);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = Client::connect(&broker.kafka)?.call("IncrementalAlterConfigs", 0..=1, &request)?;
    let result = answer.responses.into_iter().next().ok_or_else(|| TableError::NoAnswer(name.to_owned()))?;
    accepted(name, result.error_code, result.error_message.as_ref())?;
    if broker.json {
        let configs: Map<String, Value> =
            configs.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
        return print(out, &json!({"name": name, "configs": configs}));
    }
    let changes: Vec<String> = configs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(writeln!(out, "altered {name}: {}", changes.join(", "))?)
}

fn drop_table(broker: &BrokerOptions, name: &str, out: &mut dyn Write) -> Result<(), TableError> {
    let request = DeleteTopicsRequest::default().with_topic_names(vec![topic_name(name)]).with_timeout_ms(TIMEOUT_MS);
    // From version 6 on topics may be named by id, which is not needed here.
    let answer = Client::connect(&broker.kafka)?.call("DeleteTopics", 1..=5, &request)?;
    let result = answer.responses.into_iter().next().ok_or_else(|| TableError::NoAnswer(name.to_owned()))?;
    accepted(name, result.error_code, result.error_message.as_ref())?;
    if broker.json {
        return print(out, &json!({"name": name}));
    }
    Ok(writeln!(out, "dropped {name}")?)
}

/// All topics, or the one that is named; never makes one.
fn metadata(client: &mut Client, name: Option<&str>) -> Result<Vec<MetadataResponseTopic>, TableError> {
    let topics = name.map(|name| vec![MetadataRequestTopic::default().with_name(Some(topic_name(name)))]);
    let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false);
    Ok(client.call("Metadata", 4..=12, &request)?.topics)
}

/// The columns of the topics that have some.
fn schemas(client: &mut Client, names: &[&str]) -> Result<BTreeMap<String, String>, TableError> {
    let schema = |configs: Vec<DescribeConfigsResourceResult>| {
        configs.into_iter().find_map(|config| config.value).map(|value| value.to_string())
    };
    let described = configs(client, names, Some(SCHEMA))?;
    let found = described.into_iter().filter_map(|(name, configs)| Some((name, schema(configs)?)));
    Ok(found.filter(|(_, schema)| !schema.is_empty()).collect())
}

/// The configs of topics, all or the one that is named. A topic that went away in between is left out.
fn configs(
    client: &mut Client,
    names: &[&str],
    key: Option<&'static str>,
) -> Result<BTreeMap<String, Vec<DescribeConfigsResourceResult>>, TableError> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let resources = names.iter().map(|name| {
        DescribeConfigsResource::default()
            .with_resource_type(TOPIC_RESOURCE)
            .with_resource_name(text(name))
            .with_configuration_keys(key.map(|key| vec![StrBytes::from_static_str(key)]))
    });
    let request = DescribeConfigsRequest::default().with_resources(resources.collect());
    let answer = client.call("DescribeConfigs", 1..=4, &request)?;
    let mut described = BTreeMap::new();
    for result in answer.results {
        let name = result.resource_name.to_string();
        match ResponseError::try_from_code(result.error_code) {
            None => {
                described.insert(name, result.configs);
            }
            Some(ResponseError::UnknownTopicOrPartition) => {}
            Some(_) => accepted(&name, result.error_code, result.error_message.as_ref())?,
        }
    }
    Ok(described)
}

fn accepted(name: &str, code: i16, message: Option<&StrBytes>) -> Result<(), TableError> {
    match ResponseError::try_from_code(code) {
        None => Ok(()),
        Some(ResponseError::UnknownTopicOrPartition) => Err(TableError::Unknown(name.to_owned())),
        Some(error) => {
            let reason =
                message.filter(|message| !message.is_empty()).map_or_else(|| error.to_string(), ToString::to_string);
            Err(TableError::Refused { name: name.to_owned(), reason: reason.replace('\n', " ") })
        }
    }
}

fn source(code: i8) -> &'static str {
    match code {
        SET_ON_TOPIC => "topic",
        DEFAULT => "default",
        _ => "broker",
    }
}

fn name_of(topic: &MetadataResponseTopic) -> &str {
    topic.name.as_ref().map_or("", |name| name.as_str())
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn print(out: &mut dyn Write, value: &Value) -> Result<(), TableError> {
    Ok(writeln!(out, "{value}")?)
}
