//! DescribeGroups (key 15), versions 0 to 6.
//!
//! Answers groups in full: state, protocol, members with their metadata and assignments.
//!
//! * v1 throttle time; v3 authorized operations (KIP-430); v4 static ids (KIP-345); v5 compact encodings; v6 an unknown group is GROUP_ID_NOT_FOUND with a message
//!   (KIP-1043), before it is a group without error in state Dead (S-86).
//! * A KIP-848 group is not found here, see ConsumerGroupDescribe.
//! * Does not differ from Kafka: metadata and assignments are shown while the group is Stable.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::{GroupError, GroupState, Member};
use crate::coordinator::{GroupDescription, NotFound};

/// "Not asked for" (S-24).
pub(super) const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
/// Every operation that Kafka defines on a group: read, delete, describe, describe configs, alter configs. There are no ACLs.
pub(super) const ALL_GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

/// Describes.
pub async fn handle(context: &RequestContext, request: DescribeGroupsRequest) -> Result<Reply, CloseConnection> {
    let version = context.version;
    let operations =
        if version >= 3 && request.include_authorized_operations { ALL_GROUP_OPERATIONS } else { OPERATIONS_NOT_ASKED };
    let mut answers = Vec::with_capacity(request.groups.len());
    for id in request.groups {
        let answer = context.broker.groups.describe(Arc::from(id.as_str())).await;
        answers.push((id, answer));
    }
    Ok(context.pending(async move {
        let mut groups = Vec::with_capacity(answers.len());
        for (id, answer) in answers {
            let group = match answer.wait().await {
                Ok(Ok(description)) => described(id, description, version),
                Ok(Err(NotFound::Absent | NotFound::Unavailable)) => unknown(id, "not found", version),
                Ok(Err(NotFound::OtherType)) => unknown(id, "is not a classic group", version),
                Err(error) => DescribedGroup::default().with_group_id(id).with_error_code(group_code(Some(error))),
            };
            groups.push(group.with_authorized_operations(operations));
        }
        Ok(DescribeGroupsResponse::default().with_groups(groups))
    }))
}

fn unknown(id: GroupId, why: &str, version: i16) -> DescribedGroup {
    let group = DescribedGroup::default().with_group_state(StrBytes::from_static_str(GroupState::Dead.as_str()));
    if version < 6 {
        return group.with_group_id(id);
    }
    let reason = format!("Group {} {why}.", id.as_str());
    group
        .with_group_id(id)
        .with_error_code(group_code(Some(GroupError::GroupIdNotFound)))
        .with_error_message(Some(StrBytes::from_string(reason)))
}

fn described(id: GroupId, group: GroupDescription, version: i16) -> DescribedGroup {
    let settled = group.protocol_name.filter(|_| group.state == GroupState::Stable);
    let members = group.members.into_iter().map(|member| to_member(member, settled.as_deref(), version)).collect();
    DescribedGroup::default()
        .with_group_id(id)
        .with_group_state(StrBytes::from_static_str(group.state.as_str()))
        .with_protocol_type(text(group.protocol_type.as_deref().unwrap_or_default()))
        .with_protocol_data(text(settled.as_deref().unwrap_or_default()))
        .with_members(members)
}

fn to_member(member: Member, protocol: Option<&str>, version: i16) -> DescribedGroupMember {
    let (metadata, assignment) = match protocol {
        Some(protocol) => (member.metadata(protocol), member.assignment),
        // Between generations there is no chosen protocol, and the assignment is that of the last one.
        None => (Bytes::new(), member.assignment),
    };
    DescribedGroupMember::default()
        .with_member_id(text(&member.id))
        .with_group_instance_id(member.instance_id.filter(|_| version >= 4).map(|id| text(&id)))
        .with_client_id(text(&member.client_id))
        .with_client_host(text(&member.client_host))
        .with_member_metadata(metadata)
        .with_member_assignment(assignment)
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
