//! ConsumerGroupDescribe (key 69), versions 0 and 1.
//!
//! Answers KIP-848 groups in full: state, epochs, assignor, members with their subscriptions, current and target assignments. A classic group is
//! GROUP_ID_NOT_FOUND, upon which clients ask with DescribeGroups (S-93).
//!
//! * v1 which protocol a member speaks (KIP-1099).
//! * Does not differ from Kafka.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member, TopicPartitions,
};
use kafka_protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, GroupId, TopicName};
use kafka_protocol::protocol::StrBytes;
use weir_model::TopicId;
use weir_storage::Topics;

use super::describe_groups::{ALL_GROUP_OPERATIONS, OPERATIONS_NOT_ASKED};
use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::NotFound;
use crate::coordinator::errors::group_error;
use crate::coordinator::group::consumer::assignment::Assignment;
use crate::coordinator::group::consumer::event::{ConsumerGroupDescription, ConsumerMemberDescription};

/// A member that speaks the classic protocol.
const CLASSIC_MEMBER: i8 = 0;
/// A member that speaks the consumer protocol.
const CONSUMER_MEMBER: i8 = 1;

/// Describes.
pub async fn handle(context: &RequestContext, request: ConsumerGroupDescribeRequest) -> Result<Reply, CloseConnection> {
    let version = context.version;
    let operations = if request.include_authorized_operations { ALL_GROUP_OPERATIONS } else { OPERATIONS_NOT_ASKED };
    let serves = context.broker.config.group_coordinator_rebalance_protocols.consumer;
    let mut answers = Vec::with_capacity(request.group_ids.len());
    for id in request.group_ids {
        let answer = context.broker.groups.describe_consumer(Arc::from(id.as_str())).await;
        answers.push((id, answer));
    }
    let topics = context.broker.storage.topics();
    Ok(context.pending(async move {
        let mut groups = Vec::with_capacity(answers.len());
        for (id, answer) in answers {
            let group = match answer.wait().await {
                _ if !serves => {
                    failed(ResponseError::UnsupportedVersion, "this broker serves classic groups only".to_owned())
                }
                Err(error) => failed(group_error(error), error.to_string()),
                Ok(Err(NotFound::Unavailable)) => failed(
                    ResponseError::CoordinatorNotAvailable,
                    "the group's last change is not durable: try again".to_owned(),
                ),
                Ok(Err(NotFound::Absent)) => {
                    failed(ResponseError::GroupIdNotFound, format!("Group {} not found.", id.as_str()))
                }
                Ok(Err(NotFound::OtherType)) => {
                    failed(ResponseError::GroupIdNotFound, format!("Group {} is not a consumer group.", id.as_str()))
                }
                Ok(Ok(group)) => described(group, &topics, version).with_authorized_operations(operations),
            };
            groups.push(group.with_group_id(GroupId(id.0)));
        }
        Ok(ConsumerGroupDescribeResponse::default().with_groups(groups))
    }))
}

fn failed(error: ResponseError, reason: String) -> DescribedGroup {
    DescribedGroup::default()
        .with_error_code(error.code())
        .with_error_message(Some(StrBytes::from_string(reason)))
        .with_authorized_operations(OPERATIONS_NOT_ASKED)
}

fn described(group: ConsumerGroupDescription, topics: &Topics, version: i16) -> DescribedGroup {
    let members = group.members.into_iter().map(|member| to_member(member, topics, version)).collect();
    DescribedGroup::default()
        .with_group_state(StrBytes::from_static_str(group.state.as_str()))
        .with_group_epoch(group.epoch)
        .with_assignment_epoch(group.target_epoch)
        .with_assignor_name(text(&group.assignor))
        .with_members(members)
}

fn to_member(member: ConsumerMemberDescription, topics: &Topics, version: i16) -> Member {
    let (metadata, current) = (member.metadata, member.current);
    let names = metadata.topics.iter().map(|name| TopicName(text(name))).collect();
    let member_type = match metadata.classic {
        _ if version < 1 => -1,
        Some(_) => CLASSIC_MEMBER,
        None => CONSUMER_MEMBER,
    };
    Member::default()
        .with_member_id(text(&member.id))
        .with_instance_id(metadata.instance_id.as_deref().map(text))
        .with_rack_id(metadata.rack_id.as_deref().map(text))
        .with_member_epoch(current.epoch)
        .with_client_id(text(&metadata.client_id))
        .with_client_host(text(&metadata.client_host))
        .with_subscribed_topic_names(names)
        .with_subscribed_topic_regex(Some(text(&metadata.regex)))
        .with_assignment(to_described(&current.assigned, topics))
        .with_target_assignment(to_described(&member.target, topics))
        .with_member_type(member_type)
}

/// Topics that are gone are left out.
fn to_described(assignment: &Assignment, topics: &Topics) -> DescribedAssignment {
    let partitions = assignment.iter().filter_map(|(id, partitions)| {
        let topic = topics.get(TopicId::from_uuid(*id))?;
        let partitions = TopicPartitions::default()
            .with_topic_id(*id)
            .with_topic_name(TopicName(text(topic.name().as_str())))
            .with_partitions(partitions.iter().copied().collect());
        Some(partitions)
    });
    DescribedAssignment::default().with_topic_partitions(partitions.collect())
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
