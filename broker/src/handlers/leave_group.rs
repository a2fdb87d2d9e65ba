//! LeaveGroup (key 13), versions 0 to 5.
//!
//! Takes members out of a group, by member id or by static id (S-82).
//!
//! * v3 many members at once, with an error each, and static ids (KIP-345); v4 compact encodings; v5 reason (KIP-800), which is logged.
//! * Does not differ from Kafka.

use std::sync::Arc;

use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};
use kafka_protocol::protocol::StrBytes;
use tracing::debug;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::{GroupError, LeaveAnswer, LeavingMember};

/// Leaves.
pub async fn handle(context: &RequestContext, request: LeaveGroupRequest) -> Result<Reply, CloseConnection> {
    let version = context.version;
    let group: Arc<str> = Arc::from(request.group_id.as_str());
    if group.is_empty() {
        return context
            .ready(&LeaveGroupResponse::default().with_error_code(group_code(Some(GroupError::InvalidGroupId))));
    }
    let leaving = if version >= 3 {
        request.members.into_iter().map(|member| to_leaving(member, &group)).collect()
    } else {
        vec![LeavingMember { member_id: Arc::from(&*request.member_id), instance_id: None }]
    };
    let answer = context.broker.groups.leave(group, leaving).await;
    Ok(context.pending(async move {
        Ok(match answer.wait().await {
            Err(error) => LeaveGroupResponse::default().with_error_code(group_code(Some(error))),
            Ok(answers) if version >= 3 => {
                LeaveGroupResponse::default().with_members(answers.into_iter().map(to_member).collect())
            }
            // One member, one error.
            Ok(answers) => LeaveGroupResponse::default()
                .with_error_code(group_code(answers.into_iter().find_map(|answer| answer.error))),
        })
    }))
}

fn to_leaving(member: MemberIdentity, group: &str) -> LeavingMember {
    if let Some(reason) = &member.reason {
        debug!(group, member_id = %member.member_id, %reason, "member leaves");
    }
    LeavingMember {
        member_id: Arc::from(&*member.member_id),
        instance_id: member.group_instance_id.map(|id| Arc::from(&*id)),
    }
}

fn to_member(answer: LeaveAnswer) -> MemberResponse {
    MemberResponse::default()
        .with_member_id(StrBytes::from_string((*answer.member.member_id).to_owned()))
        .with_group_instance_id(answer.member.instance_id.map(|id| StrBytes::from_string((*id).to_owned())))
        .with_error_code(group_code(answer.error))
}
