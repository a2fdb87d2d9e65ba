//! ListConfigResources (key 74), versions 0 and 1.
//!
//! Lists what DescribeConfigs answers for: topics, this broker, and groups with configs of their own. Client metrics and loggers have no configs here, so none is listed.
//!
//! * v0 was ListClientMetricsResources, and asks for client metrics alone (KIP-1000); v1 names the types wanted, an empty list for all (KIP-1142).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use kafka_protocol::protocol::StrBytes;

use super::config_changes::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use super::{CloseConnection, Reply, RequestContext};

/// Answers at once.
pub async fn handle(context: &RequestContext, request: ListConfigResourcesRequest) -> Result<Reply, CloseConnection> {
    let asked = if context.version == 0 { vec![CLIENT_METRICS] } else { request.resource_types };
    if !asked.iter().all(|kind| matches!(*kind, TOPIC | BROKER | BROKER_LOGGER | CLIENT_METRICS | GROUP)) {
        // Kafka's code for a type that it does not know.
        return context
            .ready(&ListConfigResourcesResponse::default().with_error_code(ResponseError::UnsupportedVersion.code()));
    }
    let wants = |kind| asked.is_empty() || asked.contains(&kind);
    let mut resources = Vec::new();
    if wants(TOPIC) {
        let topics = context.broker.storage.topics();
        resources.extend(topics.iter().map(|topic| resource(TOPIC, topic.name().as_str().to_owned())));
    }
    if wants(BROKER) {
        resources.push(resource(BROKER, context.broker.identity.node_id.to_string()));
    }
    if wants(GROUP) {
        resources.extend(context.broker.groups.configs().names().into_iter().map(|group| resource(GROUP, group)));
    }
    context.ready(&ListConfigResourcesResponse::default().with_config_resources(resources))
}

fn resource(kind: i8, name: String) -> ConfigResource {
    ConfigResource::default().with_resource_type(kind).with_resource_name(StrBytes::from_string(name))
}
