//! IncrementalAlterConfigs (key 44), versions 0 to 1.
//!
//! Changes some configs of topics and groups; they take effect at once (S-69).
//!
//! * v1 compact encodings.
//! * Differs from Kafka: the broker's own configs change with a restart, so altering them is refused with INVALID_REQUEST; so are loggers and other resources.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::alter_configs::{GROUP, check_resource};
use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_config_error;
use crate::topics::errors::{message, topic_error};
use crate::topics::{ConfigChange, ConfigOperation};

/// Changes them one resource after the other; each all or nothing.
pub async fn handle(
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> Result<Reply, CloseConnection> {
    let named: Vec<(i8, StrBytes)> =
        request.resources.iter().map(|resource| (resource.resource_type, resource.resource_name.clone())).collect();
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        responses.push(match alter(context, &named, resource, request.validate_only).await {
            Ok(()) => response,
            Err((code, reason)) => {
                response.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(reason)))
            }
        });
    }
    context.ready(&IncrementalAlterConfigsResponse::default().with_responses(responses))
}

async fn alter(
    context: &RequestContext,
    named: &[(i8, StrBytes)],
    resource: AlterConfigsResource,
    validate_only: bool,
) -> Result<(), (ResponseError, String)> {
    check_resource(named, resource.resource_type, &resource.resource_name)?;
    let changes: Vec<ConfigChange> = resource.configs.into_iter().map(to_change).collect::<Result<_, _>>()?;
    if resource.resource_type == GROUP {
        let changed = context.broker.groups.configs().change(&resource.resource_name, &changes, validate_only).await;
        return changed.map_err(|error| (group_config_error(&error), error.to_string()));
    }
    let changed = context.broker.topics.change_configs(&resource.resource_name, &changes, validate_only).await;
    changed.map_err(|error| (topic_error(&error), message(&error)))
}

fn to_change(config: AlterableConfig) -> Result<ConfigChange, (ResponseError, String)> {
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
