//! CreatePartitions (key 37), versions 0 to 3.
//!
//! Gives topics more partitions; the count is the new total (KIP-195, S-70). No topics at all is legal.
//!
//! * v1 throttle time; v2 compact encodings; v3 a quota error, never needed.
//! * Differs from Kafka: assignments are checked for their number only, since every partition is on this broker.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};
use crate::topics::errors::{message, topic_error};

/// Makes them topic by topic.
pub async fn handle(context: &RequestContext, request: CreatePartitionsRequest) -> Result<Reply, CloseConnection> {
    let names: Vec<TopicName> = request.topics.iter().map(|topic| topic.name.clone()).collect();
    let mut results = Vec::with_capacity(request.topics.len());
    for (index, topic) in request.topics.into_iter().enumerate() {
        // Named twice, answered once: clients keep the results in a map.
        if names[..index].contains(&topic.name) {
            continue;
        }
        let result = CreatePartitionsTopicResult::default().with_name(topic.name.clone());
        results.push(match create(context, &names, &topic, request.validate_only).await {
            Ok(()) => result,
            Err((code, reason)) => {
                result.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(reason)))
            }
        });
    }
    context.ready(&CreatePartitionsResponse::default().with_results(results))
}

async fn create(
    context: &RequestContext,
    names: &[TopicName],
    topic: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<(), (ResponseError, String)> {
    if names.iter().filter(|name| **name == topic.name).count() > 1 {
        return Err((ResponseError::InvalidRequest, "the topic is named more than once in the request".to_owned()));
    }
    let assignments: Option<Vec<Vec<i32>>> = topic
        .assignments
        .as_ref()
        .map(|list| list.iter().map(|one| one.broker_ids.iter().map(|id| id.0).collect()).collect());
    let created = context
        .broker
        .topics
        .create_partitions(topic.name.as_str(), topic.count, assignments.as_deref(), validate_only)
        .await;
    created.map_err(|error| (topic_error(&error), message(&error)))
}
