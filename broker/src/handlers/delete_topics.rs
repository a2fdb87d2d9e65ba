//! DeleteTopics (key 20), versions 1 to 6.
//!
//! Deletes topics with their data, and the offsets that groups committed for them (S-70). A topic made later under the same name has another id.
//!
//! * v4 compact encodings; v5 error message; v6 by id (KIP-516).
//! * Differs from Kafka: the topic is gone when it is answered, so the timeout is not needed. The broker's own topics cannot be deleted.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;
use weir_model::TopicId;
use weir_storage::TopicInfo;

use super::{CloseConnection, Reply, RequestContext};
use crate::topics::TopicError;
use crate::topics::errors::{message, topic_error};

/// Deletes them one by one.
pub async fn handle(context: &RequestContext, request: DeleteTopicsRequest) -> Result<Reply, CloseConnection> {
    let targets = if context.version >= 6 {
        request.topics
    } else {
        request.topic_names.into_iter().map(|name| DeleteTopicState::default().with_name(Some(name))).collect()
    };
    if !context.broker.config.delete_topic_enable {
        let results = targets.into_iter().map(|target| disabled(context, target)).collect();
        return context.ready(&DeleteTopicsResponse::default().with_responses(results));
    }
    let mut results = Vec::with_capacity(targets.len());
    let mut answered = Vec::new();
    for target in &targets {
        if targets.iter().filter(|other| *other == target).count() == 1 {
            results.push(delete(context, target.clone()).await);
        } else if !answered.contains(&target) {
            // Named twice: answered once, and nothing is deleted, as Kafka does it.
            answered.push(target);
            let result = DeletableTopicResult::default().with_name(target.name.clone()).with_topic_id(target.topic_id);
            let reason = "the topic is named more than once in the request".to_owned();
            results.push(fail(context, result, ResponseError::InvalidRequest, reason));
        }
    }
    context.ready(&DeleteTopicsResponse::default().with_responses(results))
}

/// Whatever is named, known or not. Versions below 3 have no code of its own for it.
fn disabled(context: &RequestContext, target: DeleteTopicState) -> DeletableTopicResult {
    let code =
        if context.version < 3 { ResponseError::InvalidRequest } else { topic_error(&TopicError::DeletionDisabled) };
    let result = DeletableTopicResult::default().with_name(target.name).with_topic_id(target.topic_id);
    fail(context, result, code, message(&TopicError::DeletionDisabled))
}

async fn delete(context: &RequestContext, target: DeleteTopicState) -> DeletableTopicResult {
    let result = DeletableTopicResult::default();
    let by_id = !target.topic_id.is_nil();
    let found = match (&target.name, by_id) {
        (Some(_), true) | (None, false) => {
            let reason = "give a topic's name or its id, one of them".to_owned();
            return fail(
                context,
                result.with_name(target.name).with_topic_id(target.topic_id),
                ResponseError::InvalidRequest,
                reason,
            );
        }
        (Some(name), false) => context.broker.topics.by_name(name.as_str()),
        (None, true) => by_topic_id(context, target.topic_id),
    };
    let outcome = match &found {
        Ok(topic) => context.broker.topics.delete(topic).await,
        Err(_) => Ok(()),
    };
    match (found, outcome) {
        (Ok(topic), Ok(())) => {
            context.broker.groups.topic_deleted(topic.name().as_str()).await;
            let name = TopicName(StrBytes::from_string(topic.name().as_str().to_owned()));
            let result = result.with_name(Some(name));
            if context.version >= 6 { result.with_topic_id(topic.id().as_uuid()) } else { result }
        }
        (Err(error), _) | (_, Err(error)) => {
            let result = result.with_name(target.name).with_topic_id(target.topic_id);
            fail(context, result, topic_error(&error), message(&error))
        }
    }
}

fn by_topic_id(context: &RequestContext, id: Uuid) -> Result<Arc<TopicInfo>, TopicError> {
    let id = TopicId::from_uuid(id);
    context.broker.storage.topics().get(id).cloned().ok_or(TopicError::UnknownId(id))
}

fn fail(
    context: &RequestContext,
    result: DeletableTopicResult,
    code: ResponseError,
    reason: String,
) -> DeletableTopicResult {
    let result = result.with_error_code(code.code());
    if context.version >= 5 { result.with_error_message(Some(StrBytes::from_string(reason))) } else { result }
}
