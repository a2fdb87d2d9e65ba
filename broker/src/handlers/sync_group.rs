//! SyncGroup (key 14), versions 0 to 5.
//!
//! The leader brings every member's assignment, the others wait for theirs; all are answered once the assignment is durable (S-80).
//!
//! * v3 static members (KIP-345); v4 compact encodings; v5 protocol type and name, checked and answered (KIP-559).
//! * Does not differ from Kafka.

use std::sync::Arc;

use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;
use crate::coordinator::group::{GroupError, Sync, SyncAnswer};

/// Syncs; the answer is waited for outside.
pub async fn handle(context: &RequestContext, request: SyncGroupRequest) -> Result<Reply, CloseConnection> {
    let version = context.version;
    if version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
        // From version 5 on both must be said (KIP-559).
        let answer = SyncAnswer::refused(GroupError::InconsistentProtocol);
        return context.ready(&SyncGroupResponse::default().with_error_code(group_code(answer.error)));
    }
    let group: Arc<str> = Arc::from(request.group_id.as_str());
    let owned = |text: Option<StrBytes>| text.map(|text| Arc::from(&*text));
    let sync = Sync {
        member_id: Arc::from(&*request.member_id),
        instance_id: owned(request.group_instance_id),
        generation: request.generation_id,
        protocol_type: owned(request.protocol_type),
        protocol_name: owned(request.protocol_name),
        assignments: request
            .assignments
            .into_iter()
            .map(|given| (Arc::from(&*given.member_id), given.assignment))
            .collect(),
    };
    let answer = context.broker.groups.sync(group, sync).await;
    Ok(context.pending(async move {
        let answer = match answer.wait().await {
            Ok(answer) => answer,
            Err(error) => SyncAnswer::refused(error),
        };
        let named = |text: Option<Arc<str>>| {
            text.filter(|_| version >= 5).map(|text| StrBytes::from_string((*text).to_owned()))
        };
        Ok(SyncGroupResponse::default()
            .with_error_code(group_code(answer.error))
            .with_protocol_type(named(answer.protocol_type))
            .with_protocol_name(named(answer.protocol_name))
            .with_assignment(answer.assignment))
    }))
}
