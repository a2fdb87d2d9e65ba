//! JoinGroup (key 11), versions 0 to 9.
//!
//! Puts a member into a group; the answer comes when the group's members have gathered (S-75 to S-79, S-82).
//!
//! * v1 rebalance timeout; v4 a dynamic member joins with an id it was given first (KIP-394); v5 static members (KIP-345); v6 compact encodings; v7 protocol type in
//!   the answer (KIP-559); v8 reason (KIP-800), which is logged; v9 a returning static leader may skip the assignment (KIP-814).
//! * Differs from Kafka: a rebalance timeout of -1 counts as the session timeout, as v0's missing one does (brod#465). An absent static member stays until its session
//!   ends, even past a rebalance timeout.

use std::sync::Arc;

use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;
use tracing::debug;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::{Join, JoinAnswer, MemberProtocol};

/// Joins; the answer is waited for outside.
pub async fn handle(context: &RequestContext, request: JoinGroupRequest) -> Result<Reply, CloseConnection> {
    let version = context.version;
    if let Some(reason) = &request.reason {
        debug!(group = %request.group_id.as_str(), client_id = context.client_id(), %reason, "member joins");
    }
    let group: Arc<str> = Arc::from(request.group_id.as_str());
    let member_id = request.member_id.clone();
    let answer = context.broker.groups.join(group, to_join(context, request)).await;
    Ok(context.pending(async move {
        let answer = match answer.wait().await {
            Ok(answer) => answer,
            Err(error) => JoinAnswer::refused(&member_id, error),
        };
        Ok(to_response(answer, version))
    }))
}

fn to_join(context: &RequestContext, request: JoinGroupRequest) -> Join {
    let instance_id: Option<Arc<str>> = request.group_instance_id.map(|id| Arc::from(&*id));
    // Kafka's shape, which operators know from their tools: the static id, or the client's name, and something unique.
    let stem = instance_id.as_deref().unwrap_or(context.client_id());
    let rebalance_timeout_ms = match request.rebalance_timeout_ms {
        0.. if context.version >= 1 => request.rebalance_timeout_ms,
        _ => request.session_timeout_ms,
    };
    let protocols = request
        .protocols
        .into_iter()
        .map(|offered| MemberProtocol { name: Arc::from(&*offered.name), metadata: offered.metadata });
    Join {
        member_id: Arc::from(&*request.member_id),
        generated_id: Arc::from(format!("{stem}-{}", uuid::Uuid::new_v4())),
        instance_id,
        client_id: Arc::from(context.client_id()),
        client_host: Arc::from(format!("/{}", context.peer.ip())),
        session_timeout_ms: i64::from(request.session_timeout_ms),
        rebalance_timeout_ms: i64::from(rebalance_timeout_ms),
        protocol_type: Arc::from(&*request.protocol_type),
        protocols: protocols.collect(),
        require_known_member_id: context.version >= 4,
        can_skip_assignment: context.version >= 9,
    }
}

fn to_response(answer: JoinAnswer, version: i16) -> JoinGroupResponse {
    let members = answer.members.into_iter().map(|member| {
        JoinGroupResponseMember::default()
            .with_member_id(text(&member.member_id))
            .with_group_instance_id(member.instance_id.filter(|_| version >= 5).map(|id| text(&id)))
            .with_metadata(member.metadata)
    });
    let protocol_name = match answer.protocol_name {
        Some(name) => Some(text(&name)),
        // Before v7 the field cannot be null.
        None if version < 7 => Some(StrBytes::default()),
        None => None,
    };
    JoinGroupResponse::default()
        .with_error_code(group_code(answer.error))
        .with_generation_id(answer.generation)
        .with_protocol_type(answer.protocol_type.filter(|_| version >= 7).map(|kind| text(&kind)))
        .with_protocol_name(protocol_name)
        .with_leader(text(&answer.leader))
        .with_skip_assignment(version >= 9 && answer.skip_assignment)
        .with_member_id(text(&answer.member_id))
        .with_members(members.collect())
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
