//! DeleteGroups (key 42), versions 0 to 2.
//!
//! Deletes groups without members, with the offsets they committed; answered when that is durable (S-85).
//!
//! * v1 throttle time; v2 compact encodings.
//! * Does not differ from Kafka.

use std::sync::Arc;

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_code;

/// Deletes.
pub async fn handle(context: &RequestContext, request: DeleteGroupsRequest) -> Result<Reply, CloseConnection> {
    let mut answers = Vec::with_capacity(request.groups_names.len());
    for id in request.groups_names {
        let answer = context.broker.groups.delete(Arc::from(id.as_str())).await;
        answers.push((id, answer));
    }
    Ok(context.pending(async move {
        let mut results = Vec::with_capacity(answers.len());
        for (id, answer) in answers {
            let error = answer.wait().await.and_then(|outcome| outcome).err();
            results.push(DeletableGroupResult::default().with_group_id(id).with_error_code(group_code(error)));
        }
        Ok(DeleteGroupsResponse::default().with_results(results))
    }))
}
