//! Metadata (key 3), versions 0 to 13.
//!
//! Answers the broker, and topics with their partitions: all of them, those named, or those whose ids are given. Creates a topic that is named and missing when
//! both the client and `auto.create.topics.enable` allow it.
//!
//! * v1 null means all topics and empty means none (in v0 empty means all); v2 cluster id; v4 the client's say on auto creation; v5 offline replicas;
//!   v7 leader epochs (KIP-320); v8 authorized operations (KIP-430); v10 topic ids; v12 look-up by id (KIP-516); v13 a top-level error (KIP-1102).
//! * Differs from Kafka: a topic created by this request is answered as created, not with UNKNOWN_TOPIC_OR_PARTITION: it is usable at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName as WireName};
use kafka_protocol::protocol::StrBytes;
use tracing::warn;
use uuid::Uuid;
use weir_model::{TopicId, TopicName};
use weir_storage::TopicInfo;
use weir_storage::partition::LEADER_EPOCH;

use super::{CloseConnection, Reply, RequestContext};

/// "Not asked for", in the fields of authorized operations (S-24).
const OPERATIONS_NOT_ASKED: i32 = i32::MIN;

/// Every operation that Kafka defines on a topic: read, write, create, delete, alter, describe, describe configs, alter configs. There are no ACLs.
pub(super) const ALL_TOPIC_OPERATIONS: i32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;

/// Every operation on the cluster: create, alter, describe, cluster action, describe configs, alter configs, idempotent write.
const ALL_CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;

/// Answers the topics asked for.
pub async fn handle(context: &RequestContext, request: MetadataRequest) -> Result<Reply, CloseConnection> {
    let identity = &context.broker.identity;
    let mut response = MetadataResponse::default()
        .with_brokers(vec![
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(identity.node_id))
                .with_host(StrBytes::from_string(identity.host.clone()))
                .with_port(identity.port),
        ])
        .with_cluster_id(Some(StrBytes::from_string(identity.cluster_id.clone())))
        .with_controller_id(BrokerId(identity.node_id));
    if (8..=10).contains(&context.version) {
        let operations =
            if request.include_cluster_authorized_operations { ALL_CLUSTER_OPERATIONS } else { OPERATIONS_NOT_ASKED };
        response = response.with_cluster_authorized_operations(operations);
    }
    let wants_operations = request.include_topic_authorized_operations;
    let topics = match &request.topics {
        None => all(context, wants_operations),
        Some(topics) if topics.is_empty() && context.version == 0 => all(context, wants_operations),
        Some(topics) if asks_what_its_version_cannot(context.version, topics) => {
            return refuse(context, response, topics);
        }
        Some(topics) => {
            let allow_creation = request.allow_auto_topic_creation && context.broker.config.auto_create_topics_enable;
            let mut answers = Vec::with_capacity(topics.len());
            let mut seen = BTreeSet::new();
            for topic in topics {
                // Named twice, answered once, as Kafka does: clients keep topics in a map.
                if !seen.insert((topic.name.as_ref().map(|name| name.as_str()), topic.topic_id)) {
                    continue;
                }
                answers.push(one(context, topic, allow_creation, wants_operations).await);
            }
            answers
        }
    };
    response = response.with_topics(topics);
    context.ready(&response)
}

/// Versions 10 and 11 have the id and the null name in their layout, but not their meaning (S-18).
fn asks_what_its_version_cannot(version: i16, topics: &[MetadataRequestTopic]) -> bool {
    version < 12 && topics.iter().any(|topic| topic.name.is_none() || !topic.topic_id.is_nil())
}

fn refuse(
    context: &RequestContext,
    response: MetadataResponse,
    topics: &[MetadataRequestTopic],
) -> Result<Reply, CloseConnection> {
    let code = ResponseError::InvalidRequest;
    // These versions cannot say that there is no name: an empty one stands for it.
    let answers = topics.iter().map(|topic| {
        let name = topic.name.clone().unwrap_or_default();
        failed(name.clone(), topic.topic_id, code).with_name(Some(name))
    });
    let answers = answers.collect();
    context.ready(&response.with_topics(answers))
}

fn all(context: &RequestContext, wants_operations: bool) -> Vec<MetadataResponseTopic> {
    context.broker.storage.topics().iter().map(|topic| describe(context, topic, wants_operations)).collect()
}

async fn one(
    context: &RequestContext,
    asked: &MetadataRequestTopic,
    allow_creation: bool,
    wants_operations: bool,
) -> MetadataResponseTopic {
    // An id goes before any name: the Java client asks by id with an empty name, not a null one (KIP-516).
    let Some(wire_name) = asked.name.as_ref().filter(|_| asked.topic_id.is_nil()) else {
        let found = context.broker.storage.topics().get(TopicId::from_uuid(asked.topic_id)).cloned();
        return match found {
            Some(topic) => describe(context, &topic, wants_operations),
            None => failed(WireName::default(), asked.topic_id, ResponseError::UnknownTopicId),
        };
    };
    if let Some(topic) = find(context, wire_name.as_str()) {
        return describe(context, &topic, wants_operations);
    }
    let name = match TopicName::new(wire_name.as_str()) {
        Ok(name) => name,
        Err(_) => return failed(wire_name.clone(), Uuid::nil(), ResponseError::InvalidTopicException),
    };
    if !allow_creation {
        return failed(wire_name.clone(), Uuid::nil(), ResponseError::UnknownTopicOrPartition);
    }
    if let Err(error) = context.broker.topics.auto_create(&name).await {
        warn!(topic = %name, %error, client_id = context.client_id(), "a topic was not created on first use");
        return failed(wire_name.clone(), Uuid::nil(), ResponseError::UnknownTopicOrPartition);
    }
    match find(context, wire_name.as_str()) {
        Some(topic) => describe(context, &topic, wants_operations),
        // Deleted again in between.
        None => failed(wire_name.clone(), Uuid::nil(), ResponseError::UnknownTopicOrPartition),
    }
}

fn find(context: &RequestContext, name: &str) -> Option<Arc<TopicInfo>> {
    context.broker.storage.topics().by_name(name).cloned()
}

fn describe(context: &RequestContext, topic: &TopicInfo, wants_operations: bool) -> MetadataResponseTopic {
    let node = BrokerId(context.broker.identity.node_id);
    let partitions = (0..topic.partitions())
        .map(|index| {
            MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(node)
                .with_leader_epoch(LEADER_EPOCH)
                .with_replica_nodes(vec![node])
                .with_isr_nodes(vec![node])
        })
        .collect();
    MetadataResponseTopic::default()
        .with_name(Some(WireName(StrBytes::from_string(topic.name().as_str().to_owned()))))
        .with_topic_id(topic.id().as_uuid())
        .with_is_internal(topic.record.internal)
        .with_partitions(partitions)
        .with_topic_authorized_operations(if wants_operations { ALL_TOPIC_OPERATIONS } else { OPERATIONS_NOT_ASKED })
}

fn failed(name: WireName, id: Uuid, code: ResponseError) -> MetadataResponseTopic {
    // By id, the name stays null where the version can say so; older versions have no null name.
    let name = if id.is_nil() || !name.is_empty() { Some(name) } else { None };
    MetadataResponseTopic::default()
        .with_error_code(code.code())
        .with_name(name)
        .with_topic_id(id)
        .with_topic_authorized_operations(OPERATIONS_NOT_ASKED)
}
