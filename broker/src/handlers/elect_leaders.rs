//! ElectLeaders (key 43), versions 0 to 2.
//!
//! Answers ELECTION_NOT_NEEDED for every partition that is named, which command line tools do not take for an error (S-104): the one broker leads, and is preferred.
//!
//! * v1 election type and a top-level error (KIP-460); v2 compact encodings.
//! * "All partitions" (null) is answered with an empty list, as Kafka leaves out partitions that need no election when all were asked for.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};
use kafka_protocol::protocol::StrBytes;

use super::{CloseConnection, Reply, RequestContext};

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

/// Answers at once.
pub async fn handle(context: &RequestContext, request: ElectLeadersRequest) -> Result<Reply, CloseConnection> {
    // Version 0 has no type: it is the default, preferred.
    let known_type = matches!(request.election_type, PREFERRED | UNCLEAN);
    let results = request.topic_partitions.unwrap_or_default().into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|index| {
            let code = match context.partition(topic.topic.as_str(), *index) {
                // Said at the top and for each partition: clients look at one or the other.
                _ if !known_type => ResponseError::InvalidRequest,
                Ok(_) => ResponseError::ElectionNotNeeded,
                Err(code) => code,
            };
            PartitionResult::default()
                .with_partition_id(*index)
                .with_error_code(code.code())
                .with_error_message(Some(StrBytes::from_string(code.to_string())))
        });
        let partitions = partitions.collect();
        ReplicaElectionResult::default().with_topic(topic.topic).with_partition_result(partitions)
    });
    let response = ElectLeadersResponse::default().with_replica_election_results(results.collect());
    context.ready(&if known_type { response } else { response.with_error_code(ResponseError::InvalidRequest.code()) })
}
