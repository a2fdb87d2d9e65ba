//! ConsumerGroupHeartbeat (key 68), versions 0 and 1.
//!
//! A member of a KIP-848 group joins, lives, or leaves, and is told what it shall own; answered when what it is told is durable (S-88 to S-91).
//!
//! * v1 the client makes its member id; regular expressions are resolved here.
//! * An expression is resolved in the background: the first answer has no partitions for it, one of the next has (as in Kafka).
//! * Differs from Kafka: an expression longer than 4,096 bytes, or one that compiles to more than a megabyte, is INVALID_REGULAR_EXPRESSION. With
//!   `group.coordinator.rebalance.protocols=classic` the API is advertised, and refused with UNSUPPORTED_VERSION, as in Kafka.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions as OwnedPartitions;
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment as ToldAssignment, TopicPartitions};
use kafka_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_error;
use crate::coordinator::group::consumer::assignment::Assignment;
use crate::coordinator::group::consumer::event::{
    ConsumerHeartbeat, HeartbeatAnswer, JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH,
};

/// Beats.
pub async fn handle(
    context: &RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> Result<Reply, CloseConnection> {
    let config = &context.broker.config;
    if !config.group_coordinator_rebalance_protocols.consumer {
        let reason = "this broker serves classic groups only, see group.coordinator.rebalance.protocols";
        return context.ready(&refused(ResponseError::UnsupportedVersion, reason.to_owned()));
    }
    if let Err(reason) = check(context.version, &request) {
        return context.ready(&refused(ResponseError::InvalidRequest, reason.to_owned()));
    }
    if let Some(assignor) = &request.server_assignor
        && !config.group_consumer_assignors.0.iter().any(|name| **name == **assignor)
    {
        let offered = config.group_consumer_assignors.0.join(", ");
        let reason = format!("assignor '{assignor}' is not on offer: ask for one of {offered}, or for none");
        return context.ready(&refused(ResponseError::UnsupportedAssignor, reason));
    }
    let group: Arc<str> = Arc::from(request.group_id.as_str());
    let answer = context.broker.groups.consumer_heartbeat(group, to_heartbeat(context, request)).await;
    Ok(context.pending(async move {
        Ok(match answer.wait().await.and_then(|outcome| outcome) {
            Ok(answer) => to_response(answer),
            Err(error) => refused(group_error(error), error.to_string()),
        })
    }))
}

/// Kafka's rules for the fields of a request.
fn check(version: i16, request: &ConsumerGroupHeartbeatRequest) -> Result<(), &'static str> {
    // Blanks count as nothing, as in Kafka.
    let is_empty = |text: &Option<StrBytes>| text.as_ref().is_some_and(|text| text.trim().is_empty());
    if request.group_id.trim().is_empty() {
        return Err("GroupId is empty: give the group a name");
    }
    if request.member_id.trim().is_empty() && (version >= 1 || request.member_epoch != JOIN_EPOCH) {
        return Err("MemberId is empty: since version 1 the client makes it, and keeps it");
    }
    if is_empty(&request.instance_id) {
        return Err("InstanceId is empty: leave it null");
    }
    if is_empty(&request.rack_id) {
        return Err("RackId is empty: leave it null");
    }
    match request.member_epoch {
        JOIN_EPOCH => {
            if request.rebalance_timeout_ms == -1 {
                return Err("RebalanceTimeoutMs is missing in a request that joins");
            }
            if request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
                return Err("TopicPartitions is to be empty, and not null, in a request that joins");
            }
            if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
                return Err("SubscribedTopicNames or SubscribedTopicRegex is to be given in a request that joins");
            }
            Ok(())
        }
        LEAVE_EPOCH => Ok(()),
        STATIC_LEAVE_EPOCH if request.instance_id.is_none() => {
            Err("InstanceId is missing: only a static member leaves with epoch -2")
        }
        STATIC_LEAVE_EPOCH => Ok(()),
        ..STATIC_LEAVE_EPOCH => Err("MemberEpoch is below -2"),
        _ => Ok(()),
    }
}

