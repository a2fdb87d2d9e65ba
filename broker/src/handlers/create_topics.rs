//! CreateTopics (key 19), versions 2 to 7.
//!
//! Makes topics; each is usable when it is answered (S-64, S-65). Unknown and unbuilt configs, and schemas that do not parse, are refused with a sentence.
//!
//! * v4 -1 for the broker's default counts (KIP-464); v5 compact encodings, and the effective configs in the answer (KIP-525); v6 throttling, never needed; v7 topic id.
//! * Differs from Kafka: a replication factor above the number of brokers is clamped to it unless `weir.replication.clamp=false`, and the answer says what is real.
//!   The timeout is not needed: the answer comes when the topic is there.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use kafka_protocol::protocol::StrBytes;
use weir_model::config::ConfigError;

use super::{CloseConnection, Reply, RequestContext};
use crate::topics::errors::{message, topic_error};
use crate::topics::{CreatedTopic, NewTopic, TopicError, topic_entries};

/// Makes them one by one.
pub async fn handle(context: &RequestContext, request: CreateTopicsRequest) -> Result<Reply, CloseConnection> {
    let mut seen = BTreeSet::new();
    let repeated: BTreeSet<String> = request
        .topics
        .iter()
        .map(|topic| topic.name.as_str().to_owned())
        .filter(|name| !seen.insert(name.clone()))
        .collect();
    let mut answered = BTreeSet::new();
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let name = topic.name.clone();
        if repeated.contains(name.as_str()) {
            if answered.insert(name.as_str().to_owned()) {
                let reason = "the topic is named more than once in the request".to_owned();
                results.push(refused(ResponseError::InvalidRequest, reason).with_name(name));
            }
            continue;
        }
        let result = match create(context, topic, request.validate_only).await {
            Ok(created) => succeeded(context, &created, request.validate_only),
            Err(error) => refused(topic_error(&error), message(&error)),
        };
        results.push(result.with_name(name));
    }
    context.ready(&CreateTopicsResponse::default().with_topics(results))
}

async fn create(
    context: &RequestContext,
    topic: CreatableTopic,
    validate_only: bool,
) -> Result<CreatedTopic, TopicError> {
    let mut overrides = BTreeMap::new();
    for config in topic.configs {
        let name = config.name.to_string();
        let value = config.value.ok_or_else(|| ConfigError::NoValue { name: name.clone() })?;
        overrides.insert(name, value.to_string());
    }
    let assignments =
        topic.assignments.into_iter().map(|one| (one.partition_index, one.broker_ids.iter().map(|id| id.0).collect()));
    let topic = NewTopic {
        name: topic.name.as_str().to_owned(),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments.collect(),
        overrides,
        validate_only,
        internal: false,
    };
    context.broker.topics.create_topic(topic).await
}

fn succeeded(context: &RequestContext, created: &CreatedTopic, validate_only: bool) -> CreatableTopicResult {
    let mut result = CreatableTopicResult::default();
    if context.version >= 5 {
        let configs =
            topic_entries(&created.topic, &context.broker.storage.broker_configs()).into_iter().map(|entry| {
                CreatableTopicConfigs::default()
                    .with_name(StrBytes::from_static_str(entry.def.name))
                    .with_value(entry.value.map(StrBytes::from_string))
                    .with_read_only(entry.read_only)
                    .with_config_source(entry.source.code())
                    .with_is_sensitive(entry.def.sensitive)
            });
        result = result
            .with_num_partitions(created.topic.partitions())
            .with_replication_factor(created.replication_factor)
            .with_configs(Some(configs.collect()));
    }
    if context.version >= 7 && !validate_only {
        result = result.with_topic_id(created.topic.id().as_uuid());
    }
    result
}

fn refused(code: ResponseError, reason: String) -> CreatableTopicResult {
    CreatableTopicResult::default().with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(reason)))
}
