//! DescribeConfigs (key 32), versions 1 to 4.
//!
//! Answers the configs of topics, of this broker, and (under the empty name) those set for all brokers, and of groups, from the tables in `weir_model::config` (S-67, S-68).
//!
//! * v1 source and synonyms (KIP-226); v3 type and documentation (KIP-569); v4 compact encodings.
//! * Differs from Kafka: loggers and client metrics are not built: INVALID_REQUEST. Groups have the configs of KIP-848 groups only.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;
use weir_model::TopicName;

use super::config_changes::{BROKER, GROUP, TOPIC};
use super::{CloseConnection, Reply, RequestContext};
use crate::topics::errors::{message, topic_error};
use crate::topics::{ConfigEntry, TopicError, broker_entries, cluster_entries, topic_entries};

/// Answers at once.
pub async fn handle(context: &RequestContext, request: DescribeConfigsRequest) -> Result<Reply, CloseConnection> {
    let (with_synonyms, with_documentation) =
        (request.include_synonyms, request.include_documentation && context.version >= 3);
    let results = request.resources.into_iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match entries(context, &resource) {
            Ok(entries) => {
                let wanted = |entry: &ConfigEntry| match &resource.configuration_keys {
                    None => true,
                    // Kafka takes an empty list for all, as it takes null.
                    Some(keys) if keys.is_empty() => true,
                    Some(keys) => keys.iter().any(|key| **key == *entry.def.name),
                };
                let configs = entries
                    .into_iter()
                    .filter(wanted)
                    .map(|entry| to_config(entry, context.version, with_synonyms, with_documentation));
                result.with_configs(configs.collect())
            }
            Err((code, reason)) => {
                result.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(reason)))
            }
        }
    });
    context.ready(&DescribeConfigsResponse::default().with_results(results.collect()))
}

fn entries(
    context: &RequestContext,
    resource: &DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, (ResponseError, String)> {
    let broker = &context.broker;
    let name = &*resource.resource_name;
    match resource.resource_type {
        TOPIC => {
            let found = TopicName::new(name).map_err(TopicError::from).and_then(|_| broker.topics.by_name(name));
            let topic = found.map_err(|error| (topic_error(&error), message(&error)))?;
            Ok(topic_entries(&topic, &broker.storage.broker_configs()))
        }
        BROKER if name.is_empty() => Ok(cluster_entries(&broker.storage.broker_configs())),
        BROKER => {
            let expected = broker.identity.node_id;
            match name.parse::<i32>() {
                Ok(id) if id == expected => Ok(broker_entries(&broker.storage.broker_configs())),
                Ok(_) => {
                    let error = TopicError::OtherBroker { expected, name: name.to_owned() };
                    Err((topic_error(&error), message(&error)))
                }
                Err(_) => {
                    Err((ResponseError::InvalidRequest, format!("Broker id must be an integer, but it is: {name}")))
                }
            }
        }
        GROUP if name.is_empty() => {
            Err((ResponseError::InvalidRequest, "the group id is empty: name the group".to_owned()))
        }
        GROUP => Ok(broker.groups.configs().entries(name)),
        other => Err((
            ResponseError::InvalidRequest,
            format!("configs of resource type {other} are not served: ask for 2 (topic), 4 (broker) or 32 (group)"),
        )),
    }
}

fn to_config(
    entry: ConfigEntry,
    version: i16,
    with_synonyms: bool,
    with_documentation: bool,
) -> DescribeConfigsResourceResult {
    let synonyms = if with_synonyms { entry.synonyms } else { Vec::new() };
    let synonyms = synonyms.into_iter().map(|synonym| {
        DescribeConfigsSynonym::default()
            .with_name(StrBytes::from_static_str(synonym.name))
            .with_value(synonym.value.map(StrBytes::from_string))
            .with_source(synonym.source.code())
    });
    let config = DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(entry.def.name))
        .with_value(entry.value.map(StrBytes::from_string))
        .with_read_only(entry.read_only)
        .with_config_source(entry.source.code())
        .with_is_sensitive(entry.def.sensitive)
        .with_synonyms(synonyms.collect());
    let config = if version >= 3 { config.with_config_type(entry.def.kind.code()) } else { config };
    config.with_documentation(with_documentation.then(|| StrBytes::from_string(entry.def.text())))
}
