//! DescribeClientQuotas (key 48), versions 0 and 1.
//!
//! Answers the quotas of the entities that pass the filter (KIP-546).
//!
//! * v1 compact encodings.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use kafka_protocol::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};
use crate::quotas::{Filter, Match, Name, QuotaError};

/// Answers at once.
pub async fn handle(context: &RequestContext, request: DescribeClientQuotasRequest) -> Result<Reply, CloseConnection> {
    let components: Result<Vec<_>, QuotaError> = request.components.into_iter().map(component).collect();
    let filter = components.and_then(|components| Filter::new(components, request.strict));
    let response = DescribeClientQuotasResponse::default();
    context.ready(&match filter {
        Ok(filter) => {
            let entries = context.broker.quotas.describe(&filter).into_iter().map(|(entity, values)| {
                let entity = entity.parts().into_iter().map(|(kind, name)| {
                    EntityData::default()
                        .with_entity_type(StrBytes::from_static_str(kind))
                        .with_entity_name(name.map(StrBytes::from_string))
                });
                let values = values
                    .into_iter()
                    .map(|(key, value)| ValueData::default().with_key(StrBytes::from_string(key)).with_value(value));
                EntryData::default().with_entity(entity.collect()).with_values(values.collect())
            });
            response.with_error_message(None).with_entries(Some(entries.collect()))
        }
        Err(error) => response
            .with_error_code(ResponseError::InvalidRequest.code())
            .with_error_message(Some(StrBytes::from_string(error.to_string())))
            // Null stands for an error.
            .with_entries(None),
    })
}

/// How a component matches, as numbers on the wire: exactly, the default, any.
fn component(component: ComponentData) -> Result<(String, Match), QuotaError> {
    let kind = component.entity_type.to_string();
    let wanted = match (component.match_type, component._match) {
        (0, Some(name)) => Match::Exactly(Name::Named(name.to_string())),
        (1, None) => Match::Exactly(Name::Default),
        (2, None) => Match::Any,
        (0, None) => {
            return Err(QuotaError::Entity(format!("the filter for {kind} asks for an exact match of nothing")));
        }
        (1 | 2, Some(_)) => {
            return Err(QuotaError::Entity(format!(
                "the filter for {kind} has a name, which its match type does not use"
            )));
        }
        (other, _) => {
            return Err(QuotaError::Entity(format!("the filter for {kind} has the unknown match type {other}")));
        }
    };
    Ok((kind, wanted))
}
