//! IncrementalAlterConfigs (key 44), versions 0 to 1.
//!
//! Changes some configs of topics, of this broker or of all brokers; they take effect at once (S-69, KIP-226).
//!
//! * v1 compact encodings.
//! * Differs from Kafka: a broker config that nobody knows is refused, not stored. Levels of loggers, subscriptions to clients' metrics and other resources are
//!   refused with INVALID_REQUEST.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::config_changes::{Refused, ResourceChange, Wanted, change_all};
use super::{CloseConnection, Reply, RequestContext};
use crate::topics::{ConfigChange, ConfigOperation};

/// Changes them one resource after the other; each all or nothing.
pub async fn handle(
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> Result<Reply, CloseConnection> {
    let changes = request.resources.into_iter().map(|resource| ResourceChange {
        kind: resource.resource_type,
        name: resource.resource_name,
        wanted: resource.configs.into_iter().map(to_change).collect::<Result<_, _>>().map(Wanted::Some),
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
    context.ready(&IncrementalAlterConfigsResponse::default().with_responses(responses.collect()))
}

fn to_change(config: AlterableConfig) -> Result<ConfigChange, Refused> {
    let operation = match config.config_operation {
        0 => ConfigOperation::Set,
        1 => ConfigOperation::Delete,
        2 => ConfigOperation::Append,
        3 => ConfigOperation::Subtract,
        other => {
            let reason = format!(
                "operation {other} on config `{}` is unknown: write 0 (set), 1 (delete), 2 (append) or 3 (subtract)",
                &*config.name
            );
            return Err((ResponseError::InvalidRequest, reason));
        }
    };
    Ok(ConfigChange { name: config.name.to_string(), operation, value: config.value.map(|value| value.to_string()) })
}
