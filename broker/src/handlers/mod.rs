//! One file per Kafka API, and the one table they are listed in.
//!
//! A handler checks and converts a request, calls one service, and converts the result back; rules live below it. `handle` runs alone on its connection: the
//! next request is read when it returned. What then remains to be waited for (durability, a long poll, other group members) is returned as a future.

mod config_changes;
mod context;
mod reply;

mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod alter_client_quotas;
mod alter_configs;
mod alter_partition_reassignments;
mod alter_user_scram_credentials;
pub mod api_versions;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod create_acls;
mod create_partitions;
mod create_topics;
mod delete_acls;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_acls;
mod describe_client_quotas;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_quorum;
mod describe_topic_partitions;
mod describe_transactions;
mod describe_user_scram_credentials;
mod elect_leaders;
mod end_txn;
mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod sync_group;
mod txn_offset_commit;
mod write_txn_markers;

use bytes::Bytes;
use futures::future::BoxFuture;
use kafka_protocol::messages;
use weir_protocol::{ApiVersion, ApiVersionTable, decode_request, offsets_by_id};

pub use context::RequestContext;
pub use reply::{CloseConnection, Reply, Response};

/// One row per served API, ascending by key: `key Name: module, Request, lowest..=highest;`. ApiVersions answers from it, requests are dispatched by it, and
/// an API without a schema for the guard in `weir-protocol` does not compile.
macro_rules! apis {
    ($($key:literal $name:ident: $module:ident, $request:ty, $min:literal..=$max:literal;)+) => {
        /// What is served.
        pub static APIS: ApiVersionTable =
            ApiVersionTable::new(const { &[$(ApiVersion { key: $key, name: stringify!($name), min: $min, max: $max }),+] });

        /// Decodes the body of a request of a served version, and runs its handler's first stage.
        ///
        /// # Errors
        /// [`CloseConnection`] when the body does not decode, or when the handler refuses by closing.
        pub fn dispatch(context: &RequestContext, key: i16, body: Bytes) -> BoxFuture<'_, Result<Reply, CloseConnection>> {
            match key {
                $($key => Box::pin(async move {
                    let request: $request = decode_request($key, context.version, body)?;
                    $module::handle(context, request).await
                }),)+
                _ => Box::pin(std::future::ready(Err(CloseConnection(format!("api key {key} is not served"))))),
            }
        }
    };
}

apis! {
    0  Produce: produce, messages::ProduceRequest, 0..=13;
    1  Fetch: fetch, messages::FetchRequest, 4..=18;
    2  ListOffsets: list_offsets, messages::ListOffsetsRequest, 1..=11;
    3  Metadata: metadata, messages::MetadataRequest, 0..=13;
    8  OffsetCommit: offset_commit, offsets_by_id::OffsetCommit, 2..=10;
    9  OffsetFetch: offset_fetch, offsets_by_id::OffsetFetch, 1..=10;
    10 FindCoordinator: find_coordinator, messages::FindCoordinatorRequest, 0..=6;
    11 JoinGroup: join_group, messages::JoinGroupRequest, 0..=9;
    12 Heartbeat: heartbeat, messages::HeartbeatRequest, 0..=4;
    13 LeaveGroup: leave_group, messages::LeaveGroupRequest, 0..=5;
    14 SyncGroup: sync_group, messages::SyncGroupRequest, 0..=5;
    15 DescribeGroups: describe_groups, messages::DescribeGroupsRequest, 0..=6;
    16 ListGroups: list_groups, messages::ListGroupsRequest, 0..=5;
    18 ApiVersions: api_versions, messages::ApiVersionsRequest, 0..=4;
    19 CreateTopics: create_topics, messages::CreateTopicsRequest, 2..=7;
    20 DeleteTopics: delete_topics, messages::DeleteTopicsRequest, 1..=6;
    21 DeleteRecords: delete_records, messages::DeleteRecordsRequest, 0..=2;
    22 InitProducerId: init_producer_id, messages::InitProducerIdRequest, 0..=5;
    23 OffsetForLeaderEpoch: offset_for_leader_epoch, messages::OffsetForLeaderEpochRequest, 2..=4;
    24 AddPartitionsToTxn: add_partitions_to_txn, messages::AddPartitionsToTxnRequest, 0..=5;
    25 AddOffsetsToTxn: add_offsets_to_txn, messages::AddOffsetsToTxnRequest, 0..=4;
    26 EndTxn: end_txn, messages::EndTxnRequest, 0..=5;
    27 WriteTxnMarkers: write_txn_markers, messages::WriteTxnMarkersRequest, 1..=1;
    28 TxnOffsetCommit: txn_offset_commit, messages::TxnOffsetCommitRequest, 0..=5;
    29 DescribeAcls: describe_acls, messages::DescribeAclsRequest, 1..=3;
    30 CreateAcls: create_acls, messages::CreateAclsRequest, 1..=3;
    31 DeleteAcls: delete_acls, messages::DeleteAclsRequest, 1..=3;
    32 DescribeConfigs: describe_configs, messages::DescribeConfigsRequest, 1..=4;
    33 AlterConfigs: alter_configs, messages::AlterConfigsRequest, 0..=2;
    35 DescribeLogDirs: describe_log_dirs, messages::DescribeLogDirsRequest, 1..=4;
    37 CreatePartitions: create_partitions, messages::CreatePartitionsRequest, 0..=3;
    42 DeleteGroups: delete_groups, messages::DeleteGroupsRequest, 0..=2;
    43 ElectLeaders: elect_leaders, messages::ElectLeadersRequest, 0..=2;
    44 IncrementalAlterConfigs: incremental_alter_configs, messages::IncrementalAlterConfigsRequest, 0..=1;
    45 AlterPartitionReassignments: alter_partition_reassignments, messages::AlterPartitionReassignmentsRequest, 0..=1;
    46 ListPartitionReassignments: list_partition_reassignments, messages::ListPartitionReassignmentsRequest, 0..=0;
    47 OffsetDelete: offset_delete, messages::OffsetDeleteRequest, 0..=0;
    48 DescribeClientQuotas: describe_client_quotas, messages::DescribeClientQuotasRequest, 0..=1;
    49 AlterClientQuotas: alter_client_quotas, messages::AlterClientQuotasRequest, 0..=1;
    50 DescribeUserScramCredentials: describe_user_scram_credentials, messages::DescribeUserScramCredentialsRequest, 0..=0;
    51 AlterUserScramCredentials: alter_user_scram_credentials, messages::AlterUserScramCredentialsRequest, 0..=0;
    55 DescribeQuorum: describe_quorum, messages::DescribeQuorumRequest, 0..=2;
    60 DescribeCluster: describe_cluster, messages::DescribeClusterRequest, 0..=2;
    61 DescribeProducers: describe_producers, messages::DescribeProducersRequest, 0..=0;
    65 DescribeTransactions: describe_transactions, messages::DescribeTransactionsRequest, 0..=0;
    66 ListTransactions: list_transactions, messages::ListTransactionsRequest, 0..=2;
    68 ConsumerGroupHeartbeat: consumer_group_heartbeat, messages::ConsumerGroupHeartbeatRequest, 0..=1;
    69 ConsumerGroupDescribe: consumer_group_describe, messages::ConsumerGroupDescribeRequest, 0..=1;
    74 ListConfigResources: list_config_resources, messages::ListConfigResourcesRequest, 0..=1;
    75 DescribeTopicPartitions: describe_topic_partitions, messages::DescribeTopicPartitionsRequest, 0..=0;
}
