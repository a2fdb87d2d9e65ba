//! AlterClientQuotas (key 49), versions 0 and 1.
//!
//! Refuses every change with INVALID_REQUEST and a sentence: no client is throttled, so a quota that was accepted would be a lie (docs/decisions/0006).
//!
//! * v1 compact encodings.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_client_quotas_response::{EntityData, EntryData};
use kafka_protocol::messages::{AlterClientQuotasRequest, AlterClientQuotasResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

const REASON: &str = "client quotas are not built: nothing is throttled, so none can be set";

/// Refuses each.
pub async fn handle(context: &RequestContext, request: AlterClientQuotasRequest) -> Result<Reply, CloseConnection> {
    let entries = request.entries.into_iter().map(|entry| {
        let entity = entry
            .entity
            .into_iter()
            .map(|part| EntityData::default().with_entity_type(part.entity_type).with_entity_name(part.entity_name));
        EntryData::default()
            .with_error_code(ResponseError::InvalidRequest.code())
            .with_error_message(Some(StrBytes::from_static_str(REASON)))
            .with_entity(entity.collect())
    });
    context.ready(&AlterClientQuotasResponse::default().with_entries(entries.collect()))
}
