//! DescribeCluster (key 60), versions 0 to 2.
//!
//! Answers the cluster's id and its one broker, which is its controller too (S-25).
//!
//! * v1 endpoint type (KIP-919): 1 asks for brokers, 2 for controllers, which this listener is not; v2 fenced brokers (KIP-1073), of which there are none.
//! * Does not differ from Kafka.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;
/// "Not asked for" (S-24).
const OPERATIONS_NOT_ASKED: i32 = i32::MIN;
/// Every operation on the cluster: create, alter, describe, cluster action, describe configs, alter configs, idempotent write. There are no ACLs.
const ALL_CLUSTER_OPERATIONS: i32 = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;

/// Answers at once.
pub async fn handle(context: &RequestContext, request: DescribeClusterRequest) -> Result<Reply, CloseConnection> {
    let refusal = match request.endpoint_type {
        BROKERS => None,
        CONTROLLERS => {
            Some((ResponseError::MismatchedEndpointType, "this listener serves brokers: ask for endpoint type 1"))
        }
        _ => Some((ResponseError::UnsupportedEndpointType, "the endpoint type is unknown: ask for 1 (brokers)")),
    };
    if let Some((code, reason)) = refusal {
        let response = DescribeClusterResponse::default()
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_static_str(reason)))
            .with_endpoint_type(request.endpoint_type);
        return context.ready(&response);
    }
    let identity = &context.broker.identity;
    let rack = &context.broker.config.broker_rack;
    let broker = DescribeClusterBroker::default()
        .with_broker_id(BrokerId(identity.node_id))
        .with_host(StrBytes::from_string(identity.host.clone()))
        .with_port(identity.port)
        .with_rack((!rack.is_empty()).then(|| StrBytes::from_string(rack.clone())));
    let operations =
        if request.include_cluster_authorized_operations { ALL_CLUSTER_OPERATIONS } else { OPERATIONS_NOT_ASKED };
    let response = DescribeClusterResponse::default()
        .with_cluster_id(StrBytes::from_string(identity.cluster_id.clone()))
        .with_controller_id(BrokerId(identity.node_id))
        .with_brokers(vec![broker])
        .with_cluster_authorized_operations(operations);
    context.ready(&response)
}
