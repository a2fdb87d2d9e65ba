//! AlterConfigs (key 33), versions 0 to 2.
//!
//! Replaces all configs set on topics and groups: what is not named has its default again (S-69). Older clients and UIs use it; IncrementalAlterConfigs is its successor.
//!
//! * v1 throttle time; v2 compact encodings.
//! * Differs from Kafka: the broker's own configs change with a restart, so altering them is refused with INVALID_REQUEST; so are other resources.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;
use weir_model::config::ConfigError;

use super::{CloseConnection, Reply, RequestContext};
use crate::coordinator::errors::group_config_error;
use crate::topics::TopicError;
use crate::topics::errors::{message, topic_error};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
pub(super) const GROUP: i8 = 32;

/// Replaces them one resource after the other; each all or nothing.
pub async fn handle(context: &RequestContext, request: AlterConfigsRequest) -> Result<Reply, CloseConnection> {
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
    context.ready(&AlterConfigsResponse::default().with_responses(responses))
}

/// A resource can be altered when it is a topic or a group, named once in the request.
pub(super) fn check_resource(named: &[(i8, StrBytes)], kind: i8, name: &str) -> Result<(), (ResponseError, String)> {
    if named.iter().filter(|(other_kind, other)| *other_kind == kind && **other == *name).count() > 1 {
        return Err((
            ResponseError::InvalidRequest,
            format!("resource '{name}' is named more than once in the request"),
        ));
    }
    match kind {
        TOPIC | GROUP => Ok(()),
        BROKER => {
            let reason = "broker configs are read at the start: set them in the config file, in the environment or with --set, and restart";
            Err((ResponseError::InvalidRequest, reason.to_owned()))
        }
        other => Err((
            ResponseError::InvalidRequest,
            format!("configs of resource type {other} are not served: alter those of a topic (2) or a group (32)"),
        )),
    }
}

async fn alter(
    context: &RequestContext,
    named: &[(i8, StrBytes)],
    resource: AlterConfigsResource,
    validate_only: bool,
) -> Result<(), (ResponseError, String)> {
    check_resource(named, resource.resource_type, &resource.resource_name)?;
    let failed = |error: TopicError| (topic_error(&error), message(&error));
    let mut overrides = BTreeMap::new();
    for config in resource.configs {
        let name = config.name.to_string();
        let Some(value) = config.value else { return Err(failed(ConfigError::NoValue { name }.into())) };
        if overrides.insert(name.clone(), value.to_string()).is_some() {
            return Err(failed(TopicError::DuplicateConfig(name)));
        }
    }
    if resource.resource_type == GROUP {
        let replaced = context.broker.groups.configs().replace(&resource.resource_name, overrides, validate_only).await;
        return replaced.map_err(|error| (group_config_error(&error), error.to_string()));
    }
    context.broker.topics.replace_configs(&resource.resource_name, overrides, validate_only).await.map_err(failed)
}
