//! OffsetDelete (key 47), version 0.
//!
//! Deletes offsets that a group committed (KIP-496). Those of topics that its live members subscribe to stay: GROUP_SUBSCRIBED_TO_TOPIC (S-85).
//!
//! * Differs from Kafka: a consumer whose subscription cannot be read counts as subscribed to everything.

use std::sync::Arc;

use kafka_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use kafka_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::GroupError;

/// Deletes.
pub async fn handle(context: &RequestContext, request: OffsetDeleteRequest) -> Result<Reply, CloseConnection> {
    if request.group_id.is_empty() {
        let code = group_code(Some(GroupError::InvalidGroupId));
        return context.ready(&OffsetDeleteResponse::default().with_error_code(code));
    }
    let known = context.broker.storage.topics();
    let exists = move |topic: &str, index: i32| {
        known.by_name(topic).is_some_and(|topic| (0..topic.partitions()).contains(&index))
    };
    let mut asked = Vec::new();
    for topic in &request.topics {
        let name: Arc<str> = Arc::from(topic.name.as_str());
        let there = topic.partitions.iter().map(|partition| partition.partition_index);
        asked.extend(there.filter(|index| exists(&name, *index)).map(|index| (name.clone(), index)));
    }
    let answer = context.broker.groups.delete_offsets(Arc::from(request.group_id.as_str()), asked).await;
    Ok(context.pending(async move {
        let errors = match answer.wait().await.and_then(|outcome| outcome) {
            Ok(errors) => errors,
            Err(error) => return Ok(OffsetDeleteResponse::default().with_error_code(group_code(Some(error)))),
        };
        // One error per partition that there is, in the order of the request.
        let mut errors = errors.into_iter();
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|partition| {
                let error = if exists(topic.name.as_str(), partition.partition_index) {
                    errors.next().flatten()
                } else {
                    Some(GroupError::UnknownTopicOrPartition)
                };
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(group_code(error))
            });
            let partitions = partitions.collect();
            OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions)
        });
        let topics = topics.collect();
        Ok(OffsetDeleteResponse::default().with_topics(topics))
    }))
}
