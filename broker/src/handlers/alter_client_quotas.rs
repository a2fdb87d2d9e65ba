//! AlterClientQuotas (key 49), versions 0 and 1.
//!
//! Sets and removes the quotas of entities, each entity's for itself (KIP-546). What would not be enforced is refused by name with INVALID_REQUEST
//! (docs/decisions/0006): of Kafka's quotas Weir has `producer_byte_rate` and `consumer_byte_rate`, for users and client ids.
//!
//! * v1 compact encodings.

use std::sync::Arc;

use kafka_protocol::messages::alter_client_quotas_request::EntryData as Asked;
use kafka_protocol::messages::alter_client_quotas_response::{EntityData, EntryData};
use kafka_protocol::messages::{AlterClientQuotasRequest, AlterClientQuotasResponse};
use kafka_protocol::protocol::StrBytes;
use tracing::error;

use super::{CloseConnection, Reply, RequestContext};
use crate::errors;
use crate::quotas::{Change, Entity, QuotaError, Quotas};

/// Changes them.
pub async fn handle(context: &RequestContext, request: AlterClientQuotasRequest) -> Result<Reply, CloseConnection> {
    let broker = Arc::clone(&context.broker);
    // Each commit syncs.
    let altering = tokio::task::spawn_blocking(move || {
        request.entries.into_iter().map(|entry| answer(&broker.quotas, entry, request.validate_only)).collect()
    });
    let entries = match altering.await {
        Ok(entries) => entries,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    };
    context.ready(&AlterClientQuotasResponse::default().with_entries(entries))
}

fn answer(quotas: &Quotas, asked: Asked, validate_only: bool) -> EntryData {
    let outcome = alter(quotas, &asked, validate_only);
    let entity = asked
        .entity
        .into_iter()
        .map(|part| EntityData::default().with_entity_type(part.entity_type).with_entity_name(part.entity_name));
    let entry = EntryData::default().with_entity(entity.collect());
    match outcome {
        Ok(()) => entry.with_error_code(0).with_error_message(None),
        Err(cause) => {
            if matches!(cause, QuotaError::Store(_)) {
                error!(%cause, "client quotas were not stored");
            }
            entry
                .with_error_code(errors::quota_error(&cause).code())
                .with_error_message(Some(StrBytes::from_string(cause.to_string())))
        }
    }
}

fn alter(quotas: &Quotas, asked: &Asked, validate_only: bool) -> Result<(), QuotaError> {
    let parts = asked
        .entity
        .iter()
        .map(|part| (part.entity_type.to_string(), part.entity_name.as_ref().map(ToString::to_string)));
    let entity = Entity::from_parts(parts)?;
    let changes: Vec<Change> =
        asked.ops.iter().map(|op| (op.key.to_string(), (!op.remove).then_some(op.value))).collect();
    quotas.alter(entity, &changes, validate_only)
}
