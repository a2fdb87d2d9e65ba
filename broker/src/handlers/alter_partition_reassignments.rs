//! AlterPartitionReassignments (key 45), versions 0 and 1.
//!
//! Answers, partition by partition, that there is nowhere to move to. Asking for the broker that has the partition changes nothing and succeeds, as on Kafka (KIP-455).
//!
//! * v1 a guard against another replication factor (KIP-860), which cannot come up: one broker, one replica.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::{AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

/// Answers at once.
pub async fn handle(
    context: &RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> Result<Reply, CloseConnection> {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let answer = ReassignablePartitionResponse::default().with_partition_index(asked.partition_index);
            match check(context, topic.name.as_str(), asked) {
                Ok(()) => answer,
                Err((code, reason)) => {
                    answer.with_error_code(code.code()).with_error_message(Some(StrBytes::from_string(reason)))
                }
            }
        });
        let partitions = partitions.collect();
        ReassignableTopicResponse::default().with_name(topic.name).with_partitions(partitions)
    });
    let response = AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(request.allow_replication_factor_change)
        .with_responses(topics.collect());
    context.ready(&response)
}

fn check(context: &RequestContext, topic: &str, asked: &ReassignablePartition) -> Result<(), (ResponseError, String)> {
    context.partition(topic, asked.partition_index).map_err(|code| (code, code.to_string()))?;
    let node_id = context.broker.identity.node_id;
    match asked.replicas.as_deref() {
        None => Err((ResponseError::NoReassignmentInProgress, ResponseError::NoReassignmentInProgress.to_string())),
        Some([replica]) if **replica == node_id => Ok(()),
        Some(_) => {
            let reason = format!(
                "broker {node_id} is the only one, and has every partition: the replicas can be [{node_id}] and nothing else"
            );
            Err((ResponseError::InvalidReplicaAssignment, reason))
        }
    }
}
