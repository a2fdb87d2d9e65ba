//! AlterConfigs (key 33), versions 0 to 2.
//!
//! Replaces all configs set on topics and brokers: what is not named has its default again (S-69). Older clients and UIs use it; IncrementalAlterConfigs is its successor.
//!
//! * v1 throttle time; v2 compact encodings.
//! * Differs from Kafka: as `incremental_alter_configs` does.

use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::config_changes::{ResourceChange, Wanted, change_all};
use super::{CloseConnection, Reply, RequestContext};

/// Replaces them one resource after the other; each all or nothing.
pub async fn handle(context: &RequestContext, request: AlterConfigsRequest) -> Result<Reply, CloseConnection> {
    let changes = request.resources.into_iter().map(|resource| {
        let configs = resource.configs.into_iter();
        let configs = configs.map(|config| (config.name.to_string(), config.value.map(|value| value.to_string())));
        ResourceChange {
            kind: resource.resource_type,
            name: resource.resource_name,
            wanted: Ok(Wanted::All(configs.collect())),
        }
    });
    let outcomes = change_all(context, changes.collect(), request.validate_only).await;
    let responses = outcomes.into_iter().map(|outcome| {
        let response =
            AlterConfigsResourceResponse::default().with_resource_type(outcome.kind).with_resource_name(outcome.name);
        match outcome.refused {
            None => response.with_error_message(None),
            Some((code, reason)) => {
                response.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(reason)))
            }
        }
    });
    context.ready(&AlterConfigsResponse::default().with_responses(responses.collect()))
}