fn to_heartbeat(context: &RequestContext, request: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat {
    let shared = |text: StrBytes| -> Arc<str> { Arc::from(&*text) };
    let member_id: Arc<str> = if request.member_id.is_empty() {
        // Kafka's own form of a random id.
        Arc::from(weir_model::TopicId::random().to_string())
    } else {
        shared(request.member_id)
    };
    let topics = request.subscribed_topic_names.map(|names| {
        let names: BTreeSet<Arc<str>> = names.into_iter().map(|name| Arc::from(name.as_str())).collect();
        names
    });
    ConsumerHeartbeat {
        member_id,
        epoch: request.member_epoch,
        instance_id: request.instance_id.map(shared),
        rack_id: request.rack_id.map(shared),
        rebalance_timeout_ms: Some(request.rebalance_timeout_ms).filter(|timeout| *timeout >= 0),
        topics,
        regex: request.subscribed_topic_regex.map(shared),
        assignor: request.server_assignor.map(shared),
        owned: request.topic_partitions.map(to_assignment),
        client_id: Arc::from(context.client_id()),
        client_host: Arc::from(format!("/{}", context.peer.ip())),
    }
}

fn to_assignment(owned: Vec<OwnedPartitions>) -> Assignment {
    let mut assignment = Assignment::new();
    for topic in owned.into_iter().filter(|topic| !topic.partitions.is_empty()) {
        assignment.entry(topic.topic_id).or_default().extend(topic.partitions);
    }
    assignment
}

fn to_response(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse {
    let assignment = answer.assignment.map(|assignment| {
        let topics = assignment.into_iter().map(|(topic, partitions)| {
            TopicPartitions::default().with_topic_id(topic).with_partitions(partitions.into_iter().collect())
        });
        ToldAssignment::default().with_topic_partitions(topics.collect())
    });
    ConsumerGroupHeartbeatResponse::default()
        .with_member_id(Some(StrBytes::from_string(answer.member_id.to_string())))
        .with_member_epoch(answer.epoch)
        .with_heartbeat_interval_ms(answer.heartbeat_interval_ms)
        .with_assignment(assignment)
}

fn refused(error: ResponseError, reason: String) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse::default()
        .with_error_code(error.code())
        .with_error_message(Some(StrBytes::from_string(reason)))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::GroupId;

    use super::*;

    fn join() -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(StrBytes::from_static_str("g")))
            .with_member_id(StrBytes::from_static_str("m"))
            .with_rebalance_timeout_ms(1_000)
            .with_topic_partitions(Some(Vec::new()))
            .with_subscribed_topic_names(Some(Vec::new()))
    }

    #[test]
    fn s88_a_join_says_everything_and_owns_nothing() {
        assert_eq!(check(1, &join()), Ok(()));
        assert_eq!(check(0, &join().with_member_id(StrBytes::default())), Ok(()), "before v1 the broker makes the id");
        let owned = vec![OwnedPartitions::default().with_partitions(vec![0])];
        let refused = [
            join().with_member_id(StrBytes::default()),
            join().with_group_id(GroupId::default()),
            join().with_group_id(GroupId(StrBytes::from_static_str(" "))),
            join().with_rebalance_timeout_ms(-1),
            join().with_topic_partitions(None),
            join().with_topic_partitions(Some(owned)),
            join().with_subscribed_topic_names(None),
            join().with_instance_id(Some(StrBytes::default())),
            join().with_rack_id(Some(StrBytes::default())),
            join().with_member_epoch(-2),
            join().with_member_epoch(-3),
        ];
        for request in refused {
            assert!(check(1, &request).is_err(), "{request:?}");
        }
        assert_eq!(check(1, &join().with_member_epoch(-1)), Ok(()));
        let leaving = join().with_member_epoch(-2).with_instance_id(Some(StrBytes::from_static_str("i")));
        assert_eq!(check(1, &leaving), Ok(()));
    }
}
