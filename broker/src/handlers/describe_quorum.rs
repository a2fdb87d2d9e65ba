//! DescribeQuorum (key 55), versions 0 to 2.
//!
//! Answers a quorum of one voter, which leads and has everything: what tools that show the state of a KRaft cluster need to see of a broker that is its own controller.
//!
//! * v1 fetch times (KIP-836); v2 directory ids, nodes and messages (KIP-853).
//! * Differs from Kafka: there is no metadata log, so its offsets are 0 and its directory id is the zero id; the controller's address is this broker's.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_quorum_response::{Listener, Node, PartitionData, ReplicaState, TopicData};
use kafka_protocol::messages::{BrokerId, DescribeQuorumRequest, DescribeQuorumResponse};
use kafka_protocol::protocol::StrBytes;
use weir_storage::partition::LEADER_EPOCH;

use super::{CloseConnection, Reply, RequestContext};

/// The one topic, with one partition, whose quorum there is.
const METADATA_TOPIC: &str = "__cluster_metadata";
const METADATA_PARTITION: i32 = 0;

/// Answers at once.
pub async fn handle(context: &RequestContext, request: DescribeQuorumRequest) -> Result<Reply, CloseConnection> {
    // Only what has a quorum has nodes.
    let mut nodes = Vec::new();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            if topic.topic_name.as_str() == METADATA_TOPIC && asked.partition_index == METADATA_PARTITION {
                nodes = vec![node(context)];
                quorum(context)
            } else {
                let code = ResponseError::UnknownTopicOrPartition;
                let reason = format!("the one quorum is that of {METADATA_TOPIC}, partition {METADATA_PARTITION}");
                let refused =
                    PartitionData::default().with_partition_index(asked.partition_index).with_error_code(code.code());
                if context.version >= 2 {
                    refused.with_error_message(Some(StrBytes::from_string(reason)))
                } else {
                    refused
                }
            }
        });
        let partitions = partitions.collect();
        TopicData::default().with_topic_name(topic.topic_name).with_partitions(partitions)
    });
    let response = DescribeQuorumResponse::default().with_topics(topics.collect());
    context.ready(&if context.version >= 2 { response.with_nodes(nodes) } else { response })
}

fn quorum(context: &RequestContext) -> PartitionData {
    let node_id = BrokerId(context.broker.identity.node_id);
    let voter = ReplicaState::default().with_replica_id(node_id);
    let voter = if context.version >= 1 {
        let now_ms = context.broker.clock.now_ms();
        voter.with_last_fetch_timestamp(now_ms).with_last_caught_up_timestamp(now_ms)
    } else {
        voter
    };
    PartitionData::default()
        .with_partition_index(METADATA_PARTITION)
        .with_leader_id(node_id)
        .with_leader_epoch(LEADER_EPOCH)
        .with_current_voters(vec![voter])
}

fn node(context: &RequestContext) -> Node {
    let identity = &context.broker.identity;
    let listener = Listener::default()
        .with_name(StrBytes::from_static_str("PLAINTEXT"))
        .with_host(StrBytes::from_string(identity.host.clone()))
        .with_port(u16::try_from(identity.port).expect("it was made from a port"));
    Node::default().with_node_id(BrokerId(identity.node_id)).with_listeners(vec![listener])
}
